"""The state of all sessions, folded from the logs, and the position up to which each log was read.

`fleet.jsonl` lists the sessions and their names; each session's own log has the rest. The two set different
fields, so their reading order does not matter.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kasmon.errors import LogMissingError
from kasmon.model.events import Event, SessionCreated, SessionForgotten, SessionRenamed, SessionTagged, SessionViewed
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session, created
from kasmon.paths import Paths, check_regular
from kasmon.store.event_log import START, Cursor, EventLog

INODE_MASK = 0x7FFF_FFFF_FFFF_FFFF
"""Some file systems have inode numbers that exceed SQLite's signed integers."""


class FoldedSession(NamedTuple):
    """One session, folded from its events up to `cursor`."""

    session: Session
    cursor: Cursor = START
    inode: int = 0
    """The inode of the log that was read; 0 if there was none."""
    log_size: int = 0
    """The size of the log then, in bytes; behind the cursor is at most a half-written line."""


class FleetChange(NamedTuple):
    """The sessions that one read of `fleet.jsonl` changed or removed."""

    changed: frozenset[SessionId] = frozenset()
    removed: frozenset[SessionId] = frozenset()


class FleetIndex:
    """All logs of one kasmon, folded as far as they were read. Only `read_fleet` and `read_session` read further."""

    def __init__(self, paths: Paths) -> None:
        self.sessions: dict[SessionId, FoldedSession] = {}
        """All sessions that are not forgotten."""
        self.cursor = START
        """The position up to which `fleet.jsonl` was read."""
        self.inode = 0
        self.folded_bytes = 0
        """How many bytes of the logs were read and folded."""
        self._log = EventLog(paths.fleet_log)
        self._fleet_log = str(paths.fleet_log)
        self._folders = str(paths.sessions)
        self._read_size = 0

    def start_at(self, sessions: dict[SessionId, FoldedSession], cursor: Cursor, inode: int) -> None:
        """Continue from a saved state instead of the beginning of the logs."""
        self.sessions, self.cursor, self.inode, self._read_size = sessions, cursor, inode, cursor

    def read_fleet(self) -> FleetChange:
        """Fold the events added to `fleet.jsonl`; if it is another file than before, fold it from scratch.

        Raises:
            OSError: if it exists and cannot be read; nothing has changed then.
        """
        size, inode = _stat(self._fleet_log)
        if size == self._read_size and inode == self.inode:
            return FleetChange()
        same = inode == self.inode and size >= self.cursor
        cursor = self.cursor if same else START
        added = list(self._log.read(cursor)) if size > cursor else []
        self.folded_bytes += max(0, size - cursor)
        before = self.sessions
        self.sessions = dict(before) if same else {}
        for event, _ in added:
            _apply_fleet_event(self.sessions, event)
        self.cursor = added[-1][1] if added else cursor
        self.inode, self._read_size = inode, max(size, self.cursor)
        return _compare(before, self.sessions)

    def read_session(self, session: SessionId) -> bool:
        """Fold the events added to the session's log; return whether there were any.

        A log that is another file than before, or is now shorter than its read part, is folded from scratch.

        Raises:
            OSError: if it exists and cannot be read; nothing has changed then.
        """
        previous = self.sessions[session]
        size, inode = _stat(path := f"{self._folders}/{session}/events.jsonl")
        if size == previous.log_size and inode == previous.inode:
            return False
        folded, cursor = previous.session, previous.cursor
        if inode != previous.inode or size < cursor:
            folded, cursor = self._fold_created(session) if cursor else folded, START
        if size > cursor:
            start = cursor
            try:
                for event, end in EventLog(Path(path)).read(start):
                    folded, cursor = apply(folded, event), end
            except LogMissingError:
                return False
            self.folded_bytes += size - start
        self.sessions[session] = FoldedSession(folded, cursor, inode, max(size, cursor))
        return folded is not previous.session

    def _fold_created(self, session: SessionId) -> Session:
        """Return the session as `fleet.jsonl` alone describes it."""
        fresh: dict[SessionId, FoldedSession] = {}
        for event, _ in self._log.read():
            _apply_fleet_event(fresh, event)
        return fresh[session].session if session in fresh else self.sessions[session].session


def session_names(events: Iterable[Event]) -> dict[SessionId, str]:
    """Return the names of this kasmon's sessions that are not forgotten, from the events of `fleet.jsonl`."""
    sessions: dict[SessionId, FoldedSession] = {}
    for event in events:
        _apply_fleet_event(sessions, event)
    return {session: folded.session.name for session, folded in sessions.items() if not folded.session.via}


def _apply_fleet_event(sessions: dict[SessionId, FoldedSession], event: Event) -> None:
    match event:
        case SessionCreated():
            sessions.setdefault(
                event.launch.session, FoldedSession(created(event.launch, event.at, event.machine, event.via))
            )
        case SessionRenamed() | SessionTagged() | SessionViewed() if event.session in sessions:
            previous = sessions[event.session]
            sessions[event.session] = previous._replace(session=apply(previous.session, event))
        case SessionForgotten():
            sessions.pop(event.session, None)
        case _:
            return


def _compare(before: dict[SessionId, FoldedSession], after: dict[SessionId, FoldedSession]) -> FleetChange:
    changed = frozenset(session for session, folded in after.items() if before.get(session) is not folded)
    return FleetChange(changed, frozenset(before.keys() - after.keys()))


def _stat(path: str) -> tuple[int, int]:
    """Return size and inode of the file at *path*; zeros if there is none. Raises `OSError`."""
    try:
        facts = os.stat(path)  # noqa: PTH116  # noqa: PTH116  # 5,000 at a time: a Path costs as much as the call
    except FileNotFoundError:
        return 0, 0
    check_regular(path, facts)
    return facts.st_size, facts.st_ino & INODE_MASK
