"""The shared host of all tmux sessions: the one process that talks to our tmux server, and that writes their logs.

It ends by itself when no agent runs and nobody has called for a while; whoever needs it next starts it again.
"""

import asyncio
import contextlib
import logging
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kasmon import __version__
from kasmon.backends.surroundings import decoded
from kasmon.backends.tmux import TmuxBackend
from kasmon.backends.tmux.adopted import AdoptedBackend
from kasmon.config import Config, in_force
from kasmon.errors import KasmonError, RefusedError, SessionNotFoundError, TmuxError
from kasmon.host import handed, own_log
from kasmon.host.alive import HostLock
from kasmon.host.book import wanted
from kasmon.host.connection import Connection
from kasmon.host.foreign import Foreigners
from kasmon.host.heir import Heir
from kasmon.host.idle import IDLE_S, LOOKS, Idleness
from kasmon.host.server import HostServer
from kasmon.host.tenant import Tenant
from kasmon.host.vigil import limits_of
from kasmon.host.wire import (
    Blur,
    Do,
    Done,
    Focus,
    Foreign,
    Forget,
    Frame,
    FromClient,
    Gone,
    Hello,
    Keys,
    Look,
    Paste,
    Quit,
    Read,
    Rename,
    Say,
    Scroll,
    Start,
    Unwatch,
    Watch,
    Welcome,
)
from kasmon.model.command import Launch, Mode, SandboxWish
from kasmon.model.permission import SessionId
from kasmon.paths import Places, places

OPEN_FILES: Final = 8192
SESSION: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")

log = logging.getLogger(__name__)


class Terminals:
    """All tmux sessions of *here*. The caller holds the host's lock."""

    def __init__(
        self,
        here: Places,
        config: Config | None = None,
        *,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*idle_s*: how long it waits for somebody who needs it, in seconds of *clock*."""
        self._places = here
        self._idle_s = idle_s
        self._clock = clock
        self._idleness = Idleness(idle_s, clock())
        config = config or Config()
        self._backend = TmuxBackend(here, config.tmux, config.remote)
        self._foreigners = Foreigners(here, config.tmux, self._lost_foreign)
        self._stuck = limits_of(config.limits)
        self._record_bytes = int(config.search.record_mb * 1_000_000) if config.search.record else 0
        self._tenants: dict[SessionId, Tenant] = {}
        self._tmux = ""
        self._told_to_end = asyncio.Event()

    async def run(self) -> None:
        """Take over what runs, then do what clients want until told to end, or not needed any more. Agents go on."""
        line = self._backend.line
        line.on_lost = self._lost
        server = HostServer(self._places.tmux_host_socket, self._receive, self._left)
        with contextlib.suppress(TmuxError):
            self._tmux = await asyncio.to_thread(line.server.version)
        try:
            await Heir(self._places, line, self._foreigners, self._tenant).take_over()
            await server.start()
            await self._serve(server)
        finally:
            await server.aclose()
            await asyncio.gather(*(tenant.let_go() for tenant in self._tenants.values()))
            await self._backend.aclose()
            await self._foreigners.aclose()

    def end(self) -> None:
        """End this host, cleanly and soon; agents go on."""
        self._told_to_end.set()

    async def _serve(self, server: HostServer) -> None:
        """Return when told to end, or idle for long. Nothing may be awaited from then until the server closes."""
        self._idleness.used(self._clock())
        while not self._told_to_end.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._idle_s / LOOKS):
                    await self._told_to_end.wait()
            await self._tidy_foreigners()
            is_needed = server.is_busy or any(tenant.is_needed for tenant in self._tenants.values())
            if self._idleness.is_over(is_needed, self._clock()):
                return

    # -- who lives here

    async def _tidy_foreigners(self) -> None:
        needed = [tenant.backend for tenant in self._tenants.values() if tenant.is_alive]
        await self._foreigners.tidy(needed)

    def _lost(self, why: str) -> None:
        self._lost_by(self._backend, why)

    def _lost_foreign(self, backend: AdoptedBackend, why: str) -> None:
        self._lost_by(backend, why)

    def _lost_by(self, backend: TmuxBackend, why: str) -> None:
        for tenant in self._tenants.values():
            if tenant.backend is backend:
                tenant.lost(why)

    def _tenant(self, session: SessionId, launch: Launch | None = None) -> Tenant:
        """The tenant of that id; where it is new, *launch* says whether it lives in the user's own tmux."""
        if session not in self._tenants:
            is_foreign = launch is not None and launch.adopted is not None
            backend = self._foreigners.of(launch) if launch is not None and is_foreign else self._backend
            self._tenants[session] = Tenant(self._places, backend, session, self._stuck, self._record_bytes)
        return self._tenants[session]

    # -- what clients want

    def _receive(self, connection: Connection, frame: FromClient) -> Awaitable[Frame | None] | Frame | None:
        match frame:
            case Keys() | Paste():
                if (tenant := self._tenants.get(frame.session)) is not None:
                    tenant.type(connection, frame)
            case Watch() | Unwatch() | Focus() | Blur() | Scroll():
                return self._show(connection, frame)
            case Foreign():
                return self._foreigners.panes(frame, self._adopted())
            case Hello():
                return Welcome(n=frame.n, pid=os.getpid(), kasmon=__version__, tmux=self._tmux)
            case Quit():
                if connection.as_agent:
                    raise RefusedError("an agent does not end the host.")
                self.end()
                return Done(n=frame.n)
            case _:
                return self._answer(connection, frame)
        return None

    def _show(
        self, connection: Connection, frame: Watch | Unwatch | Focus | Blur | Scroll
    ) -> Awaitable[Frame | None] | None:
        if (tenant := self._tenants.get(frame.session)) is not None:
            tenant.show(connection, frame)
            return None

        async def show() -> Gone | None:
            try:
                found = await self._found(frame.session)
            except KasmonError as error:
                return Gone(session=frame.session, why=error.message)
            if connection.is_open:
                found.show(connection, frame)
            return None

        return show()

    async def _answer(self, connection: Connection, frame: Do | Start | Forget | Rename | Say | Read | Look) -> Frame:
        tenant = await self._found(frame.session)
        match frame:
            case Do(wish=wish):
                if isinstance(wish, SandboxWish):
                    await tenant.move(wish)
                    return Done(n=frame.n)
                return Done(n=frame.n, receipt=await tenant.do(wish, connection))
            case Start(variables=variables):
                await tenant.start(decoded(variables))
            case Forget():
                await tenant.forget()
                self._tenants.pop(frame.session, None)
                await self._tidy_foreigners()
            case Rename(name=name):
                await tenant.rename(name)
            case Say():
                await tenant.say(frame)
            case Read():
                return await tenant.read(frame)
            case Look():
                return await tenant.look(frame)
        return Done(n=frame.n)

    async def _found(self, session: SessionId) -> Tenant:
        """The tenant of that id.

        Raises:
            SessionNotFoundError: if there is no such session of tmux.
        """
        if session not in self._tenants:
            launch = await asyncio.to_thread(self._known, session)
            tenant = self._tenant(session, launch)
            line = tenant.backend.line
            with contextlib.suppress(KasmonError):
                if line.is_open and (facts := (await line.panes()).get(session)) is not None:
                    tenant.settle(facts.pane_id, facts.window_id)
        return self._tenants.get(session) or self._tenant(session)

    def _adopted(self) -> dict[tuple[str, str], str]:
        """The sessions that live in the user's own tmux, by socket and pane."""
        return {place: id_ for id_, tenant in self._tenants.items() if (place := tenant.foreign_place) is not None}

    def _known(self, session: SessionId) -> Launch:
        if not SESSION.fullmatch(session) or not self._places.folder(session).is_dir():
            raise SessionNotFoundError(session)
        launch = wanted(self._places, session)
        if launch.mode is not Mode.TMUX:
            raise RefusedError(f"session {session!r} is structured; it has a host of its own.")
        return launch

    def _left(self, connection: Connection) -> None:
        self._idleness.used(self._clock())
        for tenant in self._tenants.values():
            tenant.leave(connection)


def main() -> int:
    """Be the shared tmux host until told to end; 0 at once if there is one already."""
    os.umask(0o077)
    own_log.keep()
    handed.take()
    here = places()
    here.make()
    lock = HostLock(here.tmux_host_lock)
    if not lock.take():
        return 0
    try:
        _widen()
        asyncio.run(_hosted(Terminals(here, in_force(here, log.warning))))
    finally:
        lock.let_go()
    return 0


async def _hosted(host: Terminals) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, host.end)
    await host.run()


def _widen() -> None:
    """Allow us more open files, if the system lets us: each session that runs needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
