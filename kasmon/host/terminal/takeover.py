"""How a new tmux host takes over what an earlier one left: recovers running agents, and logs the ends of others."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from kasmon.backends.tmux.adopted_backend import AdoptedBackend, list_adoptable_panes
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.backends.tmux.terminal_backend import TmuxBackend
from kasmon.boot_id import boot
from kasmon.config import Tmux
from kasmon.errors import LaunchError, LogMissingError, RefusedError, TmuxError
from kasmon.host.rpc.frames import ForeignPanes, ListForeignPanes
from kasmon.host.terminal.agent_runner import write_off
from kasmon.host.terminal.session import TerminalSession
from kasmon.model.commands import Launch, Mode
from kasmon.model.events import ConnectionLost, SessionEnded, SessionForgotten
from kasmon.model.permission import SessionId
from kasmon.model.session import Session, created
from kasmon.model.session_state import OVER, SessionState
from kasmon.paths import Paths
from kasmon.process_identity import started_at
from kasmon.store.event_log import EventLog
from kasmon.store.session_reader import apply_log, load_launch
from kasmon.tmux.control import requests as ask
from kasmon.tmux.formats import PaneFacts


class AdoptedServers:
    """The backends of these servers, by socket. *on_lost* is called with a backend whose server is gone, and why."""

    def __init__(self, paths: Paths, settings: Tmux, on_lost: Callable[[AdoptedBackend, str], None]) -> None:
        self._paths = paths
        self._settings = settings
        self._on_lost = on_lost
        self._backends: dict[str, AdoptedBackend] = {}

    def get_backend(self, launch: Launch) -> AdoptedBackend:
        """Return the backend of the server that *launch*, of an adopted session, names."""
        assert launch.adopted is not None
        socket = launch.adopted.socket
        if socket not in self._backends:
            backend = AdoptedBackend(self._paths, self._settings, Path(socket))
            backend.line.on_lost = lambda why: self._on_lost(backend, why)
            self._backends[socket] = backend
        return self._backends[socket]

    async def panes(self, frame: ListForeignPanes, adopted: Mapping[tuple[str, str], str]) -> ForeignPanes:
        """Return the panes that could be adopted at the socket of *frame*; *adopted* has those that are, by socket and
        pane.

        Raises:
            RefusedError: if that is kasmon's own tmux.
            NotFoundError, TmuxError: if no tmux answers there.
        """
        socket = Path(frame.socket)
        if socket == self._paths.tmux_socket:
            raise RefusedError("this is kasmon's own tmux: its sessions are already listed.")
        process, found = await asyncio.to_thread(list_adoptable_panes, socket, self._paths.runtime)
        panes = tuple(msgspec.structs.replace(one, adopted=adopted.get((frame.socket, one.pane), "")) for one in found)
        return ForeignPanes(n=frame.n, server_pid=process.pid, server_started=process.started, panes=panes)

    async def tidy(self, needed: Collection[TmuxBackend]) -> None:
        """Close all connections except those *needed*."""
        for socket, backend in list(self._backends.items()):
            if backend not in needed:
                del self._backends[socket]
                await backend.aclose()

    async def aclose(self) -> None:
        """Close all connections; the servers run on. Idempotent."""
        for backend in self._backends.values():
            await backend.aclose()


class TakeoverOutcome(StrEnum):
    """What happened to a session while it had no host."""

    NOTHING = "nothing"
    """It did not run, and does not."""
    FOUND = "found"
    """Its pane exists: its agent runs, or ended in it."""
    GONE = "gone"
    """Its pane alone is gone."""
    LOST = "lost"
    """The tmux server that it ran in is gone."""


class OrphanedSession(msgspec.Struct, frozen=True):
    """One session as an earlier host left it."""

    launch: Launch
    session: Session


class TakeoverSurvey(msgspec.Struct, frozen=True):
    """All tmux sessions that have a folder."""

    left: tuple[OrphanedSession, ...]
    forgotten: frozenset[str]


def survey(paths: Paths) -> TakeoverSurvey:
    """Read the state of every tmux session from its log. An unreadable folder is skipped, and logged."""
    forgotten = _forgotten(paths)
    left: list[OrphanedSession] = []
    for folder in sorted(paths.sessions.iterdir()):
        if folder.name in forgotten or not folder.is_dir():
            continue
        session = SessionId(folder.name)
        if paths.via(session).exists():  # its pane is on another machine
            continue
        try:
            launch = load_launch(paths, session)
        except LaunchError as error:
            log.warning("session %s is left alone: %s", session, error)
            continue
        if launch.mode is Mode.TMUX:
            now, _ = apply_log(paths, created(launch, launch.created_at))
            left.append(OrphanedSession(launch, now))
    return TakeoverSurvey(tuple(left), forgotten)


def outcome_of(
    session: Session, facts: PaneFacts | None, server_started: float | None, of_boot: str
) -> TakeoverOutcome:
    """Return what happened to *session*, with the pane *facts* if that exists. Pure.

    Args:
        server_started: when today's tmux server began, on the clock of `Session.pid_started`; None if there is none.
        of_boot: today's boot of the machine, as in `Session.pid_boot`.
    """
    if facts is not None and not facts.is_dead:
        return TakeoverOutcome.FOUND  # even if its log does not show that: a killed host may not have logged it
    if not session.generation or session.state in OVER:
        return TakeoverOutcome.NOTHING
    if facts is not None:
        return TakeoverOutcome.FOUND
    if session.state is SessionState.LOST:
        return TakeoverOutcome.NOTHING
    if server_started is None or (session.pid_started is not None and server_started > session.pid_started):
        return TakeoverOutcome.LOST
    if session.pid_boot and session.pid_boot != of_boot:
        return TakeoverOutcome.LOST
    return TakeoverOutcome.GONE


def strays(survey_result: TakeoverSurvey, panes: Mapping[str, PaneFacts]) -> tuple[list[PaneFacts], list[PaneFacts]]:
    """Return dead panes of forgotten sessions, which can be ended; and other panes that belong to no session. Pure."""
    known = {left.launch.session for left in survey_result.left}
    unknown = {session: facts for session, facts in panes.items() if session not in known}
    dead = [facts for session, facts in unknown.items() if facts.is_dead and session in survey_result.forgotten]
    return dead, [facts for facts in unknown.values() if facts not in dead]


def _forgotten(paths: Paths) -> frozenset[str]:
    try:
        events = EventLog(paths.fleet_log).read()
        return frozenset(event.session for event, _ in events if isinstance(event, SessionForgotten))
    except LogMissingError:
        return frozenset()


log = logging.getLogger(__name__)


class Takeover:
    """Takes over the sessions of *here*; *terminal* returns the one of an id and its launch, as `TmuxHost` has it."""

    def __init__(
        self,
        here: Paths,
        line: ServerConnection,
        adopted_servers: AdoptedServers,
        terminal: Callable[[SessionId, Launch], TerminalSession],
    ) -> None:
        self._paths, self._line, self._adopted_servers, self._terminal = here, line, adopted_servers, terminal

    async def run(self) -> None:
        """Take over running agents, and log the outcome of the others."""
        survey_result = await asyncio.to_thread(survey, self._paths)
        panes: dict[str, PaneFacts] = {}
        line, began = self._line, None
        lost = ConnectionLost(at=time.time(), what="tmux server", why="it ended while no host was running")
        try:
            if await line.attach():
                panes = await line.panes()
                began = await asyncio.to_thread(started_at, line.process.pid) if line.process else None
        except TmuxError as error:  # unknown what runs: no pane is known to be gone
            log.warning("tmux cannot be used: %s", error)
            lost = ConnectionLost(at=time.time(), what="line to tmux", why=error.message)
        of_boot = await asyncio.to_thread(boot)
        for orphan in survey_result.left:
            if orphan.launch.adopted is not None:
                await self._recover_adopted(orphan)
                continue
            session, facts = orphan.launch.session, panes.get(orphan.launch.session)
            outcome = outcome_of(orphan.session, facts, began, of_boot)
            if orphan.launch.machine and outcome is not TakeoverOutcome.FOUND:
                await self._recover_remote(orphan, facts)
                continue
            match outcome:
                case TakeoverOutcome.FOUND:
                    assert facts is not None
                    with contextlib.suppress(RefusedError):
                        await self._terminal(session, orphan.launch).recover(orphan.launch, facts)
                case TakeoverOutcome.GONE:
                    await write_off(self._paths, session, SessionEnded(at=time.time(), why="its pane no longer exists"))
                case TakeoverOutcome.LOST:
                    await write_off(self._paths, session, lost, may_run=lost.what == "line to tmux")
                case TakeoverOutcome.NOTHING:
                    if facts is not None:
                        self._terminal(session, orphan.launch).use_pane(facts.pane_id, facts.window_id)
        self._tidy(survey_result, panes)

    async def _recover_adopted(self, orphan: OrphanedSession) -> None:
        launch, now = orphan.launch, orphan.session
        if not now.generation or now.state in OVER | {SessionState.LOST}:
            return
        try:
            facts = await self._adopted_servers.get_backend(launch).pane(launch)
        except TmuxError as error:
            gone = ConnectionLost(at=time.time(), what="tmux server", why=error.message)
            await write_off(self._paths, launch.session, gone)
            return
        if facts is None:
            await write_off(self._paths, launch.session, SessionEnded(at=time.time(), why="its pane no longer exists"))
            return
        with contextlib.suppress(RefusedError):
            await self._terminal(launch.session, launch).recover(launch, facts)

    async def _recover_remote(self, orphan: OrphanedSession, facts: PaneFacts | None) -> None:
        """Search an agent on another machine, whatever happened to its local pane."""
        launch, now = orphan.launch, orphan.session
        terminal = self._terminal(launch.session, launch)
        if facts is not None:
            terminal.use_pane(facts.pane_id, facts.window_id)
        if not now.generation or now.state in OVER:
            return
        if now.state is not SessionState.LOST:
            why = "its local pane ended while no host was running"
            await write_off(self._paths, launch.session, ConnectionLost(at=time.time(), what="remote line", why=why))
        terminal.reach(launch)

    def _tidy(self, survey_result: TakeoverSurvey, panes: dict[str, PaneFacts]) -> None:
        dead, others = strays(survey_result, panes)
        for facts in dead:
            self._line.submit(ask.kill_window(facts.window_id))
        for facts in others:
            log.warning("pane %s of %r belongs to no session; it is left alone", facts.pane_id, facts.kasmon_id)
