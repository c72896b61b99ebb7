"""The host's side of a sandboxed agent: checks confinement, reads reports, keeps the sandbox, cleans up."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.config import load_or_default
from kasmon.errors import KasmonError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.sandboxed.lifecycle import SandboxLifecycle
from kasmon.model.commands import Launch
from kasmon.model.events import ConfinementSeen, NoticeRaised
from kasmon.model.session_state import SessionState
from kasmon.model.task import build_report
from kasmon.sandbox.agent import identify
from kasmon.sandbox.agent import launch as sandboxed_agent
from kasmon.sandbox.agent.context_files import AgentContextFiles, ContextNotes, context
from kasmon.sandbox.managed.idle_policy import terms_of

LISTEN_S: Final = 1.0
"""How often reports from the sandbox are read, in seconds."""

log = logging.getLogger(__name__)


class SandboxedAgent:
    def __init__(
        self,
        launch: Launch,
        log_writer: LogWriter,
        end_agent: Callable[[str], None],
        on_agent: Callable[[int], None],
        is_attached: Callable[[], Awaitable[bool]],
    ) -> None:
        """The arguments are those of `AgentServices`."""
        self._paths = log_writer.session_log.paths
        self._launch = launch
        self._log_writer = log_writer
        self._on_agent = on_agent
        self.lifecycle = SandboxLifecycle(launch, log_writer, end_agent, is_attached)
        self._notes = ContextNotes()
        self._written_context = b""
        self._is_first = True
        self.inspected = asyncio.Event()
        """Set once its process is known, or that it is not there."""
        self._work: asyncio.Task[None] | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        return sandboxed_agent.secrets_of(self._launch.session)

    def begin(self, front: int, *, is_new: bool = True) -> None:
        """Inspect the sandbox behind process *front*, its pane's or its host's child, and read reports from then on.

        *is_new*: it was started just now, so its start is announced.
        """
        self._is_first = is_new
        if self._work is None:
            self._work = asyncio.create_task(self._run(front))

    async def aclose(self, *, is_over: bool) -> None:
        """Stop that; if its agent *is_over*, remove its sandbox except its home. Idempotent."""
        await cancel_and_wait(self._work)
        await self.lifecycle.aclose()
        if is_over:
            try:
                await self._log_reports()
                # a lost one is no longer monitored: its snapshot stays
                is_lost = self._log_writer.session.state is SessionState.LOST
                paths, session = self._paths, self._launch.session
                for text in await asyncio.to_thread(sandboxed_agent.clean_up, paths, session, spares_memory=is_lost):
                    self._notice(text)
            except (KasmonError, OSError) as error:
                self._notice(f"Its sandbox was not cleaned up: {error}", is_bad=True)

    # -- inspection and reports

    async def _run(self, front: int) -> None:
        session = (await asyncio.to_thread(load_or_default, self._paths, log.warning)).session
        self.lifecycle.begin(terms_of(session))
        try:
            if not self._is_first:
                await self.lifecycle.recover()
            if self.lifecycle.is_ending or not await self._inspect(front):
                return
        finally:
            self.inspected.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.lifecycle.run())
            group.create_task(self._poll())

    async def _inspect(self, front: int) -> bool:
        """Inspect the sandbox behind process *front* and note the result; whether an agent was there."""
        try:
            confinement = await asyncio.to_thread(identify.identify_agent, self._paths, self._launch, front)
        except (KasmonError, OSError) as error:
            confinement = ConfinementSeen(at=time.time(), ok=False, mismatches=(f"it cannot be inspected: {error}",))
        if confinement is None:
            return False
        if confinement.pid is not None:
            self._on_agent(confinement.pid)
        if not self.lifecycle.is_paused:
            self._log_writer.note(confinement)
        for text in confinement.runtime.notices if confinement.runtime is not None and self._is_first else ():
            self._notice(text)
        if not confinement.ok:
            self._notice(f"Its confinement could not be verified: {'; '.join(confinement.mismatches)}.", is_bad=True)
        return True

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(LISTEN_S)
            try:
                await self._log_reports()
                await asyncio.to_thread(self._update_context)
                for text in await asyncio.to_thread(
                    sandboxed_agent.describe_differences, self._paths, self._launch.session
                ):
                    self._notice(text)
            except (KasmonError, OSError):
                log.warning("the reports from the sandbox cannot be read", exc_info=True)

    def _notice(self, text: str, *, is_bad: bool = False) -> None:
        self._log_writer.note(NoticeRaised(at=time.time(), text=text, level="error" if is_bad else "info"))

    async def _log_reports(self) -> None:
        paths, session = self._paths, self._launch.session
        for note in await asyncio.to_thread(lambda: self._notes.new(sandboxed_agent.notes_of(paths, session))):
            self._log_writer.note(build_report(note.waiting, note.done, time.time()))

    def _update_context(self) -> None:
        now = context(self._paths, self._launch)
        if now != self._written_context:
            AgentContextFiles(sandboxed_agent.notes_of(self._paths, self._launch.session).parent.parent).write_context(
                now
            )
            self._written_context = now
