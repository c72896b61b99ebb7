"""The lifecycle of an agent's sandbox: paused after idle time, resumed on use, ended at its limit.

The work of an earlier, killed host is completed: a half-done pause or resume ends in a resume, an expired sandbox ends.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from kasmon.asyncio_tasks import cancel_and_wait, wait_within
from kasmon.errors import KasmonError, RefusedError, SessionEndedError, SnapshotRefusedError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.sandboxed.transitions import FOREVER, WRITTEN_S, SandboxTransitions
from kasmon.model.commands import Launch, Mode, Pause, ReceiptState, Resume, Stop
from kasmon.model.reducers.evidence import apply_verdict
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.model.sandbox.state import SandboxState
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.sandbox.managed.idle_policy import (
    DueStep,
    LifecycleStep,
    LifetimeTerms,
    MonotonicAge,
    deadlines,
    due,
    only_held,
)

QUIET_S: Final = 2.0
"""How long after a command, in seconds, nothing ends the sandbox: the command's effect may not show yet."""
LONGEST_LOOK_S: Final = 60.0
"""The longest interval between checks; also the delay before a failed step is tried again."""
TYPING_S: Final = 10.0
"""How long no user types until the time of the last typing is noted, in seconds."""
FOUND: Final = "found again"
IN_TIME: Final = "it was working"
LOST: Final = "its memory is lost; its conversation and files are kept"

BEGIN_S: Final = 10.0
"""How long after its delivery, in seconds, a prompt may still begin a turn."""
ALIKE_S: Final = 1.0
RESTING: Final = frozenset({SessionState.IDLE, SessionState.STANDBY, SessionState.PAUSED})
AT_WORK: Final = frozenset({SessionState.WORKING, SessionState.ASKING})
ON_THE_WAY: Final = frozenset({ReceiptState.QUEUED, ReceiptState.TYPED})
GIVEN: Final = frozenset({ReceiptState.SUBMITTED, ReceiptState.STARTED})


class SandboxLifecycle:
    """Keeps the sandbox of the agent of *launch* while its session's host runs."""

    def __init__(
        self,
        launch: Launch,
        log_writer: LogWriter,
        end_agent: Callable[[str], None],
        is_attached: Callable[[], Awaitable[bool]],
    ) -> None:
        """The arguments are those of `AgentServices`."""
        self._terms = FOREVER
        self._session = launch.session
        self._log_writer = log_writer
        self._steps = SandboxTransitions(launch, log_writer)
        self._end_agent = end_agent
        self._is_attached = is_attached
        self._used_at = 0.0
        self._noted_at = 0.0
        self._not_before = 0.0
        self._wanted_at = 0.0
        self.is_ending = False
        """Whether its time is over, and its agent is being ended."""
        self._moving = asyncio.Lock()
        self._changed = asyncio.Event()
        self._clock = MonotonicAge()
        self._resuming: asyncio.Task[None] | None = None

    @property
    def is_paused(self) -> bool:
        """Whether it is known to be paused."""
        return self._steps.sandbox_state.is_asleep

    def begin(self, terms: LifetimeTerms) -> None:
        """Apply *terms*; before this call, there are no limits."""
        self._terms = self._steps.terms = terms

    async def recover(self) -> None:
        """Complete or undo what an earlier host began. No effect if nothing was left half done."""
        async with self._moving:
            sandbox_state = self._steps.sandbox_state
            if sandbox_state.runtime is None or not sandbox_state.is_intended:
                return
            if sandbox_state.phase is SandboxPhase.EXPIRED:
                await self._end(sandbox_state.why)
            elif sandbox_state.phase in (SandboxPhase.PAUSING, SandboxPhase.RESUMING):
                await self._try_to_resume(FOUND)

    async def run(self) -> None:
        """Execute what is due until the sandbox ends."""
        await self._steps.load()
        if not self._steps.can_pause:
            self.begin(msgspec.structs.replace(self._terms, standby_after_s=0.0))
        elif not self._steps.keeps_memory:
            self.begin(only_held(self._terms))
        self._log_writer.listeners.append(self._changed.set)
        while not self.is_ending:
            self._changed.clear()
            now = time.time()
            session = as_of(self._log_writer.session, now)
            if self.is_paused and is_at_work(session, now) and self._not_before <= now:  # it began as it was stopped
                await self._resume_now(IN_TIME)
                continue
            look_at, step = self._note_deadlines(session, now), self._due(session, now)
            if step is not None and step.at <= now:
                await self._execute_due()
                continue
            changes_at = (step.at if step else math.inf, rests_at(session), session.recheck_at or math.inf)
            look_at = min(look_at, now + LONGEST_LOOK_S, *(at for at in changes_at if at > now))
            await wait_within(look_at - now, self._changed)

    async def aclose(self) -> None:
        """Stop resuming. Idempotent."""
        await cancel_and_wait(self._resuming)

    # -- use

    async def ensure_running(self, command: object = None) -> None:
        """Record use by *command*, or by attaching: the sandbox runs when this returns.

        Raises:
            SessionEndedError: if its time is over.
            RefusedError: if it is paused, and use does not resume it.
            SandboxError: if it cannot be resumed.
        """
        self._record_use()
        async with self._moving:
            if self.is_ending and not isinstance(command, Stop):
                raise SessionEndedError(self._session)
            if not self.is_paused:
                return
            if not self._terms.auto_resume and not isinstance(command, Resume | Stop):
                raise RefusedError(
                    f"session {self._session!r} is paused, and `session.auto_resume` is off.",
                    hint=f"`kasmon sandbox resume {self._session}` resumes it.",
                )
            try:
                await self._steps.resume()
            except SnapshotRefusedError as error:
                self._give_up(error)
                raise

    async def move(self, command: Pause | Resume) -> None:
        """Pause or resume it by the user's command; the log has the result when this returns.

        Raises:
            KasmonError: as `pause` and `ensure_running`.
        """
        try:
            if isinstance(command, Pause):
                await self.pause("by user", to_disk=command.to_disk)
            else:
                await self.ensure_running(command)
        finally:
            await self._log_writer.wait_for_write(WRITTEN_S)

    def resume_soon(self) -> None:
        """Record that a user attaches or types: resume it soon; typed keys wait in its terminal."""
        self._record_use()
        may_be_paused = self.is_paused or self._moving.locked()
        if may_be_paused and self._terms.auto_resume and (self._resuming is None or self._resuming.done()):
            self._resuming = asyncio.create_task(self._resume_now())

    async def pause(self, why: str, *, to_disk: bool = False) -> None:
        """Pause it, its memory held or *to_disk*. No effect if it is paused in that way, or deeper.

        Raises:
            RefusedError: if it works, or waits for an answer.
            UnableError: for *to_disk*, if that is not possible.
            SandboxError: if pausing fails; it runs on then.
        """
        async with self._moving:
            session = as_of(self._log_writer.session, time.time())
            if self.is_paused and (self._steps.sandbox_state.held is not to_disk or not to_disk):
                return
            is_busy = session.state is not SessionState.IDLE or session.in_turn or session.queue or self.is_ending
            if is_busy and not self.is_paused:
                raise RefusedError(f"session {session.name!r} is {session.state}: it can be paused only when idle.")
            await self._pause(why, to_disk=to_disk)

    async def _pause(self, why: str, *, to_disk: bool) -> None:
        """Pause it; from memory to disk it is resumed in between."""
        if self.is_paused:
            await self._steps.resume()
        await self._steps.pause(why, to_disk=to_disk)

    def _record_use(self) -> None:
        self._used_at = self._wanted_at = time.time()
        self._steps.terms = self._terms
        self._changed.set()

    async def _resume_now(self, why: str = "") -> None:
        async with self._moving:
            if self.is_paused and not self.is_ending:
                await self._try_to_resume(why)

    async def _try_to_resume(self, why: str) -> None:
        try:
            await self._steps.resume(why)
        except SnapshotRefusedError as error:
            self._give_up(error)
        except KasmonError as error:
            self._not_before = time.time() + LONGEST_LOOK_S
            self._steps.warn(f"It cannot be resumed: {error.message}")

    def _give_up(self, error: SnapshotRefusedError) -> None:
        """End its agent, because its snapshot cannot be resumed; the next agent resumes the conversation by its id."""
        self.is_ending = True
        self._end_agent(f"{LOST}: {error.message}")

    # -- deadlines

    def _last_used(self, session: Session) -> float:
        return max(used_at(session), self._used_at)

    def _due(self, session: Session, now: float) -> DueStep | None:
        """Return the next due step and its time, despite changes of the wall clock; None while it does not rest."""
        sandbox_state = self._steps.sandbox_state
        if sandbox_state.runtime is None or rests_at(session) > now:
            return None
        last_used = self._clock.at("used", self._last_used(session), now)
        born_at = self._clock.at("born", sandbox_state.born_at, now)
        known = msgspec.structs.replace(sandbox_state, used_at=last_used, born_at=born_at)
        step = due(known, self._steps.terms, keeps_memory=self._steps.keeps_memory, in_turn=False)
        if step is None or step.step is not LifecycleStep.END:
            return step
        return msgspec.structs.replace(step, at=max(step.at, self._wanted_at + QUIET_S, self._not_before))

    def _note_deadlines(self, session: Session, now: float) -> float:
        """Note the coming deadlines, if they differ from those noted last; return when to check that again."""
        sandbox_state = self._steps.sandbox_state
        if (
            session.state is not SessionState.IDLE
            or sandbox_state.runtime is None
            or sandbox_state.phase is not SandboxPhase.RUNNING
        ):
            return math.inf
        last_used, terms = self._last_used(session), self._steps.terms
        to_come = deadlines(
            msgspec.structs.replace(sandbox_state, used_at=last_used), terms, keeps_memory=self._steps.keeps_memory
        )
        if all(map(alike, to_come, (sandbox_state.standby_at, sandbox_state.pause_at, sandbox_state.expires_at))):
            return math.inf
        shares = (each / 4 for each in (terms.standby_after_s, terms.idle_timeout_s) if each)
        known_at = last_used + min([TYPING_S, *shares])
        is_only_typed = session.since <= self._noted_at
        if is_only_typed and now < known_at and now < self._noted_at + LONGEST_LOOK_S:
            return known_at
        self._noted_at = now
        self._steps.note_deadlines(last_used)
        return math.inf

    async def _execute_due(self) -> None:
        """Execute what is due, unless the sandbox was used meanwhile or a user is attached."""
        async with self._moving:
            now = time.time()
            if await self._is_attached():
                self._used_at = now
            step = self._due(as_of(self._log_writer.session, now), now)
            if self.is_ending or step is None or step.at > now:
                return
            if step.step is LifecycleStep.END:
                await self._end(step.why)
            else:
                await self._pause_when_due(step.why, to_disk=step.step is LifecycleStep.PAUSE)

    async def _pause_when_due(self, why: str, *, to_disk: bool) -> None:
        last_used = self._used_at
        try:
            await self._pause(why, to_disk=to_disk)
        except KasmonError as error:  # not tried again until it was used; the end comes all the same
            terms = msgspec.structs.replace(self._terms, standby_after_s=0.0)
            self._steps.terms = msgspec.structs.replace(terms, on_timeout="end") if to_disk else terms
            self._steps.warn(error.message)
            return
        if self._used_at > last_used and self._terms.auto_resume:
            await self._try_to_resume("")

    async def _end(self, why: str) -> None:
        """Begin to end its agent; its sandbox ends with it."""
        try:
            await self._steps.expire(why)
        except KasmonError as error:
            if self._steps.sandbox_state.phase is not SandboxPhase.EXPIRED:
                self._not_before = time.time() + LONGEST_LOOK_S
                self._steps.warn(error.message)
                return
        self.is_ending = True
        self._end_agent(why)


def as_of(session: Session, now: float) -> Session:
    """Return *session* at *now*: in a terminal its state may change without a new event."""
    if session.recheck_at is not None and session.recheck_at <= now:
        return apply_verdict(session, now, since=session.recheck_at)
    return session


def rests_at(session: Session) -> float:
    """Return from when on it has neither work nor a pending request; infinity while it has."""
    if session.state not in RESTING or session.in_turn or session.requests:
        return math.inf
    if any(receipt.state in ON_THE_WAY for receipt in session.receipts):
        return math.inf
    return max((receipt.at + BEGIN_S for receipt in session.receipts if receipt.state in GIVEN), default=0.0)


def used_at(session: Session) -> float:
    """Return when it was last used, according to its events."""
    sandbox_state = session.sandbox_state or SandboxState()
    return max(sandbox_state.used_at, session.since if session.state is SessionState.IDLE else 0.0)


def is_at_work(session: Session, now: float) -> bool:
    """Whether *session*, which was paused, was in the midst of work by its last events."""
    if session.mode is not Mode.TMUX:
        return session.state in AT_WORK
    return session.state is SessionState.STANDBY and apply_verdict(session, now).state in AT_WORK


def alike(one: float | None, other: float | None) -> bool:
    """Whether two moments, in seconds since the epoch, are equal within `ALIKE_S`."""
    return one is other if one is None or other is None else abs(one - other) < ALIKE_S
