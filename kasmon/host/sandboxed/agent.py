"""The host's part in an agent inside a sandbox: see how it is confined, hear it, keep it, clear up behind it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kasmon.config import in_force
from kasmon.errors import KasmonError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.rpc.declaration import said
from kasmon.host.rpc.frames import ReportContext
from kasmon.host.sandboxed.lifecycle import SandboxLifecycle
from kasmon.model.commands import Launch
from kasmon.model.events import ConfinementSeen, NoticeRaised
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.sandbox.agent import identify
from kasmon.sandbox.agent import launch as sandboxed_agent
from kasmon.sandbox.agent.context_files import AgentContextFiles, context
from kasmon.sandbox.agent.notes import ContextNote, ContextNotes
from kasmon.sandbox.managed.lifecycle import terms_of

LISTEN_S: Final = 1.0
"""How often it is looked for notes of those inside, in seconds."""

log = logging.getLogger(__name__)


async def _nobody() -> bool:
    return False


class SandboxedAgent:
    """The agent of *launch*, in its sandbox."""

    def __init__(
        self,
        places: Paths,
        launch: Launch,
        log_writer: LogWriter,
        end_agent: Callable[[str], None],
        on_agent: Callable[[int], None] = lambda _: None,
        is_attached: Callable[[], Awaitable[bool]] = _nobody,
    ) -> None:
        """
        Args:
            places: where its session is kept.
            launch: what it is.
            log_writer: what writes it down.
            end_agent: begins to end the agent, for the reason that it is given.
            on_agent: hears which process the agent is.
            is_attached: whether somebody sits at it, though it does nothing.
        """
        self._places = places
        self._launch = launch
        self._log_writer = log_writer
        self._on_agent = on_agent
        self.lifecycle = SandboxLifecycle(places, launch, log_writer, end_agent, is_attached)
        """How long it is kept."""
        self._notes = ContextNotes()
        self._told = b""
        self._is_first = True
        self._work: asyncio.Task[None] | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody may see of what it was given."""
        return sandboxed_agent.secrets_of(self._launch.session)

    def begin(self, front: int, *, is_new: bool = True) -> None:
        """Look behind process *front*, its pane's or its host's child, and listen from then on.

        *is_new*: it was started just now, so people are told how.
        """
        self._is_first = is_new
        if self._work is None:
            self._work = asyncio.create_task(self._live(front))

    async def aclose(self, *, is_over: bool) -> None:
        """Stop that; where its agent *is_over*, leave nothing of its sandbox but its home. Idempotent."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        await self.lifecycle.aclose()
        if is_over:
            try:
                self._heard(await asyncio.to_thread(self._listen))
                for text in await asyncio.to_thread(self._left):
                    self._tell(text)
            except (KasmonError, OSError) as error:
                self._tell(f"Its sandbox was not cleaned up: {error}", is_bad=True)

    # -- what it is, and what it says

    async def _live(self, front: int) -> None:
        session = (await asyncio.to_thread(in_force, self._places, log.warning)).session
        self.lifecycle.begin(terms_of(session))
        if not self._is_first:
            await self.lifecycle.settle()
        if self.lifecycle.is_ending or not await self._seen(front):
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self.lifecycle.keep())
            group.create_task(self._hear())

    async def _seen(self, front: int) -> bool:
        """Look behind process *front*, and note what is there; whether an agent was."""
        try:
            found = await asyncio.to_thread(identify.identify_agent, self._places, self._launch, front)
        except (KasmonError, OSError) as error:
            found = ConfinementSeen(at=time.time(), ok=False, mismatches=(f"it cannot be inspected: {error}",))
        if found is None:
            return False
        if found.pid is not None:
            self._on_agent(found.pid)
        if not self.lifecycle.sleeps:
            self._log_writer.note(found)
        for text in found.runtime.notices if found.runtime is not None and self._is_first else ():
            self._tell(text)
        if not found.ok:
            self._tell(f"Its confinement could not be verified: {'; '.join(found.mismatches)}.", is_bad=True)
        return True

    async def _hear(self) -> None:
        while True:
            await asyncio.sleep(LISTEN_S)
            try:
                self._heard(await asyncio.to_thread(self._listen))
                await asyncio.to_thread(self._keep_current)
                for text in await asyncio.to_thread(sandboxed_agent.describe_differences, self._places, self._launch.session):
                    self._tell(text)
            except (KasmonError, OSError):
                log.warning("the reports from the sandbox cannot be read", exc_info=True)

    def _tell(self, text: str, *, is_bad: bool = False) -> None:
        self._log_writer.note(NoticeRaised(at=time.time(), text=text, level="error" if is_bad else "info"))

    def _heard(self, notes: Sequence[ContextNote]) -> None:
        for note in notes:
            frame = ReportContext(n=0, session=self._launch.session, waiting=note.waiting, done=note.done)
            self._log_writer.note(said(frame, time.time()))

    def _listen(self) -> list[ContextNote]:
        """What those inside have said since the last time."""
        return self._notes.new(sandboxed_agent.notes_of(self._places, self._launch.session))

    def _left(self) -> tuple[str, ...]:
        is_lost = (
            self._log_writer.session.state is SessionState.LOST
        )  # nobody sees it any more: what sleeps on disk stays
        return sandboxed_agent.clean_up(self._places, self._launch.session, spares_memory=is_lost)

    def _keep_current(self) -> None:
        """Let those inside know what their plan's runner has written down since."""
        now = context(self._places, self._launch)
        if now != self._told:
            AgentContextFiles(sandboxed_agent.notes_of(self._places, self._launch.session).parent.parent).write_context(now)
            self._told = now
