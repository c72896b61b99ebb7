"""The lifecycle of one session's sandbox: found or created, paused by the clock, resumed on use, ended; all logged."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeVar

import msgspec

from kasmon.asyncio_tasks import wait_within
from kasmon.backends.interpreter.event_queue import ThreadSafeEventQueue
from kasmon.backends.interpreter.threads import BlockingCalls
from kasmon.backends.interpreter.turns import TurnCounter
from kasmon.errors import KasmonError, RefusedError, SandboxError, SessionEndedError
from kasmon.model.commands import Launch, Sender
from kasmon.model.events import SessionEnded, SessionStarted, TurnEnded, TurnStarted
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.sandbox.managed.checkpoints import SandboxCheckpoints
from kasmon.sandbox.managed.idle_policy import DueStep, LifecycleStep, LifetimeTerms, MonotonicAge, due
from kasmon.sandbox.managed.sandbox import ManagedSandbox

Value = TypeVar("Value")
LONGEST_LOOK_S: Final = 60.0
"""The due time is checked at least this often, in seconds."""


class InterpreterLifecycle:
    """The lifecycle of one sandbox. Its turns start with `begin` and end with `finish`."""

    def __init__(
        self,
        launch: Launch,
        sandbox: ManagedSandbox,
        checkpoints: SandboxCheckpoints,
        terms: LifetimeTerms,
        event_queue: ThreadSafeEventQueue,
        threads: BlockingCalls,
        quiet_s: float,
    ) -> None:
        self.turns = TurnCounter(self.begin, self.finish, self.measure, quiet_s)
        self.is_ending = False
        self.arrived = asyncio.Event()
        """Set once it is known whether there is a sandbox."""
        self.lost = ""
        """What was lost since the last run; the result of the next run reports it."""
        self._launch = launch
        self._sandbox = sandbox
        self._checkpoints = checkpoints
        self._terms = terms
        self._event_queue = event_queue
        self._threads = threads
        self._turn_title = ""
        self._has_begun = False
        self._changed = asyncio.Event()
        self._clock = MonotonicAge()

    async def run(self, arrived: Callable[[], Awaitable[None]]) -> None:
        """Find or create the sandbox, then do what is due until it ends. *arrived* is awaited before anything runs."""
        try:
            async with self.turns.gate:
                self.lost = await self.move(self._sandbox.arrive)
            if self.is_ending:
                return
            self._report_start()
            await arrived()
        except KasmonError as error:
            self.report_end(error.message, None)
            return
        finally:
            self.arrived.set()
        while not self.is_ending:
            step = self._find_due_step()
            wait_s = LONGEST_LOOK_S if step is None else min(step.at - time.time(), LONGEST_LOOK_S)
            if wait_s <= 0:
                await self._run_due_step()
                continue
            self._changed.clear()
            await wait_within(wait_s, self._changed)

    def _report_start(self) -> None:
        runtime = self._sandbox.journal.sandbox_state.runtime
        self._has_begun = True
        self._event_queue.write(
            SessionStarted(
                at=time.time(),
                pid=runtime.pid or None if runtime else None,
                pid_started=runtime.started or None if runtime else None,
                resume_id=self._launch.session,
            )
        )

    async def resume_turn(self, what: str, by: str) -> None:
        """Begin a turn for what an earlier host started; no checkpoint is created before it.

        Raises:
            SandboxError: if there is no sandbox.
        """
        if not self._sandbox.runs:
            self.lost = await self.move(self._sandbox.wake) or self.lost
        if not self.turns.is_running:
            self._turn_title = what
            self._sandbox.journal.note(TurnStarted(at=time.time(), prompt=what))

    async def begin(self, what: str, by: str) -> None:
        """Make sure that the sandbox runs, and begin a turn if none is running.

        Raises:
            SessionEndedError: if the session is ending.
            SandboxError: if there is no sandbox.
        """
        if self.is_ending:
            raise SessionEndedError(self._launch.session)
        if not self._sandbox.runs:
            self.lost = await self.move(self._sandbox.wake) or self.lost
        if self.turns.is_running:
            return
        if self._checkpoints.wants_before:
            await self.move(self._checkpoints.create, "before", what)
        self._turn_title = what
        by_whom: Sender = "wave" if by == "wave" else "peer" if by == "peer" else "user"
        self._sandbox.journal.note(TurnStarted(at=time.time(), prompt=what, by=by_whom))

    async def finish(self, reason: Literal["done", "interrupted"]) -> None:
        """Create a checkpoint of the turn's result, and end the turn."""
        try:
            if not self.is_ending:
                await self.move(self._checkpoints.create, "after", self._turn_title)
        except KasmonError as error:
            self._sandbox.journal.add_notice(f"The sandbox's state has changed: {error.message}")
        self._sandbox.journal.note(TurnEnded(at=time.time(), reason=reason))
        self._changed.set()

    async def measure(self) -> None:
        """Record what the sandbox uses, if that changed; a failed measurement is ignored."""
        if self.is_ending:
            return
        with contextlib.suppress(KasmonError, OSError):
            await self._threads.work(self._sandbox.measure)

    async def move(self, act: Callable[..., Value], *arguments: Any, **named: Any) -> Value:
        """Return the result of *act*, which moves the sandbox. If no sandbox is left then, the session has ended."""
        try:
            return await self._threads.move(act, *arguments, **named)
        except KasmonError as error:
            if self._sandbox.phase is SandboxPhase.EXPIRED and not self._sandbox.journal.sandbox_state.is_intended:
                self.report_end(error.message, None)
            raise

    def check_may_wake(self) -> None:
        """Check that the sandbox may be used. Raises `RefusedError` if it is paused and must not be resumed on use."""
        if self._sandbox.phase is SandboxPhase.PAUSED and not self._terms.auto_resume:
            raise RefusedError(
                f"the sandbox of {self._launch.session!r} is paused, and is not resumed on use.",
                hint=f"`kasmon sandbox resume {self._launch.session}` resumes it.",
            )

    def check_due(self) -> None:
        self._changed.set()

    async def end(self, why: str) -> None:
        """End the sandbox, even during a run, and report it. Idempotent."""
        if self.is_ending:
            return
        self.is_ending = True
        self._changed.set()
        async with self.turns.gate:
            await self._end(why)

    def report_end(self, why: str, exit_code: int | None) -> None:
        """Report that the session has ended; calls that wait for its first turn are released."""
        self.is_ending = True
        self._changed.set()
        with contextlib.suppress(SandboxError):
            began = self._has_begun
            self._event_queue.write(SessionEnded(at=time.time(), exit_code=exit_code, why=why, never_began=not began))
        self._threads.close()

    async def _end(self, why: str) -> None:
        exit_code: int | None = 0
        await self.turns.aclose()
        try:
            await self._threads.move(self._sandbox.end, why)
            await self._threads.move(self._checkpoints.purge)
        except KasmonError as error:
            why, exit_code = f"{why}; {error.message}", None
        self.report_end(why, exit_code)

    def _find_due_step(self) -> DueStep | None:
        """Return what is due and when, independent of changes to the system clock."""
        sandbox_state, now = self._sandbox.journal.sandbox_state, time.time()
        used_at = self._clock.at("used", sandbox_state.used_at, now)
        born_at = self._clock.at("born", sandbox_state.born_at, now)
        return due(
            msgspec.structs.replace(sandbox_state, used_at=used_at, born_at=born_at),
            self._terms,
            keeps_memory=self._sandbox.tier.keeps_memory,
            in_turn=self.turns.is_running,
        )

    async def _run_due_step(self) -> None:
        """Do what is due, unless the sandbox was used meanwhile."""
        async with self.turns.none():
            step = self._find_due_step()
            if self.is_ending or step is None or step.at > time.time():
                return
            if step.step is LifecycleStep.END:
                self.is_ending = True
                await self._end(step.why)
                return
            try:
                await self.move(self._sandbox.sleep, to_disk=step.step is LifecycleStep.PAUSE, why=step.why)
            except KasmonError:
                return
            if self._sandbox.phase is not SandboxPhase.PAUSED:  # already logged; retried after the same delay
                self._sandbox.journal.apply(TurnEnded(at=time.time()))
