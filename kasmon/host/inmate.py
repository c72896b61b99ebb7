"""The host's part in an agent inside a sandbox: see how it is confined, hear it, let it sleep, clear up behind it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kasmon.config import in_force
from kasmon.errors import KasmonError, RefusedError
from kasmon.host.pen import Pen
from kasmon.host.said import said
from kasmon.host.wire import Say
from kasmon.model.command import Answer, Launch, Prompt
from kasmon.model.event import ConfinementSeen, NoticeRaised, SandboxMoved
from kasmon.model.sandbox import Phase, Runtime
from kasmon.model.state import SessionState
from kasmon.paths import Places
from kasmon.sandbox import behind, inmate
from kasmon.sandbox.belongings import Belongings, context
from kasmon.sandbox.notes import Note, Notes

LISTEN_S: Final = 1.0
"""How often it is looked for notes of those inside, and whether it may sleep, in seconds."""
NOBODY: Final = "nobody used it"

log = logging.getLogger(__name__)


async def _nobody() -> bool:
    return False


class Inmate:
    """The agent of *launch*, in its sandbox."""

    def __init__(
        self,
        places: Places,
        launch: Launch,
        pen: Pen,
        on_agent: Callable[[int], None] = lambda _: None,
        is_used: Callable[[], Awaitable[bool]] = _nobody,
    ) -> None:
        """
        Args:
            places: where its session is kept.
            launch: what it is.
            pen: what writes it down.
            on_agent: hears which process the agent is.
            is_used: whether somebody sits at it, though it does nothing.
        """
        self._places = places
        self._launch = launch
        self._pen = pen
        self._on_agent = on_agent
        self._is_used = is_used
        self._standby_s = 0.0
        self._auto_resume = True
        self._used_at = time.time()
        self._moving = asyncio.Lock()
        self._notes = Notes()
        self._told = b""
        self._is_first = True
        self._work: asyncio.Task[None] | None = None
        self._waking: asyncio.Task[None] | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody may see of what it was given."""
        return inmate.secrets_of(self._launch.session)

    @property
    def sleeps(self) -> bool:
        housing = self._pen.session.housing
        return housing is not None and housing.is_asleep

    def begin(self, front: int, *, is_new: bool = True) -> None:
        """Look behind process *front*, its pane's or its host's child, and listen from then on.

        *is_new*: it was started just now, so people are told how.
        """
        self._is_first = is_new
        if self._work is None:
            self._work = asyncio.create_task(self._live(front))

    async def aclose(self, *, is_over: bool) -> None:
        """Stop that; where its agent *is_over*, leave nothing of its sandbox but its home. Idempotent."""
        for task in (self._work, self._waking):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if is_over:
            try:
                self._heard(await asyncio.to_thread(self._listen))
                for text in await asyncio.to_thread(inmate.left, self._places, self._launch.session):
                    self._tell(text)
            except (KasmonError, OSError) as error:
                self._tell(f"Its sandbox is not cleared up: {error}", is_bad=True)

    # -- sleep

    async def used(self, wish: object = None) -> None:
        """Somebody wants something of it, *wish* or to sit down at it: it is awake when this returns.

        Raises:
            RefusedError: if it sleeps, and a prompt is not to wake it.
            SandboxError: if it cannot be woken.
        """
        self._used_at = time.time()
        async with self._moving:
            if not self.sleeps:
                return
            if isinstance(wish, Prompt | Answer) and not self._auto_resume:
                raise RefusedError(
                    f"session {self._launch.session!r} sleeps, and `session.auto_resume` is off.",
                    hint=f"`kasmon sandbox resume {self._launch.session}` wakes it.",
                )
            await self._wake()

    def touched(self) -> None:
        """Somebody types: wake it soon, what is typed waits in its terminal."""
        self._used_at = time.time()
        if self.sleeps and (self._waking is None or self._waking.done()):
            self._waking = asyncio.create_task(self._woken())

    async def sleep(self, why: str = "") -> None:
        """Put it to sleep, its memory held. Nothing where it sleeps.

        Raises:
            RefusedError: if it is at work, or waits for an answer.
            SandboxError: if it cannot be.
        """
        async with self._moving:
            session = self._pen.session
            if self.sleeps:
                return
            if session.state is not SessionState.IDLE or session.in_turn or session.queue:
                raise RefusedError(f"session {session.name!r} is {session.state}: it sleeps only when it is idle.")
            runtime = self._runtime()
            await asyncio.to_thread(inmate.freeze, self._places, self._launch.session, runtime)
            self._move(Phase.PAUSED, why=why)

    async def _woken(self) -> None:
        try:
            await self.used()
        except KasmonError as error:
            self._tell(f"It cannot be woken: {error.message}", is_bad=True)

    async def _wake(self) -> None:
        await asyncio.to_thread(inmate.thaw, self._places, self._launch.session, self._runtime())
        self._move(Phase.RUNNING)

    async def _doze(self) -> None:
        """Put it to sleep where nobody has used it for long."""
        session = self._pen.session
        if not self._standby_s or self.sleeps or session.state is not SessionState.IDLE:
            return
        if time.time() - max(self._used_at, session.since) < self._standby_s:
            return
        if await self._is_used():
            self._used_at = time.time()
            return
        try:
            await self.sleep(NOBODY)
        except RefusedError:
            return
        except KasmonError as error:
            self._used_at = time.time()
            self._tell(f"It was not put to sleep: {error.message}", is_bad=True)

    def _runtime(self) -> Runtime:
        housing = self._pen.session.housing
        if housing is None or housing.runtime is None:
            raise RefusedError(f"the sandbox of session {self._launch.session!r} is not known yet.")
        return housing.runtime

    def _move(self, phase: Phase, why: str = "") -> None:
        housing, held = self._pen.session.housing, phase is Phase.PAUSED
        same = 0 if housing is None else housing.generation
        self._pen.note(SandboxMoved(at=time.time(), phase=phase, held=held, generation=same, why=why))

    # -- what it is, and what it says

    async def _live(self, front: int) -> None:
        try:
            found = await asyncio.to_thread(behind.seen, self._places, self._launch, front)
        except (KasmonError, OSError) as error:
            found = ConfinementSeen(at=time.time(), ok=False, mismatches=(f"it cannot be looked at: {error}",))
        if found is None:
            return
        if found.pid is not None:
            self._on_agent(found.pid)
        if not self.sleeps:
            self._pen.note(found)
        for text in found.runtime.notices if found.runtime is not None and self._is_first else ():
            self._tell(text)
        if not found.ok:
            self._tell(f"It is not confined as it should be: {'; '.join(found.mismatches)}.", is_bad=True)
        session = (await asyncio.to_thread(in_force, self._places, log.warning)).session
        self._standby_s, self._auto_resume = session.standby_after_seconds, session.auto_resume
        while True:
            await asyncio.sleep(LISTEN_S)
            try:
                self._heard(await asyncio.to_thread(self._listen))
                await asyncio.to_thread(self._keep_current)
                await self._doze()
            except OSError:
                log.warning("what those inside say cannot be heard", exc_info=True)

    def _tell(self, text: str, *, is_bad: bool = False) -> None:
        self._pen.note(NoticeRaised(at=time.time(), text=text, level="error" if is_bad else "info"))

    def _heard(self, notes: Sequence[Note]) -> None:
        for note in notes:
            frame = Say(n=0, session=self._launch.session, waiting=note.waiting, done=note.done)
            self._pen.note(said(frame, time.time()))

    def _listen(self) -> list[Note]:
        """What those inside have said since the last time."""
        return self._notes.new(inmate.notes_of(self._places, self._launch.session))

    def _keep_current(self) -> None:
        """Let those inside know what their plan's runner has written down since."""
        now = context(self._places, self._launch)
        if now != self._told:
            Belongings(inmate.notes_of(self._places, self._launch.session).parent.parent).tell(now)
            self._told = now
