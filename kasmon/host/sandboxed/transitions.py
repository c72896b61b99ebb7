"""The steps to pause, resume and end an agent's sandbox: each is noted before it is taken, and when it is done.

So a host that follows one that was killed in between knows what may have been done.
"""

import asyncio
import contextlib
from typing import Final

import msgspec

from kasmon.errors import KasmonError, RefusedError, SandboxError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.model.commands import Launch
from kasmon.model.events import Event
from kasmon.model.sandbox.policy import LoggedTier, SandboxPhase, SandboxRuntime
from kasmon.model.sandbox.state import SandboxState, must_be_on_disk
from kasmon.sandbox.agent import launch as sandboxed_agent
from kasmon.sandbox.base import PauseResult
from kasmon.sandbox.managed.idle_policy import LifetimeTerms
from kasmon.sandbox.managed.journal import SandboxJournal

WRITTEN_S: Final = 2.0
"""How long an intent waits for the log, in seconds."""
FOREVER: Final = LifetimeTerms(standby_after_s=0.0, idle_timeout_s=0.0, max_lifetime_s=0.0)


class SandboxTransitions:
    """The steps of the sandbox of *launch*. Call one at a time."""

    def __init__(self, launch: Launch, log_writer: LogWriter) -> None:
        self.terms = FOREVER
        self.keeps_memory = False
        """Whether it can be paused to disk."""
        self.can_pause = True
        self._tier: LoggedTier = launch.sandbox or "jail"
        self._paths = log_writer.session_log.paths
        self._session = launch.session
        self._log_writer = log_writer

    @property
    def sandbox_state(self) -> SandboxState:
        """The sandbox's state by the events so far."""
        return self._log_writer.session.sandbox_state or SandboxState()

    async def load(self) -> None:
        """Find out whether it can be paused to disk, and paused at all."""
        self.keeps_memory = await asyncio.to_thread(sandboxed_agent.keeps_memory, self._paths, self._session)
        self.can_pause = await asyncio.to_thread(sandboxed_agent.can_pause, self._paths, self._session)

    def note_deadlines(self, used_at: float) -> None:
        """Note the deadlines after its last use at *used_at*, in seconds since the epoch."""
        self._journal.move(SandboxPhase.RUNNING, used_at=used_at)

    def warn(self, text: str) -> None:
        self._journal.add_notice(text)

    async def pause(self, why: str, *, to_disk: bool = False) -> None:
        """Pause it, its memory held; or *to_disk*, without any process left.

        Raises:
            RefusedError: if its runtime is not known yet.
            UnableError: for *to_disk*, if that is not possible.
            SandboxError: if it was not paused; it runs on.
        """
        runtime, held = self._runtime(), not to_disk
        self._journal.move(SandboxPhase.PAUSING, intended=True, held=held, why=why)
        try:
            if not await self._log_writer.wait_for_write(WRITTEN_S):
                raise SandboxError("its sandbox was not paused", "the log is not writable")
            of, turn = (self._paths, self._session, runtime), self.sandbox_state.turn
            paused = await asyncio.to_thread(sandboxed_agent.pause, *of, to_disk=to_disk, turn=turn)
        except OSError as error:  # unknown how far it came, as on a full disk
            with contextlib.suppress(KasmonError, OSError):
                runtime = await asyncio.to_thread(sandboxed_agent.resume, self._paths, self._session, runtime)
            self._journal.move(SandboxPhase.RUNNING, runtime=self._with_front(runtime))
            raise SandboxError("its sandbox was not paused", str(error)) from error
        except KasmonError:
            self._journal.move(SandboxPhase.RUNNING)
            raise
        self._journal.move(SandboxPhase.PAUSED, held=paused.held, snapshot=paused.snapshot, why=why)

    def _with_front(self, runtime: SandboxRuntime) -> SandboxRuntime:
        known = self.sandbox_state.runtime
        return msgspec.structs.replace(runtime, front=known.front) if known is not None else runtime

    async def resume(self, why: str = "") -> None:
        """Resume it, even if the log cannot be written: nothing is lost by that.

        Raises:
            RefusedError: if its runtime is not known yet.
            SnapshotRefusedError: if its snapshot must not be resumed.
            SandboxError: if resuming fails; it stays paused.
        """
        before = self.sandbox_state
        runtime, held, snapshot = self._runtime(), before.held, before.snapshot
        self._journal.move(SandboxPhase.RESUMING, intended=True, held=held, snapshot=snapshot)
        await self._log_writer.wait_for_write(WRITTEN_S)
        try:
            runtime = await self._resume(runtime, before)
        except KasmonError:
            self._journal.move(SandboxPhase.PAUSED, held=held, snapshot=snapshot)
            raise
        self._journal.move(SandboxPhase.RUNNING, runtime=runtime, why=why)

    async def expire(self, why: str) -> None:
        """Prepare its end, for the reason *why*: its processes can receive signals when this returns.

        Raises:
            RefusedError: if its runtime is not known yet.
            SandboxError: if the log cannot be written, and nothing changed; or if its processes are still frozen.
        """
        runtime, before = self._runtime(), self.sandbox_state
        self._journal.move(SandboxPhase.EXPIRED, intended=True, why=why)
        if not await self._log_writer.wait_for_write(WRITTEN_S):
            self._journal.move(before.phase, intended=before.is_intended, held=before.held, why=before.why)
            raise SandboxError("its sandbox was not ended", "the log is not writable")
        if before.phase is not SandboxPhase.RUNNING and before.held:
            await self._resume(runtime, before)

    async def _resume(self, runtime: SandboxRuntime, before: SandboxState) -> SandboxRuntime:
        paused = None
        if before.phase is SandboxPhase.PAUSED:
            paused = PauseResult(held=before.held, snapshot=before.snapshot)
        try:
            resumed = await asyncio.to_thread(sandboxed_agent.resume, self._paths, self._session, runtime, paused)
            return self._with_front(resumed)
        except OSError as error:
            raise SandboxError("its sandbox cannot be resumed", str(error)) from error

    @property
    def _journal(self) -> SandboxJournal:
        def write(event: Event) -> None:
            self._log_writer.note(event, durable=must_be_on_disk(event))

        return SandboxJournal(
            self._log_writer.session.sandbox_state,
            write,
            tier=self._tier,
            keeps_memory=self.keeps_memory,
            terms=self.terms,
        )

    def _runtime(self) -> SandboxRuntime:
        runtime = self.sandbox_state.runtime
        if runtime is None:
            raise RefusedError(f"the sandbox of session {self._session!r} is not ready yet.")
        return runtime
