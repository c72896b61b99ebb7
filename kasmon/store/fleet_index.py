"""What the logs add up to: every session folded, and how far each log was read.

`fleet_index.jsonl` says which sessions there are and what they are called; each session's own log says the rest. The
two touch different fields, so the order in which they are read does not matter.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kasmon.errors import LogMissingError
from kasmon.model.events import Event, SessionCreated, SessionForgotten, SessionRenamed, SessionViewed
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session, created
from kasmon.paths import Paths, check_regular
from kasmon.store.event_log import START, Cursor, EventLog

INODE_MASK = 0x7FFF_FFFF_FFFF_FFFF
"""Some file systems number beyond what SQLite's signed integers hold."""


class FoldedSession(NamedTuple):
    """One session as its facts up to `cursor` have it."""

    session: Session
    cursor: Cursor = START
    inode: int = 0
    """Of the log that was read; 0 when none was there."""
    seen: int = 0
    """How long the log was then; beyond the cursor lies at most a half-written line."""


class FleetMoved(NamedTuple):
    """What a look at `fleet_index.jsonl` brought."""

    changed: frozenset[SessionId] = frozenset()
    gone: frozenset[SessionId] = frozenset()


class FleetIndex:
    """All logs of one kasmon, folded as far as they were read. Only `read_fleet` and `read_session` move it."""

    def __init__(self, places: Paths) -> None:
        self.sessions: dict[SessionId, FoldedSession] = {}
        """Every session that is not forgotten."""
        self.cursor = START
        """How far `fleet_index.jsonl` was read."""
        self.inode = 0
        self.folded_bytes = 0
        """How much of the logs was read and folded."""
        self._log = EventLog(places.fleet_log)
        self._fleet_log = str(places.fleet_log)
        self._folders = str(places.sessions)
        self._seen = 0

    def start_at(self, sessions: dict[SessionId, FoldedSession], cursor: Cursor, inode: int) -> None:
        """Go on from what somebody noted earlier, instead of from the logs' beginning."""
        self.sessions, self.cursor, self.inode, self._seen = sessions, cursor, inode, cursor

    def read_fleet(self) -> FleetMoved:
        """Fold what was added to `fleet_index.jsonl`; if it is not the file that was read before, everything from
        scratch.

        Raises:
            OSError: if it is there and cannot be read; nothing changed then.
        """
        size, inode = _facts(self._fleet_log)
        if size == self._seen and inode == self.inode:
            return FleetMoved()
        same = inode == self.inode and size >= self.cursor
        cursor = self.cursor if same else START
        added = list(self._log.read(cursor)) if size > cursor else []
        self.folded_bytes += max(0, size - cursor)
        before = self.sessions
        self.sessions = dict(before) if same else {}
        for event, _ in added:
            _place(self.sessions, event)
        self.cursor = added[-1][1] if added else cursor
        self.inode, self._seen = inode, max(size, self.cursor)
        return _moved(before, self.sessions)

    def read_session(self, session: SessionId) -> bool:
        """Fold what was added to the session's own log; whether anything was.

        A log that is not the one that was read before, or shorter than what was read of it, is folded from scratch.

        Raises:
            OSError: if it is there and cannot be read; nothing changed then.
        """
        known = self.sessions[session]
        size, inode = _facts(path := f"{self._folders}/{session}/events.jsonl")
        if size == known.seen and inode == known.inode:
            return False
        folded, cursor = known.session, known.cursor
        if inode != known.inode or size < cursor:
            folded, cursor = self._born(session) if cursor else folded, START
        if size > cursor:
            start = cursor
            try:
                for event, end in EventLog(Path(path)).read(start):
                    folded, cursor = apply(folded, event), end
            except LogMissingError:
                return False
            self.folded_bytes += size - start
        self.sessions[session] = FoldedSession(folded, cursor, inode, max(size, cursor))
        return folded is not known.session

    def _born(self, session: SessionId) -> Session:
        """The session as `fleet_index.jsonl` alone describes it."""
        fresh: dict[SessionId, FoldedSession] = {}
        for event, _ in self._log.read():
            _place(fresh, event)
        return fresh[session].session if session in fresh else self.sessions[session].session


def named(events: Iterable[Event]) -> dict[SessionId, str]:
    """The names of all sessions that are not forgotten, by the facts of `fleet_index.jsonl`."""
    sessions: dict[SessionId, FoldedSession] = {}
    for event in events:
        _place(sessions, event)
    return {session: folded.session.name for session, folded in sessions.items()}


def _place(sessions: dict[SessionId, FoldedSession], event: Event) -> None:
    """Put what *event*, a fact of `fleet_index.jsonl`, says into *sessions*."""
    match event:
        case SessionCreated():
            sessions.setdefault(event.launch.session, FoldedSession(created(event.launch, event.at, event.machine)))
        case SessionRenamed() | SessionViewed() if event.session in sessions:
            known = sessions[event.session]
            sessions[event.session] = known._replace(session=apply(known.session, event))
        case SessionForgotten():
            sessions.pop(event.session, None)
        case _:
            return


def _moved(before: dict[SessionId, FoldedSession], after: dict[SessionId, FoldedSession]) -> FleetMoved:
    changed = frozenset(session for session, folded in after.items() if before.get(session) is not folded)
    return FleetMoved(changed, frozenset(before.keys() - after.keys()))


def _facts(path: str) -> tuple[int, int]:
    """Size and inode of the file at *path*; zeros if there is none.

    Raises:
        OSError: if it cannot be looked at, or is not a regular file.
    """
    try:
        facts = os.stat(path)  # noqa: PTH116  # 5,000 at a time: a Path costs as much as the call
    except FileNotFoundError:
        return 0, 0
    check_regular(path, facts)
    return facts.st_size, facts.st_ino & INODE_MASK
