"""Fleets to measure: scratch folders, and sessions in them that are cheap to create and realistic to read."""

import contextlib
import os
import time
from collections.abc import Iterator

import msgspec

from kasmon.demo.scratch import Scratch
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.commands import ActingAgent, Launch, Mode
from kasmon.model.events import (
    Event,
    LogOpened,
    MessageWritten,
    SessionCreated,
    SessionEnded,
    SessionStarted,
    TurnStarted,
    UsageReported,
)
from kasmon.model.permission import Decision, Request, RequestId, SessionId, seal
from kasmon.paths import Paths, user_paths, write_private
from kasmon.process_identity import started_at
from kasmon.store.event_log import EventLog

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@contextlib.contextmanager
def scratch() -> Iterator[Paths]:
    """Return scratch `Paths`; at the end, remove them and everything that runs in them."""
    made = Scratch(user_paths())
    try:
        yield made.paths
    finally:
        made.close()


@contextlib.contextmanager
def create_sessions(
    paths: Paths,
    count: int,
    *,
    alive: int | None = None,
    workdir: str = "/",
    first: int = 0,
    actor: ActingAgent | None = None,
) -> Iterator[list[SessionId]]:
    """Create *count* structured sessions with real logs. The first *alive* (default: all) have this process as host.

    It holds their locks, so every reader sees them as alive and working; it serves no socket.

    *first*: the number of the first one; ids and names come from the number. *actor*: the agent that started them.
    """
    locks: list[HostLock] = []
    ids = [session_id(number) for number in range(first, first + count)]
    for number, session in enumerate(ids, first):
        folder = paths.folder(session)
        folder.mkdir(mode=0o700)
        is_alive = alive is None or number < first + alive
        created, *events = session_events(number, time.time() - 60, is_alive=is_alive, workdir=workdir)
        created = msgspec.structs.replace(created, launch=msgspec.structs.replace(created.launch, actor=actor))
        write_private(paths.launch(session), msgspec.json.encode(created.launch))
        EventLog(paths.fleet_log).append(created)
        log = EventLog(paths.log(session))
        for event in events:
            log.append(event)
        if is_alive:
            lock = HostLock(paths.host_lock(session))
            lock.acquire()
            locks.append(lock)
    try:
        yield ids
    finally:
        for lock in locks:
            lock.let_go()


def session_id(number: int) -> SessionId:
    text = ""
    for _ in range(7):
        number, rest = divmod(number, 26)
        text = LETTERS[rest] + text
    return SessionId(f"s{text}")


def build_request(session: SessionId, command: str, number: int = 1, title: str = "") -> Request:
    """Return request *number* of *session*, to run *command*; *title* is the command by default."""
    return seal(
        Request(
            id=RequestId(f"{session}-{number}"),
            session=session,
            tool="Bash",
            title=title or command,
            input={"command": command},
            shown=command,
            choices=(Decision.ALLOW, Decision.DENY),
            asked_at=time.time(),
        )
    )


def session_events(
    number: int, at: float, *, is_alive: bool, workdir: str = "/"
) -> tuple[SessionCreated, *tuple[Event, ...]]:
    """Return the creation of the session *number*, then the events of its log, which ends unless *is_alive*."""
    session, name, pid = session_id(number), f"session-{number:04d}", os.getpid()
    launch = Launch(
        session=session, name=name, agent="scripted", mode=Mode.SDK, backend="scripted", workdir=workdir, created_at=at
    )
    return (
        SessionCreated(at=at, launch=launch),
        LogOpened(at=at, session=session),
        SessionStarted(at=at, backend="scripted", workdir=workdir, pid=pid, pid_started=started_at(pid), host_pid=pid),
        TurnStarted(at=at, prompt="go on"),
        MessageWritten(at=at, text=f"Working on part {number} of the whole."),
        UsageReported(at=at, input=1000 + number, output=200, context=900, limit=200_000, cost_usd=0.01),
        *(() if is_alive else (SessionEnded(at=at, exit_code=0),)),
    )
