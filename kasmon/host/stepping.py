"""The sandbox of an agent inside is put to sleep, woken, ended: each step is noted before it is taken, and once it was.

So a host that comes after one that was killed in between knows what may have been done.
"""

import asyncio
import contextlib
from typing import Final

from kasmon.errors import KasmonError, RefusedError, SandboxError
from kasmon.host.pen import Pen
from kasmon.model.command import Launch
from kasmon.model.event import Event
from kasmon.model.housing import Housing, must_be_on_disk
from kasmon.model.sandbox import Phase, Runtime
from kasmon.paths import Places
from kasmon.sandbox import inmate
from kasmon.sandbox.journal import Journal
from kasmon.sandbox.lifecycle import Terms

WRITTEN_S: Final = 2.0
"""How long an intent waits for the log, in seconds."""
FOREVER: Final = Terms(standby_after_s=0.0, idle_timeout_s=0.0, max_lifetime_s=0.0)


class Steps:
    """The steps of the sandbox of *launch*. One at a time, please."""

    def __init__(self, places: Places, launch: Launch, pen: Pen) -> None:
        self.terms = FOREVER
        """How long it is kept, by which it is told what comes next."""
        self._places = places
        self._session = launch.session
        self._pen = pen

    @property
    def housing(self) -> Housing:
        return self._pen.session.housing or Housing()

    def told(self, used_at: float) -> None:
        """Note what comes next now that it was last used at *used_at*, in seconds since the epoch."""
        self._journal.move(Phase.RUNNING, used_at=used_at)

    def warn(self, text: str) -> None:
        """Note *text* for people."""
        self._journal.tell(text)

    async def freeze(self, why: str) -> None:
        """Put it to sleep, its memory held.

        Raises:
            RefusedError: if it is not known where it lives.
            SandboxError: if it was not put to sleep; it goes on.
        """
        runtime = self._runtime()
        self._journal.move(Phase.PAUSING, intended=True, held=True, why=why)
        try:
            if not await self._pen.written(WRITTEN_S):
                raise SandboxError("its sandbox was not put to sleep", "that cannot be written down")
            await asyncio.to_thread(inmate.freeze, self._places, self._session, runtime)
        except OSError as error:  # nobody knows how far it came, as on a full disk
            with contextlib.suppress(KasmonError, OSError):
                await asyncio.to_thread(inmate.thaw, self._places, self._session, runtime)
            self._journal.move(Phase.RUNNING)
            raise SandboxError("its sandbox was not put to sleep", str(error)) from error
        except KasmonError:
            self._journal.move(Phase.RUNNING)
            raise
        self._journal.move(Phase.PAUSED, held=True, why=why)

    async def thaw(self, why: str = "") -> None:
        """Let it go on. Where nothing can be written down it does so all the same: nothing is lost by that.

        Raises:
            RefusedError: if it is not known where it lives.
            SandboxError: if it cannot; it sleeps on.
        """
        runtime = self._runtime()
        self._journal.move(Phase.RESUMING, intended=True, held=True)
        await self._pen.written(WRITTEN_S)
        try:
            await self._wake(runtime)
        except KasmonError:
            self._journal.move(Phase.PAUSED, held=True)
            raise
        self._journal.move(Phase.RUNNING, why=why)

    async def expire(self, why: str) -> None:
        """Make ready for its end, for the reason *why*: whoever is in it hears signals when this returns.

        Raises:
            RefusedError: if it is not known where it lives.
            SandboxError: if nothing can be written down; it is as it was. Or if those inside still stand still.
        """
        runtime, before = self._runtime(), self.housing
        self._journal.move(Phase.EXPIRED, intended=True, why=why)
        if not await self._pen.written(WRITTEN_S):
            self._journal.move(before.phase, intended=before.is_intended, held=before.held, why=before.why)
            raise SandboxError("its sandbox was not ended", "that cannot be written down")
        if before.phase is not Phase.RUNNING:
            await self._wake(runtime)

    async def _wake(self, runtime: Runtime) -> None:
        try:
            await asyncio.to_thread(inmate.thaw, self._places, self._session, runtime)
        except OSError as error:
            raise SandboxError("its sandbox does not go on", str(error)) from error

    @property
    def _journal(self) -> Journal:
        """What the pen knows by now, and writes down."""

        def write(event: Event) -> None:
            self._pen.note(event, durable=must_be_on_disk(event))

        return Journal(self._pen.session.housing, write, tier="jail", keeps_memory=False, terms=self.terms)

    def _runtime(self) -> Runtime:
        runtime = self.housing.runtime
        if runtime is None:
            raise RefusedError(f"the sandbox of session {self._session!r} is not known yet.")
        return runtime
