"""Exchange between a sandbox and its session: the session's context goes in, notes of `kasmon ctx` come out."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kasmon.backends.interpreter.event_queue import ThreadSafeEventQueue
from kasmon.model.commands import Launch
from kasmon.model.task import build_report
from kasmon.paths import Paths
from kasmon.sandbox.agent.context_files import AgentContextFiles, ContextNote, ContextNotes, context
from kasmon.sandbox.managed.sandbox import ManagedSandbox

LOOK_S: Final = 1.0
"""How often both are checked while the sandbox runs, in seconds."""


class ContextExchange:
    """The context exchange of one session. A tier without a context folder exchanges nothing."""

    def __init__(
        self,
        paths: Paths,
        launch: Launch,
        sandbox: ManagedSandbox,
        event_queue: ThreadSafeEventQueue,
        since: float = 0.0,
    ) -> None:
        """*since*: an earlier host has received all notes up to this time, in seconds since the epoch."""
        self._paths = paths
        self._launch = launch
        self._sandbox = sandbox
        self._event_queue = event_queue
        self._since = since
        self._notes = ContextNotes()
        self._written_context = b""
        self._generation = 0
        self._exchange_lock = asyncio.Lock()

    async def exchange_until(self, is_over: Callable[[], bool]) -> None:
        """Exchange in both directions until *is_over*."""
        while not is_over():
            if self._sandbox.runs:
                await self.exchange()
            await asyncio.sleep(LOOK_S)

    async def exchange(self) -> None:
        """Write new context into the sandbox and log the agent's notes; what cannot be read is retried next time."""
        async with self._exchange_lock:
            with contextlib.suppress(OSError):
                for note in await asyncio.to_thread(self._exchange_once):
                    self._event_queue.write(build_report(note.waiting, note.done, time.time()))

    def _exchange_once(self) -> Sequence[ContextNote]:
        sandbox_state = self._sandbox.journal.sandbox_state
        if sandbox_state.runtime is None or not sandbox_state.runtime.session_folder:
            return ()
        own = AgentContextFiles(Path(sandbox_state.runtime.session_folder))
        if not own.folder.is_dir():
            return ()
        if self._generation != sandbox_state.generation:
            self._generation, self._written_context = sandbox_state.generation, b""
        now = context(self._paths, self._launch)
        if now != self._written_context:
            own.write_context(now)
            self._written_context = now
        return [note for note in self._notes.new(own.notes) if note.at > self._since]
