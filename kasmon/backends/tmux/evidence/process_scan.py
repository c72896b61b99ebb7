"""Looks at the files and processes of the agents that printed lately, all of them in one go and in a thread.

Who is silent is not looked at: what an agent writes down of itself changes when its screen does, or a moment later.
A stop signal is the exception, since it stops and continues an agent without a word.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Sequence
from typing import Final, Protocol

from kasmon.backends.tmux.evidence.process_evidence import ProcessEvidence
from kasmon.backends.tmux.evidence.process_table import table
from kasmon.backends.tmux.evidence.screen_reader import ScreenReader
from kasmon.model.events import SignalSeen

BEAT_S: Final = 0.1
LATELY_S: Final = 5.0
PROCESSES_S: Final = 2.0
"""How often processes, and the screens' files, are looked at."""

STOPPED_S: Final = 10.0
"""How often it is looked whether a stop signal stopped one of those that are silent."""

log = logging.getLogger(__name__)


class ScanTarget(Protocol):
    """An agent that the scanner follows."""

    @property
    def evidence(self) -> ProcessEvidence: ...

    @property
    def stirred_at(self) -> float:
        """When it printed last, by the loop's clock."""
        ...

    def stir(self) -> None:
        """Have its screen, files and processes looked at soon."""
        ...

    def told(self, signals: Sequence[SignalSeen]) -> None:
        """What its files and processes say."""
        ...


class ProcessScanner:
    """The rounds of one host. `stir` when an agent prints; it is cheap."""

    def __init__(self, screen_reader: ScreenReader) -> None:
        self._screen_reader = screen_reader
        self._suspects: dict[ScanTarget, None] = {}
        self._stirred = asyncio.Event()
        self._walking: asyncio.Task[None] | None = None
        self._looked_at = -math.inf

    def add(self, suspect: ScanTarget) -> None:
        """Follow *suspect* from now on."""
        self._suspects[suspect] = None
        if self._walking is None:
            self._walking = asyncio.create_task(self._walk())
        self.stir()

    def drop(self, suspect: ScanTarget) -> None:
        """Follow it no more. Idempotent."""
        self._suspects.pop(suspect, None)

    def stir(self) -> None:
        """Somebody printed."""
        if not self._stirred.is_set():
            self._stirred.set()

    async def aclose(self) -> None:
        """Follow nobody. Idempotent."""
        walking, self._walking = self._walking, None
        if walking is not None:
            walking.cancel()
            await asyncio.gather(walking, return_exceptions=True)

    async def _walk(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(STOPPED_S):
                    await self._stirred.wait()
            except TimeoutError:
                await self._find_stopped()
                continue
            now = loop.time()
            lately = [suspect for suspect in self._suspects if now - suspect.stirred_at < LATELY_S]
            if not lately:
                self._stirred.clear()
                lately = [suspect for suspect in self._suspects if suspect.evidence.is_stopped]
                if not lately:
                    continue
                with contextlib.suppress(TimeoutError):  # what was continued need not print
                    async with asyncio.timeout(PROCESSES_S):
                        await self._stirred.wait()
                self._stirred.set()
                now = loop.time()
            wants_processes = now - self._looked_at >= PROCESSES_S
            if wants_processes:
                self._looked_at = now
            with contextlib.suppress(RuntimeError):  # the loop is ending
                found = await asyncio.to_thread(self._look, [suspect.evidence for suspect in lately], wants_processes)
                for suspect, signals in zip(lately, found, strict=True):
                    if suspect in self._suspects:
                        suspect.told(signals)
            await asyncio.sleep(BEAT_S)

    async def _find_stopped(self) -> None:
        """Look at those of the silent ones that a stop signal stopped."""
        suspects = [suspect for suspect in self._suspects if not suspect.evidence.is_stopped]
        if not suspects:
            return
        processes = await asyncio.to_thread(table)
        for suspect in suspects:
            if suspect in self._suspects and suspect.evidence.was_stopped_silently(processes):
                suspect.stir()

    def _look(self, evidence: Sequence[ProcessEvidence], wants_processes: bool) -> list[list[SignalSeen]]:
        at = time.time()
        processes = table() if wants_processes else None
        if wants_processes:
            self._screen_reader.refresh()
        found: list[list[SignalSeen]] = []
        for each in evidence:
            try:
                found.append(each.look(at, processes))
            except Exception:  # one agent's odd files must not end the rounds of all
                log.warning("what an agent left could not be read", exc_info=True)
                found.append([])
        return found
