"""Connects to the host of a session, and starts the host if requested."""

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kasmon.errors import HostUnreachableError, LaunchError, ProtocolVersionError, SessionEndedError, TimedOutError
from kasmon.host.rpc import control
from kasmon.host.rpc.blocking_client import BlockingLink
from kasmon.host.rpc.event_loop import is_running, run_in_thread, sleep
from kasmon.host.rpc.frames import VERSION
from kasmon.host.rpc.host_lock import lock_holder, seconds_since_taken
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import OVER
from kasmon.paths import Paths, private_folder
from kasmon.store.event_log import START, Cursor
from kasmon.store.machines import machine_of, read_presence
from kasmon.store.session_reader import apply_log, load_initial_session, load_launch

if TYPE_CHECKING:
    from kasmon.host.rpc.client import HostLink
    from kasmon.host.rpc.spawn import Host

REACH_S = 10.0
"""How long a running host may take to answer first."""
START_S = 30.0
"""How long one may take that this or another process starts: the machine may be busy, above all with many starts."""
TRIES = 3
"""How often a host that exits without an error is started before that is a failure."""
LONGEST_PAUSE_S = 0.1


async def open_link(
    paths: Paths,
    session: SessionId,
    mode: Mode,
    *,
    start: bool = False,
    only_looks: bool = False,
    limit_s: float = REACH_S,
) -> "HostLink":
    """Return an open link to the host that runs *session*'s agent.

    The shared tmux host is started if it does not run. A structured session's host is started only where that cannot
    start an agent by accident: with *start*, or when its `launch.json` requests a generation that was never tried.
    With *only_looks* it never is. An interpreter session's host recovers the sandbox of the host before it, so it is
    started as long as the session has not ended.

    A host of an older version that leaves its agents running (the tmux host, or one of interpreters) is asked to hand
    over, and replaced. One of a newer version is not: two versions in use would replace each other's hosts for ever.

    Raises:
        SessionEndedError: if the agent has ended, and *start* was not given; or if it ended as soon as it was started.
        LaunchError: if the agent was to be started and could not be. A host may answer before that is known; the log
            has the error then.
        HostUnreachableError: if there is no host and none was to be started, or it does not come up; or if the system
            denies access.
        UnsafeFolderError: if a folder that it needs is accessible to others.
        TimedOutError: if it did not answer within *limit_s* seconds; `START_S` after its start, if that is later.
        ProtocolVersionError: if it speaks another version, and is not replaced.
    """
    return cast("HostLink", await _find(paths, session, mode, start, only_looks, limit_s))


@contextlib.asynccontextmanager
async def reach(
    paths: Paths, session: SessionId, mode: Mode, *, start: bool = False
) -> AsyncIterator["HostLink | BlockingLink"]:
    """Yield a link as `open_link` returns it, without an event loop a blocking one, and close it."""
    found = await _find(paths, session, mode, start)
    async with contextlib.aclosing(found):
        yield found


@contextlib.asynccontextmanager
async def reach_running_tmux_host(
    paths: Paths, session: SessionId | None = None
) -> AsyncIterator["HostLink | BlockingLink"]:
    """Yield a link to the running shared tmux host; none is started, except to replace one of an older version.

    *session*: one that it runs; that of its machine is reached.

    Raises:
        KasmonError: as `open_link` does.
    """
    try:
        if session is not None and (machine := await run_in_thread(machine_of, paths, session)):
            found = await _open_remote(paths, session, machine, REACH_S)
        else:
            found = await _open(paths.tmux_host_socket)
    except ProtocolVersionError:
        found = await _find(paths, session or SessionId("tmux"), Mode.TMUX)
    async with contextlib.aclosing(found):
        yield found


async def _open(path: Path, *limit_s: float) -> "HostLink | BlockingLink":
    if not is_running():
        return await BlockingLink.open(path, *limit_s)
    from kasmon.host.rpc.client import HostLink  # it loads asyncio

    return await HostLink.open(path, *limit_s)


async def _find(
    paths: Paths,
    session: SessionId,
    mode: Mode,
    start: bool = False,
    only_looks: bool = False,
    limit_s: float = REACH_S,
) -> "HostLink | BlockingLink":
    deadline = time.monotonic() + limit_s
    finds = mode is Mode.INTERPRETER
    search = _Search(paths, "tmux") if mode is Mode.TMUX else _SessionSearch(paths, session, start, only_looks, finds)
    try:
        if machine := await run_in_thread(machine_of, paths, session):
            return await _open_remote(paths, session, machine, limit_s)
        return await search.run(deadline)
    except OSError as error:
        raise HostUnreachableError(search.name, _describe_error(error)) from error


async def _open_remote(paths: Paths, session: SessionId, machine: str, limit_s: float) -> "HostLink | BlockingLink":
    """Return a link to the host on a registered *machine*, through the socket that the link to it listens at.

    It is never started from here: that would be another agent, on this machine.
    """
    try:
        return await _open(paths.socket(session), limit_s)
    except HostUnreachableError as error:
        presence = await run_in_thread(read_presence, paths, machine)
        why = (
            f"{machine} is unreachable: {presence.why}; nothing was sent"
            if presence.why
            else f"{machine} did not answer ({error.why}); nothing was sent"
        )
        raise HostUnreachableError(session, why) from error


class _Search:
    """The search for the shared tmux host. Any number may run at once: the host's lock decides which process it is."""

    def __init__(self, paths: Paths, name: str) -> None:
        self.paths = paths
        self.name = name
        self.session: SessionId | None = None
        self.socket = paths.tmux_host_socket
        self.lock = paths.tmux_host_lock
        self.log = paths.tmux_host_log
        self.child: Host | None = None
        self.started = 0
        self.replaces = True
        """Whether the next host recovers what this one leaves, so that an older one can be asked to hand over."""
        self.handing_over = 0
        """The pid of the host that was asked to hand over."""
        self.cursor: Cursor | None = None
        """The position to which the session's log was read."""

    async def run(self, deadline: float) -> "HostLink | BlockingLink":
        """Return a link to the host, starting or replacing it where that is allowed.

        Raises:
            KasmonError: as `open_link` does.
            OSError: if the system denies access.
        """
        pause_s, holder = 0.005, None
        await run_in_thread(_refuse_symlink, self.paths)
        while True:
            try:
                return await _open(self.socket, max(0.1, deadline - time.monotonic()))
            except HostUnreachableError as unreachable:
                why = unreachable.why
            except ProtocolVersionError as other:
                why = "the host of another version has not exited yet"
                if await self._request_hand_over(other):
                    deadline = max(deadline, time.monotonic() + control.HAND_OVER_S + REACH_S)
            previous, holder = holder, await run_in_thread(lock_holder, self.lock)
            if holder is not None:
                if holder != previous:  # once each: after the clock was set back it was taken just now for ever
                    since_s = await run_in_thread(seconds_since_taken, self.lock)
                    deadline = max(deadline, time.monotonic() + START_S - since_s)
            elif await self._start():
                deadline = max(deadline, time.monotonic() + START_S)
            if time.monotonic() > deadline:
                raise TimedOutError(
                    f"the host {self.name!r} did not start in time: {why}.", hint=f"Its output is in {str(self.log)!r}."
                )
            await sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _request_hand_over(self, other: ProtocolVersionError) -> bool:
        """Ask the host of an older version to hand over; whether it was asked only now.

        Raises:
            ProtocolVersionError: if it is newer, cannot hand over, or no next host could recover its agents.
        """
        if not self.replaces or other.host_version is None or other.host_version > VERSION:
            raise other
        if self.handing_over == other.pid:
            return False
        self.handing_over = other.pid
        with contextlib.suppress(HostUnreachableError):  # it has exited, and the next one may listen there already
            await run_in_thread(control.request, self.socket, control.ControlKind.HAND_OVER, pid=other.pid)
        return True

    async def _start(self) -> bool:
        """Start the host, unless one started here is still coming up; whether it was started."""
        from kasmon.host.rpc.spawn import read_last_line, spawn, spawn_tmux_host  # few commands start a host

        if self.child is not None and self.child.poll() is None:
            return False
        await self._check_start()
        if self.child is not None and (self.child.returncode != 0 or self.started == TRIES):
            last_output = await run_in_thread(read_last_line, self.log)
            raise HostUnreachableError(self.name, last_output or f"it ended with exit code {self.child.returncode}")
        try:
            if self.session is None:
                child = await run_in_thread(spawn_tmux_host, self.paths)
            else:
                child = await run_in_thread(spawn, self.paths, self.session, self.cursor)
        except OSError as error:
            raise HostUnreachableError(self.name, f"it cannot be started: {_describe_error(error)}") from error
        if child is not None:
            self.child, self.started = child, self.started + 1
        return child is not None

    async def _check_start(self) -> None:
        """Raise the reason against starting the host; the tmux host starts no agent, so there is none."""


class _SessionSearch(_Search):
    """The search for a structured session's host, whose start is its agent's start."""

    def __init__(self, paths: Paths, session: SessionId, start: bool, only_looks: bool, finds: bool) -> None:
        """*finds*: its host recovers what the host before it left."""
        super().__init__(paths, session)
        self.only_looks = only_looks
        self.finds = finds
        self.replaces = finds and not only_looks
        self.session = session
        self.start = start
        self.socket = paths.socket(session)
        self.lock = paths.host_lock(session)
        self.log = paths.host_log(session)
        self.now: Session | None = None

    async def run(self, deadline: float) -> "HostLink | BlockingLink":
        if self.start:
            await self._await_last_host(deadline)
        return await super().run(deadline)

    async def _await_last_host(self, deadline: float) -> None:
        """Wait while the host of an agent that has ended exits; it accepts no commands any more."""
        while (await self._read_session()).state in OVER and time.monotonic() < deadline:
            if await run_in_thread(lock_holder, self.lock) is None:
                return
            await sleep(LONGEST_PAUSE_S / 10)

    async def _read_session(self) -> Session:
        if self.now is None:
            self.now = await run_in_thread(load_initial_session, self.paths, SessionId(self.name))
        now: Session = self.now
        now, self.cursor = await run_in_thread(apply_log, self.paths, now, self.cursor or START)
        self.now = now
        return now

    async def _check_start(self) -> None:
        """Raise the reason against starting the host.

        Raises:
            SessionEndedError: if the agent has ended, also since its start here.
            LaunchError: if its host, started here, could not start it, or its launch cannot be read.
            HostUnreachableError: if it no longer runs, and no restart was requested.
        """
        session, before, seen_before = SessionId(self.name), self.now, self.cursor
        now = await self._read_session()
        if self.child is not None and before and self.cursor != seen_before and now.state in OVER:
            if now.generation == before.generation and now.end_why:
                raise LaunchError(now.end_why)
            raise SessionEndedError(session)
        launch, wanted_at = await run_in_thread(_load_launch, self.paths, session)
        was_tried = now.state in OVER and now.since >= wanted_at
        if self.start or (launch.generation > now.generation and not was_tried and not self.only_looks):
            return
        if now.state in OVER:
            raise SessionEndedError(session)
        if self.finds and not self.only_looks:
            return
        raise HostUnreachableError(
            session, f"it no longer runs; `kasmon restart {session}` ends what is left of the agent and restarts both"
        )


def _refuse_symlink(paths: Paths) -> None:
    """Raise `UnsafeFolderError` if the runtime folder is a link: no host of kasmon listens in one."""
    if paths.has_runtime and paths.runtime.is_symlink():
        private_folder(paths.runtime)


def _load_launch(paths: Paths, session: SessionId) -> tuple[Launch, float]:
    """Return the session's launch, and when it was written, in seconds since the epoch. Raises `LaunchError`."""
    launch = load_launch(paths, session)
    return launch, paths.launch(session).stat().st_mtime


def _describe_error(error: OSError) -> str:
    """Return the system's message, with the file that it is about."""
    why = error.strerror or str(error)
    return f"{str(error.filename)!r}: {why}" if error.filename else why
