"""Derive a session's displayed state from its events and processes; lost and unsure come from here. Pure.

| events | host | agent's process | displayed state |
|---|---|---|---|
| the log cannot be read | any | any | unsure |
| of another machine, which is unreachable | any | any | unsure, since it is unreachable |
| ended, or lost as its host logged | any | any | as in the events |
| never started | runs, or 15 s and its worktree's setup not over | - | starting |
| never started, or its folder is gone | gone | - | lost |
| running | runs | any | as in the events, judged at this moment |
| running, and the log is not writable | runs | any | unsure, unless it asks |
| running, structured | gone | runs | unsure: the agent may still act on its last input |
| running, structured | gone | gone | lost |
| suspended to disk, in a sandbox | gone | any | as in the events |
| running or suspended, in a sandbox | gone | its sandbox is gone | lost |
| running or suspended, in a sandbox | gone | its sandbox runs | unsure: the next command starts another host for it |
| running, in tmux | gone | gone | lost |
| running, in tmux | gone | runs, or never known | unsure |
"""

from typing import Final, NamedTuple

import msgspec

from kasmon.model.commands import Mode
from kasmon.model.reducers.evidence import apply_verdict
from kasmon.model.session import HostProbe, Session
from kasmon.model.session_state import OVER, SessionState

START_S: Final = 15.0
"""How long a session may take from its creation to its host's lock, in seconds."""
NEVER_STARTED: Final = "it was never started"
FOLDER_GONE: Final = "its folder is gone"
SANDBOX_ALIVE: Final = "host gone, sandbox alive"
SANDBOX_GONE: Final = "its host is gone, and its sandbox with it"
AGENT_LEFT: Final = "its host is gone, its agent still runs"
HOST_GONE: Final = "its host is gone, and its agent with it"
AGENT_ALIVE: Final = "host gone, agent alive"
AGENT_UNKNOWN: Final = "host gone, agent unknown"
UNWRITTEN: Final = "the log is not writable"
UNREADABLE: Final = "its log cannot be read"
UNREACHABLE: Final = "is unreachable"
LINE_GONE: Final = "its process is gone"


class Liveness(NamedTuple):
    """Which processes of a session were alive at one probe."""

    host: int | None = None
    """The pid of its host, 0 if the host did not record it; None if its lock is free."""
    agent_runs: bool = False
    """Whether the agent's logged process still runs; only probed if the host is gone."""
    written_at: float = 0.0
    """When its log was last written to; likewise."""
    write_problem: str = ""
    """Why its host cannot write events; empty if it can."""
    is_folder_missing: bool = False
    """Whether its folder is gone; only probed if it apparently never started."""
    unreadable: str = ""
    """Why its log cannot be read; empty if it can."""
    unreachable: str = ""
    """Why its machine is unreachable; empty if it is not. Nothing else is known then."""
    unreachable_since: float = 0.0
    clock_offset_s: float = 0.0
    """How far the clock of its machine is ahead of the one here: its events have the times of that clock."""


def derive(session: Session, seen: Liveness, now: float) -> Session:
    """Return *session*, folded from its events, as displayed at *now* with the liveness *seen*."""
    if seen.clock_offset_s:
        session, seen = _correct_times(session, seen, now)
    if seen.unreadable:
        return _mark_unsure(session, f"{UNREADABLE}: {seen.unreadable}", source="log")
    if session.state in OVER:
        return session
    if seen.unreachable:
        why, host = f"{session.via} {UNREACHABLE}: {seen.unreachable}", HostProbe(pid=None, alive=False)
        session = msgspec.structs.replace(session, asking=None, requests=(), host=host)
        return _mark_unsure(session, why, source="link", since=seen.unreachable_since)
    host = HostProbe(pid=seen.host or None, alive=seen.host is not None)
    if session.state is SessionState.LOST:
        return _mark_lost(session, host, session.end_why or LINE_GONE, session.since)
    if host.alive:
        if session.recheck_at is not None and session.recheck_at <= now:
            session = apply_verdict(session, now, since=session.recheck_at)
        session = msgspec.structs.replace(session, host=host)
        if not seen.write_problem or session.state in (SessionState.ASKING, SessionState.UNSURE):
            return session  # a pending request stays open and can be answered
        return _mark_unsure(session, f"{UNWRITTEN}: {seen.write_problem}")
    if session.generation == 0:
        if seen.is_folder_missing:
            return _mark_lost(session, host, FOLDER_GONE, session.created_at)
        setup_s = session.worktree.setup_s if session.worktree else 0.0
        if -START_S < now - session.created_at < START_S + setup_s:
            return msgspec.structs.replace(session, host=host)
        return _mark_lost(session, host, NEVER_STARTED, session.created_at)
    since = max(session.since, seen.written_at)
    if session.mode is Mode.INTERPRETER:
        return _derive_interpreter(session, seen, host, since)
    if session.mode is Mode.SDK and seen.agent_runs:
        why = f"{AGENT_LEFT} (pid {session.pid})" if session.pid else AGENT_LEFT
        session = msgspec.structs.replace(session, asking=None, requests=(), host=host)
        return _mark_unsure(session, why, since=since)
    if session.mode is not Mode.TMUX or (session.pid is not None and not seen.agent_runs):
        return _mark_lost(session, host, HOST_GONE, since)
    session = msgspec.structs.replace(session, asking=None, host=host)
    return _mark_unsure(session, AGENT_ALIVE if seen.agent_runs else AGENT_UNKNOWN, since=since)


def _correct_times(session: Session, seen: Liveness, now: float) -> tuple[Session, Liveness]:
    """Return both with the times of the clock here, *session* as it is judged at *now*."""
    ahead_s = seen.clock_offset_s
    recheck_at = session.recheck_at
    if recheck_at is not None and recheck_at <= now + ahead_s and seen.host is not None:
        session, recheck_at = apply_verdict(session, now + ahead_s, since=recheck_at), None
    session = msgspec.structs.replace(
        session,
        since=session.since and session.since - ahead_s,
        finished_at=session.finished_at and session.finished_at - ahead_s,
        limited_until=None if session.limited_until is None else session.limited_until - ahead_s,
        recheck_at=None if recheck_at is None else recheck_at - ahead_s,
        requests=tuple(msgspec.structs.replace(ask, asked_at=ask.asked_at - ahead_s) for ask in session.requests),
    )
    return session, seen._replace(written_at=seen.written_at and seen.written_at - ahead_s)


def _derive_interpreter(session: Session, seen: Liveness, host: HostProbe, since: float) -> Session:
    sandbox_state = session.sandbox_state
    if sandbox_state is not None and sandbox_state.is_asleep and not sandbox_state.held:
        return msgspec.structs.replace(session, host=host)
    if not seen.agent_runs:
        return _mark_lost(session, host, SANDBOX_GONE, since)
    return _mark_unsure(msgspec.structs.replace(session, host=host), SANDBOX_ALIVE, since=since)


def _mark_unsure(session: Session, why: str, *, source: str = "host", since: float | None = None) -> Session:
    """*since*: None if its state has been unknown since its last event."""
    since = session.since if since is None else since
    return msgspec.structs.replace(session, state=SessionState.UNSURE, unsure_why=why, source=source, since=since)


def _mark_lost(session: Session, host: HostProbe, why: str, since: float) -> Session:
    """A lost session has no open requests: no process could take the answer.

    One that was being hibernated is hibernated: its host ended after the agent, or with it.
    """
    if session.freed_bytes is not None:
        return msgspec.structs.replace(session, state=SessionState.HIBERNATED, source="host", since=since, host=host)
    return msgspec.structs.replace(
        session,
        state=SessionState.LOST,
        unsure_why=None,
        asking=None,
        requests=(),
        limited_until=None,
        end_why=why,
        source="host",
        since=since,
        host=host,
    )
