"""What goes between a sandbox and its session's place: what it may know goes in, what `kasmon ctx` says comes out."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kasmon.backends.interpreter.event_queue import ThreadSafeEventQueue
from kasmon.model.commands import Launch
from kasmon.model.task import declared
from kasmon.paths import Paths
from kasmon.sandbox.agent.context_files import AgentContextFiles, context
from kasmon.sandbox.agent.notes import ContextNote, ContextNotes
from kasmon.sandbox.managed.sandbox import ManagedSandbox

LOOK_S: Final = 1.0
"""How often it is looked for both, in seconds, while the sandbox runs."""


class ContextExchange:
    """The mail of one session. One whose tier has no such folder has none."""

    def __init__(
        self, places: Paths, launch: Launch, box: ManagedSandbox, diary: ThreadSafeEventQueue, since: float = 0.0
    ) -> None:
        """*since*: what was said until then, in seconds since the epoch, was heard by a host before this one."""
        self._places = places
        self._launch = launch
        self._box = box
        self._diary = diary
        self._since = since
        self._notes = ContextNotes()
        self._told = b""
        self._generation = 0
        self._looking = asyncio.Lock()

    async def live(self, is_over: Callable[[], bool]) -> None:
        """Carry both ways until *is_over*."""
        while not is_over():
            if self._box.runs:
                await self.carry()
            await asyncio.sleep(LOOK_S)

    async def carry(self) -> None:
        """Put in what is new, and note what those inside said; what cannot be read now is read the next time."""
        async with self._looking:
            with contextlib.suppress(OSError):
                for note in await asyncio.to_thread(self._carried):
                    self._diary.write(declared(note.waiting, note.done, time.time()))

    def _carried(self) -> Sequence[ContextNote]:
        housing = self._box.journal.housing
        if housing.runtime is None or not housing.runtime.ground:
            return ()
        own = AgentContextFiles(Path(housing.runtime.ground))
        if not own.folder.is_dir():
            return ()
        if self._generation != housing.generation:
            self._generation, self._told = housing.generation, b""
        now = context(self._places, self._launch)
        if now != self._told:
            own.write_context(now)
            self._told = now
        return [note for note in self._notes.new(own.notes) if note.at > self._since]
