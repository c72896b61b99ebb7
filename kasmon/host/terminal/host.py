"""The shared host of all tmux sessions: the one process that talks to kasmon's tmux server and writes their logs.

It ends by itself when no agent runs and no client has called for a while; the next client starts it again.
"""

import asyncio
import contextlib
import logging
import os
import re
import resource
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kasmon import __version__
from kasmon.asyncio_tasks import wait_within
from kasmon.backends.common.environment import decoded
from kasmon.backends.tmux.terminal_backend import TmuxBackend
from kasmon.config import Config, load_or_default
from kasmon.errors import KasmonError, RefusedError, SessionNotFoundError, TmuxError
from kasmon.host.rpc import frames
from kasmon.host.rpc.control import ControlKind, HostStatus
from kasmon.host.rpc.host_lock import HostLock
from kasmon.host.rpc.locked_process import begin_process
from kasmon.host.rpc.server import ClientConnection, HostServer
from kasmon.host.session.prompts import REST_LOOK_S
from kasmon.host.terminal.session import TerminalSession
from kasmon.host.terminal.takeover import AdoptedServers, Takeover
from kasmon.model.commands import (
    Answer,
    Hibernate,
    Interrupt,
    Launch,
    Mode,
    Prompt,
    Requeue,
    SandboxCommand,
    Stop,
)
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.session_reader import load_launch

IDLE_S: Final = 60.0
"""How long an unneeded host waits for a client, in seconds."""
LOOKS: Final = 4
"""How often it checks within that time."""


class HostIdleTimer:
    """How long a host has not been needed."""

    def __init__(self, limit_s: float, now: float) -> None:
        self._limit_s = limit_s
        self._since = now

    def record_use(self, now: float) -> None:
        self._since = now

    def is_over(self, is_needed: bool, now: float) -> bool:
        """Whether it was not needed for the limit, and is not needed now."""
        if is_needed:
            self.record_use(now)
        return now - self._since >= self._limit_s and not is_needed


FINISH_S: Final = 30.0
"""How long a host that hands over may finish typed prompts and starts, in seconds; then it exits in any case."""
OPEN_FILES: Final = 8192
SESSION: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")

log = logging.getLogger(__name__)


class TmuxHost:
    """All tmux sessions of *here*. The caller holds the host's lock."""

    def __init__(
        self,
        here: Paths,
        config: Config | None = None,
        *,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*idle_s*: how long it waits while it is not needed, in seconds of *clock*."""
        self._paths = here
        self._idle_s = idle_s
        self._clock = clock
        self._idleness = HostIdleTimer(idle_s, clock())
        self._config = config or Config()
        self._backend = TmuxBackend(here, self._config.tmux, self._config.remote)
        self._adopted_servers = AdoptedServers(here, self._config.tmux, self._report_loss)
        self._terminals: dict[SessionId, TerminalSession] = {}
        self._tmux = ""
        self._end_requested = asyncio.Event()
        self._server: HostServer | None = None
        self._handing_over: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Take over running agents, then serve clients until ended, or no longer needed. Agents run on."""
        line = self._backend.line
        line.on_lost = lambda why: self._report_loss(self._backend, why)
        server = HostServer(self._paths.tmux_host_socket, self._receive, self._on_disconnected, self._control)
        self._server = server
        with contextlib.suppress(TmuxError):
            self._tmux = await asyncio.to_thread(line.server.version)
        try:
            await Takeover(self._paths, line, self._adopted_servers, self._terminal).run()
            await server.start()
            await self._serve(server)
        finally:
            await server.aclose()
            await asyncio.gather(*(terminal.let_go() for terminal in self._terminals.values()))
            await self._backend.aclose()
            await self._adopted_servers.aclose()

    def end(self) -> None:
        """End this host, cleanly and soon; agents run on."""
        self._end_requested.set()

    # -- control requests, for clients of any version

    def _control(self, kind: ControlKind) -> HostStatus:
        if kind is ControlKind.STOP:
            self.end()
        elif kind is ControlKind.HAND_OVER and self._handing_over is None:
            self._handing_over = asyncio.create_task(self._hand_over())
        return HostStatus(
            protocol=frames.VERSION,
            kasmon=__version__,
            pid=os.getpid(),
            is_busy=not self._is_at_rest,
            is_leaving=self._handing_over is not None or self._end_requested.is_set(),
        )

    @property
    def _is_at_rest(self) -> bool:
        is_working = self._server is not None and self._server.is_working
        return not is_working and all(terminal.is_resting for terminal in self._terminals.values())

    async def _hand_over(self) -> None:
        """Finish typed prompts and starts, accept nothing new, and end; the next host finds the agents in tmux."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                while True:
                    await asyncio.gather(*(terminal.rest() for terminal in list(self._terminals.values())))
                    if self._is_at_rest:
                        break
                    await asyncio.sleep(REST_LOOK_S)
        self.end()

    async def _serve(self, server: HostServer) -> None:
        """Return when ended, or idle for long. Nothing may be awaited from then until the server closes."""
        self._idleness.record_use(self._clock())
        while not self._end_requested.is_set():
            await wait_within(self._idle_s / LOOKS, self._end_requested)
            await self._tidy_foreigners()
            is_needed = server.is_busy or any(terminal.is_needed for terminal in self._terminals.values())
            if self._idleness.is_over(is_needed, self._clock()):
                return

    # -- sessions

    async def _tidy_foreigners(self) -> None:
        needed = [terminal.backend for terminal in self._terminals.values() if terminal.is_alive]
        await self._adopted_servers.tidy(needed)

    def _report_loss(self, backend: TmuxBackend, why: str) -> None:
        for terminal in self._terminals.values():
            if terminal.backend is backend:
                terminal.handle_server_loss(why)

    def _terminal(self, session: SessionId, launch: Launch | None = None) -> TerminalSession:
        """Return the session of that id; for a new one, *launch* shows whether it is in the user's own tmux."""
        if session not in self._terminals:
            is_foreign = launch is not None and launch.adopted is not None
            backend = self._adopted_servers.get_backend(launch) if launch is not None and is_foreign else self._backend
            self._terminals[session] = TerminalSession(self._paths, backend, session, self._config)
        return self._terminals[session]

    # -- client frames

    def _receive(
        self, connection: ClientConnection, frame: frames.FromClient
    ) -> Awaitable[frames.Frame | None] | frames.Frame | None:
        if self._handing_over is not None and isinstance(
            frame, frames.ExecuteCommand | frames.StartSession | frames.ReleasePane
        ):
            raise RefusedError(
                "nothing was done: the host hands over to another version of kasmon.",
                hint="Use the most recently installed version of kasmon.",
            )
        match frame:
            case frames.SendKeys() | frames.Paste():
                if (terminal := self._terminals.get(frame.session)) is not None:
                    terminal.type(connection, frame)
            case frames.Watch() | frames.Unwatch() | frames.Focus() | frames.Blur() | frames.Scroll():
                return self._show(connection, frame)
            case frames.ListForeignPanes():
                return self._adopted_servers.panes(frame, self._list_adopted())
            case frames.ExecuteCommand():
                return self._execute(connection, frame)
            case frames.Hello():
                return frames.Welcome(n=frame.n, pid=os.getpid(), kasmon=__version__, tmux=self._tmux)
            case frames.Quit():
                if connection.as_agent:
                    raise RefusedError("an agent cannot end the host.")
                self.end()
                return frames.CommandResult(n=frame.n)
            case _:
                return self._answer(connection, frame)
        return None

    def _show(self, connection: ClientConnection, frame: frames.ViewChange) -> Awaitable[frames.Frame | None] | None:
        if (terminal := self._terminals.get(frame.session)) is not None:
            terminal.show(connection, frame)
            return None

        async def show() -> frames.SubscriptionEnd | None:
            try:
                found = await self._load_terminal(frame.session)
            except KasmonError as error:
                return frames.SubscriptionEnd(session=frame.session, why=error.message)
            if connection.is_open:
                found.show(connection, frame)
            return None

        return show()

    async def _execute(self, connection: ClientConnection, frame: frames.ExecuteCommand) -> frames.CommandResult:
        terminal, command, receipt = await self._load_terminal(frame.session), frame.command, None
        if isinstance(command, SandboxCommand):
            await terminal.move(command)
            return frames.CommandResult(n=frame.n)
        runner, peer_pid = terminal.running, connection.peer_pid
        if isinstance(command, Hibernate):
            await runner.hibernate(command)
            return frames.CommandResult(n=frame.n)
        async with runner.executing(command):
            match command:
                case Prompt():
                    receipt = await runner.prompts.submit(await runner.services.add_actor(command, peer_pid))
                case Requeue():
                    await runner.services.check_requeue(command, peer_pid)
                    receipt = runner.prompts.requeue(command)
                case Answer():
                    await runner.answer(command, peer_pid, is_agents=connection.as_agent)
                case Stop() | Interrupt():
                    await runner.services.record_actor(command, peer_pid)
                    await runner.agent.send(command)
                case _:
                    await runner.agent.send(command)
        return frames.CommandResult(n=frame.n, receipt=receipt)

    async def _answer(self, connection: ClientConnection, frame: frames.SessionRequest) -> frames.Frame:
        terminal = await self._load_terminal(frame.session)
        match frame:
            case frames.StartSession(variables=variables):
                await terminal.start(decoded(variables))
            case frames.ReleasePane():
                await terminal.forget()
                self._terminals.pop(frame.session, None)
                await self._tidy_foreigners()
            case frames.RenameWindow(name=name):
                await terminal.rename(name)
            case frames.ReportContext() | frames.RecordComment() | frames.RecordPeerMessage() | frames.ProposeFinish():
                await terminal.running.services.record(frame, connection.peer_pid)
            case frames.ReadTerminal():
                return await terminal.read(frame)
            case frames.DescribePane():
                return await terminal.describe_pane(frame)
        return frames.CommandResult(n=frame.n)

    async def _load_terminal(self, session: SessionId) -> TerminalSession:
        """Return the session of that id. Raises `SessionNotFoundError` if there is no such session of tmux."""
        if session not in self._terminals:
            launch = await asyncio.to_thread(self._load_launch, session)
            terminal = self._terminal(session, launch)
            line = terminal.backend.line
            with contextlib.suppress(KasmonError):
                if line.is_open and (facts := (await line.panes()).get(session)) is not None:
                    terminal.use_pane(facts.pane_id, facts.window_id)
        return self._terminals.get(session) or self._terminal(session)

    def _list_adopted(self) -> dict[tuple[str, str], str]:
        return {
            place: id_ for id_, terminal in self._terminals.items() if (place := terminal.foreign_place) is not None
        }

    def _load_launch(self, session: SessionId) -> Launch:
        is_here = SESSION.fullmatch(session) and not self._paths.via(session).exists()
        if not is_here or not self._paths.folder(session).is_dir():
            raise SessionNotFoundError(session)
        launch = load_launch(self._paths, session)
        if launch.mode is not Mode.TMUX:
            raise RefusedError(f"session {session!r} is structured; it has its own host.")
        return launch

    def _on_disconnected(self, connection: ClientConnection) -> None:
        self._idleness.record_use(self._clock())
        for terminal in self._terminals.values():
            terminal.leave(connection)


def main(handle: int | None = None) -> int:
    """Run the shared tmux host until it is ended; return 0 at once if there is one already.

    *handle*: of its lock, if its starter has taken that.
    """
    paths = begin_process()
    paths.make()
    lock = HostLock(paths.tmux_host_lock, handle)
    if not lock.acquire():
        return 0
    try:
        _raise_file_limit()
        asyncio.run(_run_host(TmuxHost(paths, load_or_default(paths, log.warning))))
    finally:
        lock.let_go()
    return 0


async def _run_host(host: TmuxHost) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, host.end)
    await host.run()


def _raise_file_limit() -> None:
    """Raise the limit of open files, if the system allows it: each running session needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
