"""Scans the files and processes of all agents that printed lately, together and in a thread.

Silent agents are not scanned: an agent's files change when its screen does, or a moment later. Two things are the
exception: a stop signal, which stops and continues an agent without any output, and the end of the process of a
background session, of which an agent is only the screen.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Sequence
from typing import Final, Protocol

from kasmon.asyncio_tasks import cancel_and_wait, wait_within
from kasmon.backends.tmux.evidence.process_evidence import ProcessEvidence
from kasmon.backends.tmux.evidence.process_table import table
from kasmon.backends.tmux.evidence.screen_reader import ScreenReader
from kasmon.model.events import SignalSeen

BEAT_S: Final = 0.1
LATELY_S: Final = 5.0
PROCESSES_S: Final = 2.0
"""How often processes and detection files are checked."""

STOPPED_S: Final = 10.0
"""How often silent agents are checked for these, whatever the other agents print."""

log = logging.getLogger(__name__)


class ScanTarget(Protocol):
    """An agent whose evidence is scanned."""

    @property
    def evidence(self) -> ProcessEvidence: ...

    @property
    def stirred_at(self) -> float:
        """When it last printed, by the loop's clock."""

    def stir(self) -> None:
        """Have its screen, files and processes read soon."""

    def process_signals(self, signals: Sequence[SignalSeen]) -> None:
        """Process signals from its files and processes."""


class ProcessScanner:
    """The scans of one host. Call `stir` when an agent prints; it is cheap."""

    def __init__(self, screen_reader: ScreenReader) -> None:
        self._screen_reader = screen_reader
        self._targets: dict[ScanTarget, None] = {}
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._looked_at = -math.inf

    def add(self, target: ScanTarget) -> None:
        self._targets[target] = None
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        self.stir()

    def drop(self, target: ScanTarget) -> None:
        """Stop scanning *target*. Idempotent."""
        self._targets.pop(target, None)

    def stir(self) -> None:
        """Wake the scanner because an agent printed."""
        if not self._stirred.is_set():
            self._stirred.set()

    async def aclose(self) -> None:
        """Stop scanning. Idempotent."""
        task, self._task = self._task, None
        await cancel_and_wait(task)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        while True:
            await wait_within(checked_at + STOPPED_S - loop.time(), self._stirred)
            now = loop.time()
            if now - checked_at >= STOPPED_S:
                checked_at = now
                await self._find_changed()
            if not self._stirred.is_set():
                continue
            recent = [target for target in self._targets if now - target.stirred_at < LATELY_S]
            if not recent:
                self._stirred.clear()
                recent = [target for target in self._targets if target.evidence.is_stopped]
                if not recent:
                    continue
                await wait_within(PROCESSES_S, self._stirred)  # a continued agent need not print
                self._stirred.set()
                now = loop.time()
            includes_processes = now - self._looked_at >= PROCESSES_S
            if includes_processes:
                self._looked_at = now
            with contextlib.suppress(RuntimeError):  # the loop is ending
                found = await asyncio.to_thread(
                    self._read_evidence, [target.evidence for target in recent], includes_processes
                )
                for target, signals in zip(recent, found, strict=True):
                    if target in self._targets:
                        target.process_signals(signals)
            await asyncio.sleep(BEAT_S)

    async def _find_changed(self) -> None:
        """Stir the silent agents that a stop signal stopped, or whose background process ended."""
        targets = [target for target in self._targets if not target.evidence.is_stopped]
        if not targets:
            return
        processes = await asyncio.to_thread(table)
        for target in targets:
            if target in self._targets and target.evidence.has_changed_silently(processes):
                target.stir()

    def _read_evidence(self, evidence: Sequence[ProcessEvidence], includes_processes: bool) -> list[list[SignalSeen]]:
        at = time.time()
        processes = table() if includes_processes else None
        if includes_processes:
            self._screen_reader.refresh()
        found: list[list[SignalSeen]] = []
        for each in evidence:
            try:
                found.append(each.read(at, processes))
            except Exception:  # one agent's odd files must not end the scans of all
                log.warning("what an agent left could not be read", exc_info=True)
                found.append([])
        return found
