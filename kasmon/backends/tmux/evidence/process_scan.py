"""Scans the files and processes of all agents that printed lately, together and in a thread.

Silent agents are not scanned: an agent's files change when its screen does, or a moment later. A stop signal is the
exception: it stops and continues an agent without any output.
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
"""How often processes and detection files are checked."""

STOPPED_S: Final = 10.0
"""How often silent agents are checked for a stop signal."""

log = logging.getLogger(__name__)


class ScanTarget(Protocol):
    """An agent whose evidence is scanned."""

    @property
    def evidence(self) -> ProcessEvidence: ...

    @property
    def stirred_at(self) -> float:
        """When it last printed, by the loop's clock."""
        ...

    def stir(self) -> None:
        """Have its screen, files and processes read soon."""
        ...

    def told(self, signals: Sequence[SignalSeen]) -> None:
        """Process signals from its files and processes."""
        ...


class ProcessScanner:
    """The scans of one host. Call `stir` when an agent prints; it is cheap."""

    def __init__(self, screen_reader: ScreenReader) -> None:
        self._screen_reader = screen_reader
        self._suspects: dict[ScanTarget, None] = {}
        self._stirred = asyncio.Event()
        self._walking: asyncio.Task[None] | None = None
        self._looked_at = -math.inf

    def add(self, suspect: ScanTarget) -> None:
        """Scan *suspect* from now on."""
        self._suspects[suspect] = None
        if self._walking is None:
            self._walking = asyncio.create_task(self._walk())
        self.stir()

    def drop(self, suspect: ScanTarget) -> None:
        """Stop scanning *suspect*. Idempotent."""
        self._suspects.pop(suspect, None)

    def stir(self) -> None:
        """Wake the scanner because an agent printed."""
        if not self._stirred.is_set():
            self._stirred.set()

    async def aclose(self) -> None:
        """Stop scanning. Idempotent."""
        walking, self._walking = self._walking, None
        if walking is not None:
            walking.cancel()
            await asyncio.gather(walking, return_exceptions=True)

    async def _walk(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await asyncio.wait_for(self._stirred.wait(), STOPPED_S)
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
                with contextlib.suppress(TimeoutError):  # a continued agent need not print
                    await asyncio.wait_for(self._stirred.wait(), PROCESSES_S)
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
        """Stir the silent agents that a stop signal stopped."""
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
            except Exception:  # one agent's odd files must not end the scans of all
                log.warning("what an agent left could not be read", exc_info=True)
                found.append([])
        return found
