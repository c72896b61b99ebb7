"""The bus of this machine: its session logs, its hosts' sockets, its own commands."""

import asyncio
import contextlib
import hashlib
import os
import re
import socket
import sys
import threading
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from kasmon import __version__
from kasmon.bus.base import (
    BATCH_BYTES,
    HEARTBEAT_S,
    LONGEST_CONTROL,
    PROTOCOL,
    TAIL_BYTES,
    BusWelcome,
    Heartbeat,
    ListEnd,
    LogPart,
    LogPosition,
    SessionEntry,
    SessionRemoval,
    Update,
    tail_of,
)
from kasmon.bus.command_forks import CommandForks
from kasmon.errors import HostUnreachableError, NotFoundError, RefusedError, TimedOutError, UnavailableError
from kasmon.model.commands import ABILITIES, Mode
from kasmon.model.events import SessionCreated, SessionForgotten
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import OVER
from kasmon.paths import Paths, open_regular
from kasmon.store.event_log import START, EventLog
from kasmon.store.fleet_index import FleetIndex
from kasmon.store.machines import HostPresence
from kasmon.supervisor.fleet.file_hints import StopEvent, hints
from kasmon.supervisor.fleet.follower import RECONCILE_S
from kasmon.supervisor.fleet.liveness import Liveness
from kasmon.supervisor.fleet.watch import FleetWatch
from kasmon.supervisor.machines.link_client import COMMAND_S, CommandOutput

BACKLOG_BYTES: Final = 8 * 1024 * 1024
"""How much of the logs of ended sessions is sent in one round, so that news are never late by more."""
IDENTITY_BYTES: Final = 4096
"""How much of a log's first event identifies it."""
RECORD: Final = "terminal"
"""Instead of a file, this is the list of the record's files, one a line."""
READABLE: Final = re.compile(rf"blobs/[0-9a-f]{{64}}|{RECORD}(?:/[A-Za-z0-9._-]{{1,64}})?|host\.log")
"""The files of a session's folder that others may read. Its log comes with the updates."""


FORKED: Final = frozenset({"task", "stop"})
"""The commands that a plan runs for each of its tasks; the same one may be repeated."""
MOST_AT_ONCE: Final = 8
"""How many of them run at once; the others wait."""


class LocalBus:
    """The bus of the kasmon in *paths*. Sessions that are copies of another machine's are not offered."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._stops: set[StopEvent] = set()
        self._commands: set[asyncio.subprocess.Process] = set()
        self._fleet_index, self._reading = FleetIndex(paths), threading.Lock()
        """Kept for `socket_path`, which would read a session's whole log for each connection."""

    async def updates(self, positions: Mapping[SessionId, LogPosition]) -> AsyncGenerator[Update, None]:
        stop = StopEvent()
        self._stops.add(stop)
        steps = _Publisher(self._paths, positions, stop).updates()
        try:
            yield BusWelcome(__version__, PROTOCOL, socket.gethostname(), ABILITIES, time.time())
            while (update := await asyncio.to_thread(next, steps, None)) is not None:
                yield update
        finally:
            stop.set()
            with contextlib.suppress(ValueError):  # a thread is still in it; it ends by itself
                await asyncio.to_thread(steps.close)
            self._stops.discard(stop)

    async def connect(self, session: SessionId) -> socket.socket:
        path = await asyncio.to_thread(self.socket_path, session)
        connected = socket.socket(socket.AF_UNIX)
        connected.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connected, path)
        except OSError as error:
            connected.close()
            raise HostUnreachableError(session, error.strerror or str(error)) from error
        except BaseException:
            connected.close()
            raise
        return connected

    def socket_path(self, session: SessionId) -> str:
        """Return the path of the socket of the session's host. Blocks.

        Raises:
            NotFoundError: if there is no such session here.
        """
        with self._reading:
            self._fleet_index.read_fleet()
            folded = self._fleet_index.sessions.get(session)
            if folded is None or folded.session.via:
                raise NotFoundError(f"this machine has no session {session!r}.")
            self._fleet_index.read_session(session)
            is_terminal = self._fleet_index.sessions[session].session.mode is Mode.TMUX
        return str(self._paths.tmux_host_socket if is_terminal else self._paths.socket(session))

    def read_log(self, session: SessionId, offset: int, size: int) -> LogPart:
        """Return at most *size* bytes of the log of a session that `updates` listed, from *offset* on. Blocks.

        Raises:
            UnavailableError: if it cannot be read.
        """
        try:
            handle = open_regular(self._paths.log(session), os.O_RDONLY)
        except OSError as error:
            raise UnavailableError(f"cannot read the log of {session!r}: {error.strerror}.") from error
        try:
            return LogPart(session, _identify(handle), offset, os.pread(handle, size, offset))
        finally:
            os.close(handle)

    async def run(self, arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
        if not set(arguments[:1]) & FORKED:
            return await self._run(arguments, stdin, self._commands)
        shared, key = _shared_commands(), (self._paths.state, tuple(arguments), stdin)
        return await shared.run(key, lambda: self._fork(shared, arguments, stdin))

    async def _fork(self, shared: "_SharedCommands", arguments: Sequence[str], stdin: bytes) -> CommandOutput:
        output = await shared.forks.setdefault(self._paths, CommandForks(self._paths)).run(arguments, stdin)
        return await self._run(arguments, stdin, set()) if output is None else output

    async def _run(
        self, arguments: Sequence[str], stdin: bytes, running: set[asyncio.subprocess.Process]
    ) -> CommandOutput:
        """Run `kasmon`; its process is one of *running* meanwhile."""
        environment = {**os.environ, **self._paths.environment_variables(), "NO_COLOR": "1"}
        program = (sys.executable, "-P", "-m", "kasmon")
        pipe = asyncio.subprocess.PIPE
        command = await asyncio.create_subprocess_exec(
            *program, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, cwd=Path.home(), env=environment
        )
        running.add(command)
        try:
            stdout, stderr = await command.communicate(stdin)
        finally:
            running.discard(command)
            if command.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    command.terminate()
        return CommandOutput(exit_code=command.returncode or 0, stdout=stdout, stderr=stderr)

    async def read_file(self, session: SessionId, name: str, offset: int = 0) -> bytes:
        if not READABLE.fullmatch(name):
            raise RefusedError(f"the file {name!r} of a session is not for others.")
        return await asyncio.to_thread(self._read_file, session, name, offset)

    def _read_file(self, session: SessionId, name: str, offset: int) -> bytes:
        self.socket_path(session)
        if name == RECORD:
            with contextlib.suppress(FileNotFoundError):
                names = sorted(part.name for part in self._paths.record(session).iterdir())
                return "\n".join(names).encode()[offset:]
            return b""
        try:
            handle = open_regular(self._paths.folder(session) / name, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError as error:
            raise NotFoundError(f"session {session!r} has no file {name!r}.") from error
        except OSError as error:
            raise UnavailableError(f"cannot read the file {name!r}: {error.strerror}.") from error
        try:
            return os.pread(handle, BATCH_BYTES, offset)
        finally:
            os.close(handle)

    async def aclose(self) -> None:
        for stop in self._stops:
            stop.set()
        for command in self._commands:
            with contextlib.suppress(ProcessLookupError):
                command.terminate()


_of_loops: "WeakKeyDictionary[asyncio.AbstractEventLoop, _SharedCommands]" = WeakKeyDictionary()


class _SharedCommands:
    """Runs the commands that may be repeated, of all connections: equal ones once at a time, a few at once.

    A runner repeats its request when the connection ends. On a busy machine that must neither start the command beside
    itself, nor end what is half done: the request that comes next gets the output of the command that runs already.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[CommandOutput]] = {}
        self._free = asyncio.Semaphore(MOST_AT_ONCE)
        self.forks: dict[Paths, CommandForks] = {}

    async def run(self, key: Hashable, start: Callable[[], Coroutine[Any, Any, CommandOutput]]) -> CommandOutput:
        """Return the output of *start*, or of the command with this *key* that runs already.

        Cancelling this does not end the command; the end of the loop does.
        """
        if (running := self._running.get(key)) is None:
            running = self._running[key] = asyncio.create_task(self._run(start))
            running.add_done_callback(lambda ended: self._remove(key, ended))
        return await asyncio.shield(running)

    def _remove(self, key: Hashable, ended: "asyncio.Task[CommandOutput]") -> None:
        del self._running[key]
        if not ended.cancelled():
            ended.exception()  # it is not logged if no request waits for it any more

    async def _run(self, start: Callable[[], Coroutine[Any, Any, CommandOutput]]) -> CommandOutput:
        """Run it. One that takes longer than any request waits for it is ended: else each repetition would wait too.

        Raises:
            TimedOutError: if it was.
        """
        try:
            async with self._free, asyncio.timeout(COMMAND_S):
                return await start()
        except TimeoutError as error:
            raise TimedOutError(f"the command was ended after {COMMAND_S:g} s.") from error


def _shared_commands() -> _SharedCommands:
    """Return those of the running loop."""
    loop = asyncio.get_running_loop()
    if loop not in _of_loops:
        _of_loops[loop] = _SharedCommands()
    return _of_loops[loop]


class _Publisher:
    """Yields the updates of one reader; blocks in between, so it runs in a thread.

    A session is listed right before its log is sent, and its log is sent as far as it was read when its processes were
    probed. So a reader gets both as they were at one moment: no host is missing for its first events.
    """

    def __init__(self, paths: Paths, positions: Mapping[SessionId, LogPosition], stop: StopEvent) -> None:
        self._paths, self._stop = paths, stop
        self._positions = dict(positions)
        self._watch = FleetWatch(paths, writes=False)
        self._fleet_log = EventLog(paths.fleet_log)
        self._cursor = START
        self._created: dict[SessionId, SessionCreated] = {}
        self._evidence: dict[SessionId, tuple[Session, Liveness]] = {}
        self._listed: dict[SessionId, SessionEntry] = {}
        self._backlog: list[SessionId] = []
        """The ended sessions whose logs are still to be compared with the reader's, the newest last."""
        self._read: dict[SessionId, tuple[int, int, int]] = {}
        """The logs that were sent to their ends: inode, size, and when the file changed last."""

    def updates(self) -> Generator[Update, None, None]:
        """Yield updates until the stop event is set."""
        self._watch.refresh()
        self._read_list()
        ended = [session for session in self._evidence if self._has_ended(session)]
        self._backlog = sorted(ended, key=lambda session: self._evidence[session][0].since)
        yield from self._send(self._evidence.keys() - set(ended))
        is_complete = not self._backlog
        if is_complete:
            yield ListEnd()
        reconciled_at = time.monotonic()
        for hinted in hints(self._paths, self._stop, HEARTBEAT_S):
            changed = set(hinted)
            if time.monotonic() >= reconciled_at + RECONCILE_S:  # hints may be missing
                self._watch.refresh()
                reconciled_at = time.monotonic()
                changed.update(each for each in self._evidence if not self._has_ended(each))
            else:
                self._watch.refresh_only(hinted)
            previous = self._evidence
            self._read_list()
            changed.update(each for each in self._evidence if self._evidence[each] is not previous.get(each))
            changed.difference_update(self._backlog)
            yield from self._send(changed)
            yield from self._remove_gone()
            yield from self._send_backlog()
            if not is_complete and not self._backlog:
                is_complete = True
                yield ListEnd()
            yield Heartbeat(time.time())

    def _has_ended(self, session: SessionId) -> bool:
        return self._evidence[session][0].state in OVER

    def _read_list(self) -> None:
        self._read_created()
        self._evidence = {
            session: evidence
            for session, evidence in self._watch.evidence().items()
            if not evidence[0].via and session in self._created
        }

    def _send(self, sessions: Iterable[SessionId]) -> Iterator[Update]:
        """Yield what changed of *sessions*."""
        for session in sessions:
            if session not in self._evidence:
                continue
            folded, liveness = self._evidence[session]
            presence = HostPresence(*liveness[:6])
            listed = SessionEntry(self._created[session], folded.name, folded.viewed_at, presence, folded.tags)
            if listed != self._listed.get(session):
                self._listed[session] = listed
                yield listed
            yield from self._read_log(session)

    def _send_backlog(self) -> Iterator[Update]:
        sent = 0
        while self._backlog and sent < BACKLOG_BYTES:
            for update in self._send([self._backlog.pop()]):
                sent += len(update.content) if isinstance(update, LogPart) else 0
                yield update

    def _remove_gone(self) -> Iterator[Update]:
        for session in self._listed.keys() - self._evidence.keys():
            del self._listed[session]
            self._positions.pop(session, None)
            self._read.pop(session, None)
            yield SessionRemoval(session)

    def _read_created(self) -> None:
        if self._fleet_log.size() < self._cursor:
            self._cursor, self._created = START, {}
        with contextlib.suppress(NotFoundError):
            for event, cursor in self._fleet_log.read(self._cursor):
                self._cursor = cursor
                if isinstance(event, SessionCreated):
                    self._created.setdefault(event.launch.session, event)
                elif isinstance(event, SessionForgotten):
                    self._created.pop(event.session, None)

    def _read_log(self, session: SessionId) -> Iterator[LogPart]:
        path = self._paths.log(session)
        at = self._positions.get(session, LogPosition("", 0))
        try:
            if self._read.get(session) == _state(path.stat()):
                return
            handle = open_regular(path, os.O_RDONLY)
        except OSError:
            return  # it has none yet, or the fleet shows that it is unreadable
        try:
            facts = os.fstat(handle)
            if not (identity := _identify(handle)):
                return
            at = _find_start(handle, at, identity, facts.st_size)
            limit = self._watch.log_size(session)
            while content := _whole_lines(os.pread(handle, max(0, min(BATCH_BYTES, limit - at.offset)), at.offset)):
                part = LogPart(session, at.log, at.offset, content)
                at = LogPosition(at.log, end := at.offset + len(content), read_tail(handle, end))
                yield part
                self._positions[session] = at
            if at.offset == facts.st_size:
                self._read[session] = _state(facts)
        finally:
            os.close(handle)


def _state(facts: os.stat_result) -> tuple[int, int, int]:
    return facts.st_ino, facts.st_size, facts.st_ctime_ns


def _find_start(handle: int, at: LogPosition, identity: str, size: int) -> LogPosition:
    """Return where a reader that is *at* continues in an open log: at its start, if what is before that is not in it.

    A log that was restored from a backup is shorter, or has other records there.
    """
    if at.log.partition(".")[0] != identity:
        return LogPosition(identity, 0)
    is_other = size < at.offset or (at.tail and at.tail != read_tail(handle, at.offset))
    return next_file(at) if is_other else at


def next_file(at: LogPosition) -> LogPosition:
    """Return the start of the log that took the place of the one that *at* is in, with the same inode and first event.

    Its name differs by a number: `77-a1b2c3`, `77-a1b2c3.1`.
    """
    base, _, number = at.log.partition(".")
    return LogPosition(f"{base}.{int(number[:9]) + 1 if number.isdecimal() else 1}", 0)


def read_tail(handle: int, end: int) -> str:
    """Return `tail_of` the first *end* bytes of an open file."""
    size = min(end, TAIL_BYTES + LONGEST_CONTROL + 1)
    return tail_of(os.pread(handle, size, end - size))


def _identify(handle: int) -> str:
    """Return what identifies an open log: its inode and its first event; empty before that is written.

    The inode alone may be that of a later file, once the log was removed.
    """
    start = os.pread(handle, IDENTITY_BYTES, 0)
    end = start.find(b"\n") + 1
    if not end and len(start) < IDENTITY_BYTES:
        return ""
    digest = hashlib.blake2b(start[:end] if end else start, digest_size=8).hexdigest()
    return f"{os.fstat(handle).st_ino}-{digest}"


def _whole_lines(content: bytes) -> bytes:
    """Return *content* up to its last line's end; all of it if it is a part of one long line."""
    end = content.rfind(b"\n") + 1
    return content[:end] if end or len(content) < BATCH_BYTES else content
