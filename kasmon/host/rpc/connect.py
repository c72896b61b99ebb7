"""Reach the host of a session, and start it where that is wanted."""

import asyncio
import contextlib
import subprocess
import time

from kasmon.errors import HostUnreachableError, LaunchError, ProtocolVersionError, SessionEndedError, TimedOutError
from kasmon.host.journal.session_log import advanced, begun, wanted
from kasmon.host.rpc import control
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import VERSION
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.spawn import last_words, spawn
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths, private_folder
from kasmon.store.event_log import START, Cursor

__all__ = ["HostLink", "link", "link_running_tmux_host", "spawn"]

REACH_S = 10.0
"""How long a host may take from its start to its first answer."""
TRIES = 3
"""How often a host is started that leaves without a word, before that is called a failure."""
LONGEST_PAUSE_S = 0.1


async def link(
    places: Paths,
    session: SessionId,
    mode: Mode,
    *,
    start: bool = False,
    only_looks: bool = False,
    limit_s: float = REACH_S,
) -> HostLink:
    """An open link to the host that talks to *session*'s agent.

    The shared tmux host is started if it is not there. A structured session's host is started only where that cannot
    start an agent by accident: when *start* says so, or when its `launch.json` wants a generation that was never tried.
    With *only_looks* it never is. One of interpreters finds the sandbox again that its last host left, so it is started
    as long as the session has not ended.

    A host of an older version that leaves its agents as they are (the tmux host, one of interpreters) is told to hand
    over, and replaced. One of a newer version is not: two versions in use would replace each other's hosts for ever.

    Raises:
        SessionEndedError: if the agent has ended, and *start* was not given; or if it ended as soon as it was started.
        LaunchError: if the agent was to be started and could not be. A host may answer before that is known; the log
            tells then.
        HostUnreachableError: if there is no host and none was to be started, or it does not come up; or if the system
            does not let us look.
        UnsafeFolderError: if a folder that it needs is not ours alone.
        TimedOutError: if it did not answer within *limit_s* seconds.
        ProtocolVersionError: if it speaks another version, and is not replaced.
    """
    deadline = time.monotonic() + limit_s
    finds = mode is Mode.INTERPRETER
    search = _Search(places, "tmux") if mode is Mode.TMUX else _SessionSearch(places, session, start, only_looks, finds)
    try:
        return await search.run(deadline)
    except OSError as error:
        raise HostUnreachableError(search.name, _told(error)) from error


async def link_running_tmux_host(places: Paths) -> HostLink:
    """An open link to the shared tmux host; none is started, except in place of one of an older version.

    Raises:
        KasmonError: as `link` does.
    """
    try:
        return await HostLink.open(places.tmux_host_socket)
    except ProtocolVersionError:
        return await link(places, SessionId("tmux"), Mode.TMUX)


class _Search:
    """The way to the shared tmux host. Any number may search at once: the host's lock decides which process is it."""

    def __init__(self, places: Paths, name: str) -> None:
        self.places = places
        self.name = name
        self.session: SessionId | None = None
        self.socket = places.tmux_host_socket
        self.lock = places.tmux_host_lock
        self.log = places.tmux_host_log
        self.child: subprocess.Popen[bytes] | None = None
        self.started = 0
        self.replaces = True
        """Whether the next host takes up what this one leaves, so that an older one can be told to hand over."""
        self.handing_over = 0
        """The pid of the host that was told to."""
        self.cursor: Cursor | None = None
        """How far the session's log was read."""

    async def run(self, deadline: float) -> HostLink:
        """
        Raises:
            KasmonError: as `link` does.
            OSError: if the system does not let us look.
        """
        pause_s = 0.005
        await asyncio.to_thread(_refuse_link, self.places)
        while True:
            try:
                return await HostLink.open(self.socket, max(0.1, deadline - time.monotonic()))
            except HostUnreachableError as unreachable:
                why = unreachable.why
            except ProtocolVersionError as other:
                why = "the host of another version has not exited yet"
                if await self._told_to_hand_over(other):
                    deadline = max(deadline, time.monotonic() + control.HAND_OVER_S + REACH_S)
            if await asyncio.to_thread(lock_holder, self.lock) is None:
                await self._start()
            if time.monotonic() > deadline:
                raise TimedOutError(
                    f"the host {self.name!r} did not start in time: {why}.",
                    hint=f"Its output is in {str(self.log)!r}.",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _told_to_hand_over(self, other: ProtocolVersionError) -> bool:
        """Have the host of an older version leave; whether it was told only now.

        Raises:
            ProtocolVersionError: if it is newer, cannot hand over, or nobody would take up what it leaves.
        """
        if not self.replaces or other.host_version is None or other.host_version > VERSION:
            raise other
        if self.handing_over == other.pid:
            return False
        self.handing_over = other.pid
        with contextlib.suppress(HostUnreachableError):  # it has left already
            await asyncio.to_thread(control.request, self.socket, control.ControlKind.HAND_OVER)
        return True

    async def _start(self) -> None:
        """Start the host, unless one that we started is still on its way."""
        if self.child is not None and self.child.poll() is None:
            return
        await self._may_start()
        if self.child is not None and (self.child.returncode != 0 or self.started == TRIES):
            said = await asyncio.to_thread(last_words, self.log)
            raise HostUnreachableError(self.name, said or f"it ended with exit code {self.child.returncode}")
        self.started += 1
        try:
            self.child = await asyncio.to_thread(spawn, self.places, self.session, self.cursor)
        except OSError as error:
            raise HostUnreachableError(self.name, f"it cannot be started: {_told(error)}") from error

    async def _may_start(self) -> None:
        """Raise what speaks against starting it; the tmux host starts no agent, so nothing does."""


class _SessionSearch(_Search):
    """The way to a structured session's host, whose start is its agent's start."""

    def __init__(self, places: Paths, session: SessionId, start: bool, only_looks: bool, finds: bool) -> None:
        """*finds*: its host takes up again what the one before left."""
        super().__init__(places, session)
        self.only_looks = only_looks
        self.finds = finds
        self.replaces = finds and not only_looks
        self.session = session
        self.start = start
        self.socket = places.socket(session)
        self.lock = places.host_lock(session)
        self.log = places.host_log(session)
        self.now: Session | None = None

    async def run(self, deadline: float) -> HostLink:
        if self.start:
            await self._let_the_last_one_leave(deadline)
        return await super().run(deadline)

    async def _let_the_last_one_leave(self, deadline: float) -> None:
        """Wait while the host of an agent that has ended says goodbye; it takes no wishes any more."""
        while (await self._look()).state is SessionState.ENDED and time.monotonic() < deadline:
            if await asyncio.to_thread(lock_holder, self.lock) is None:
                return
            await asyncio.sleep(LONGEST_PAUSE_S / 10)

    async def _look(self) -> Session:
        if self.now is None:
            self.now = await asyncio.to_thread(begun, self.places, SessionId(self.name))
        now: Session = self.now
        now, self.cursor = await asyncio.to_thread(advanced, self.places, now, self.cursor or START)
        self.now = now
        return now

    async def _may_start(self) -> None:
        """
        Raises:
            SessionEndedError: if the agent has ended, also since we started it.
            LaunchError: if its host, which we started, could not start it, or nothing says how to.
            HostUnreachableError: if it runs no more, and nobody asked to start it again.
        """
        session, before, seen_before = SessionId(self.name), self.now, self.cursor
        now = await self._look()
        if self.child is not None and before and self.cursor != seen_before and now.state is SessionState.ENDED:
            if now.generation == before.generation and now.end_why:
                raise LaunchError(now.end_why)
            raise SessionEndedError(session)
        launch, wanted_at = await asyncio.to_thread(_wanted, self.places, session)
        was_tried = now.state is SessionState.ENDED and now.since >= wanted_at
        if self.start or (launch.generation > now.generation and not was_tried and not self.only_looks):
            return
        if now.state is SessionState.ENDED:
            raise SessionEndedError(session)
        if self.finds and not self.only_looks:
            return
        raise HostUnreachableError(
            session, f"it no longer runs; `kasmon restart {session}` ends what is left of the agent and restarts both"
        )


def _refuse_link(places: Paths) -> None:
    """
    Raises:
        UnsafeFolderError: if the runtime folder is a link: no host of ours listens in one.
    """
    if places.has_runtime and places.runtime.is_symlink():
        private_folder(places.runtime)


def _wanted(places: Paths, session: SessionId) -> tuple[Launch, float]:
    """How the session is to be started, and since when, in seconds since the epoch.

    Raises:
        LaunchError: if nothing says how to.
    """
    launch = wanted(places, session)
    return launch, places.launch(session).stat().st_mtime


def _told(error: OSError) -> str:
    """What the system said, and of which file."""
    why = error.strerror or str(error)
    return f"{str(error.filename)!r}: {why}" if error.filename else why
