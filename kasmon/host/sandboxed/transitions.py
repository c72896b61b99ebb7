"""The sandbox of an agent inside is put to sleep, woken, ended: each step is noted before it is taken, and once it was.

So a host that comes after one that was killed in between knows what may have been done.
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
from kasmon.paths import Paths
from kasmon.sandbox.agent import launch as sandboxed_agent
from kasmon.sandbox.base import PauseResult
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.managed.lifecycle import LifetimeTerms

WRITTEN_S: Final = 2.0
"""How long an intent waits for the log, in seconds."""
FOREVER: Final = LifetimeTerms(standby_after_s=0.0, idle_timeout_s=0.0, max_lifetime_s=0.0)


class SandboxTransitions:
    """The steps of the sandbox of *launch*. One at a time, please."""

    def __init__(self, places: Paths, launch: Launch, log_writer: LogWriter) -> None:
        self.terms = FOREVER
        """How long it is kept, by which it is told what comes next."""
        self.keeps_memory = False
        """Whether it can be paused to disk."""
        self.can_sleep = True
        """Whether it can be put to sleep at all."""
        self._tier: LoggedTier = launch.sandbox or "jail"
        self._places = places
        self._session = launch.session
        self._log_writer = log_writer

    @property
    def housing(self) -> SandboxState:
        """The sandbox by the facts so far."""
        return self._log_writer.session.housing or SandboxState()

    async def learn(self) -> None:
        """Look whether it can be paused to disk, and sleep at all."""
        self.keeps_memory = await asyncio.to_thread(sandboxed_agent.keeps_memory, self._places, self._session)
        self.can_sleep = await asyncio.to_thread(sandboxed_agent.can_pause, self._places, self._session)

    def told(self, used_at: float) -> None:
        """Note what comes next now that it was last used at *used_at*, in seconds since the epoch."""
        self._journal.move(SandboxPhase.RUNNING, used_at=used_at)

    def warn(self, text: str) -> None:
        """Note *text* for people."""
        self._journal.tell(text)

    async def freeze(self, why: str, *, to_disk: bool = False) -> None:
        """Put it to sleep, its memory held; or *to_disk*, and no process of it is left.

        Raises:
            RefusedError: if it is not known where it lives.
            UnableError: for *to_disk*, where that cannot be.
            SandboxError: if it was not put to sleep; it goes on.
        """
        runtime, held = self._runtime(), not to_disk
        self._journal.move(SandboxPhase.PAUSING, intended=True, held=held, why=why)
        try:
            if not await self._log_writer.written(WRITTEN_S):
                raise SandboxError("its sandbox was not paused", "the log is not writable")
            slept = await asyncio.to_thread(self._freeze, runtime, to_disk)
        except OSError as error:  # nobody knows how far it came, as on a full disk
            with contextlib.suppress(KasmonError, OSError):
                runtime = await asyncio.to_thread(sandboxed_agent.resume, self._places, self._session, runtime)
            self._journal.move(SandboxPhase.RUNNING, runtime=self._fronted(runtime))
            raise SandboxError("its sandbox was not paused", str(error)) from error
        except KasmonError:
            self._journal.move(SandboxPhase.RUNNING)
            raise
        self._journal.move(SandboxPhase.PAUSED, held=slept.held, snapshot=slept.snapshot, why=why)

    def _freeze(self, runtime: SandboxRuntime, to_disk: bool) -> PauseResult:
        turn = self.housing.turn
        return sandboxed_agent.pause(self._places, self._session, runtime, to_disk=to_disk, turn=turn)

    def _fronted(self, runtime: SandboxRuntime) -> SandboxRuntime:
        """*runtime* behind the process that stands in front of it."""
        known = self.housing.runtime
        return msgspec.structs.replace(runtime, front=known.front) if known is not None else runtime

    async def thaw(self, why: str = "") -> None:
        """Let it go on. Where nothing can be written down it does so all the same: nothing is lost by that.

        Raises:
            RefusedError: if it is not known where it lives.
            SnapshotRefusedError: if its memory on disk may not be gone on from.
            SandboxError: if it cannot; it sleeps on.
        """
        before = self.housing
        runtime, held, snapshot = self._runtime(), before.held, before.snapshot
        self._journal.move(SandboxPhase.RESUMING, intended=True, held=held, snapshot=snapshot)
        await self._log_writer.written(WRITTEN_S)
        try:
            runtime = await self._wake(runtime, before)
        except KasmonError:
            self._journal.move(SandboxPhase.PAUSED, held=held, snapshot=snapshot)
            raise
        self._journal.move(SandboxPhase.RUNNING, runtime=runtime, why=why)

    async def expire(self, why: str) -> None:
        """Make ready for its end, for the reason *why*: whoever is in it hears signals when this returns.

        Raises:
            RefusedError: if it is not known where it lives.
            SandboxError: if nothing can be written down; it is as it was. Or if those inside still stand still.
        """
        runtime, before = self._runtime(), self.housing
        self._journal.move(SandboxPhase.EXPIRED, intended=True, why=why)
        if not await self._log_writer.written(WRITTEN_S):
            self._journal.move(before.phase, intended=before.is_intended, held=before.held, why=before.why)
            raise SandboxError("its sandbox was not ended", "the log is not writable")
        if before.phase is not SandboxPhase.RUNNING and before.held:
            await self._wake(runtime, before)

    async def _wake(self, runtime: SandboxRuntime, before: SandboxState) -> SandboxRuntime:
        """Where it lives once it goes on."""
        slept = PauseResult(held=before.held, snapshot=before.snapshot) if before.phase is SandboxPhase.PAUSED else None
        try:
            goes_on = await asyncio.to_thread(sandboxed_agent.resume, self._places, self._session, runtime, slept)
            return self._fronted(goes_on)
        except OSError as error:
            raise SandboxError("its sandbox cannot be resumed", str(error)) from error

    @property
    def _journal(self) -> SandboxJournal:
        """What the pen knows by now, and writes down."""

        def write(event: Event) -> None:
            self._log_writer.note(event, durable=must_be_on_disk(event))

        return SandboxJournal(
            self._log_writer.session.housing, write, tier=self._tier, keeps_memory=self.keeps_memory, terms=self.terms
        )

    def _runtime(self) -> SandboxRuntime:
        runtime = self.housing.runtime
        if runtime is None:
            raise RefusedError(f"the sandbox of session {self._session!r} is not ready yet.")
        return runtime
