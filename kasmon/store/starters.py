"""Which session's agent started which session, as the fleet's log has it: also of sessions that were removed since."""

import contextlib
import threading
from collections.abc import Mapping
from typing import TypeAlias

from kasmon.errors import LogMissingError
from kasmon.model.commands import ActingAgent
from kasmon.model.events import SessionCreated
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.event_log import START, EventLog

Starters: TypeAlias = Mapping[SessionId, ActingAgent | None]


def read_starters(paths: Paths) -> Starters:
    """Return each session that was ever created, oldest first, with the agent that started it. Blocks."""
    return StarterLog(paths).read()


class StarterLog:
    """What `read_starters` returns, for one that reads it again and again: only what was added is read."""

    def __init__(self, paths: Paths) -> None:
        self._log, self._cursor = EventLog(paths.fleet_log), START
        self._starters: dict[SessionId, ActingAgent | None] = {}
        self._lock = threading.Lock()

    def read(self) -> Starters:
        """Return what `read_starters` does. Blocks. Safe in several threads."""
        with self._lock:
            if (size := self._log.size()) < self._cursor:
                self._cursor, self._starters = START, {}
            with contextlib.suppress(LogMissingError):
                for event, cursor in self._log.read(self._cursor) if size > self._cursor else ():
                    self._cursor = cursor
                    if isinstance(event, SessionCreated):
                        self._starters[event.launch.session] = event.launch.actor
            return dict(self._starters)


def find_ancestors(session: SessionId, starters: Starters) -> list[SessionId]:
    """Return *session*, the one whose agent started it, and so on up to the top."""
    found = [session]
    while (above := starters.get(found[-1])) and above.is_identified and above.session not in found:
        found.append(above.session)
    return found


def find_starter_elsewhere(session: SessionId, starters: Starters) -> ActingAgent | None:
    """Return the agent of another machine that started *session*, or one above it; None if none did."""
    for each in find_ancestors(session, starters):
        if (starter := starters.get(each)) is not None and starter.machine:
            return starter
    return None


def find_descendants(session: SessionId, starters: Starters) -> list[SessionId]:
    """Return the sessions that the agent of *session* started, and those that theirs did, oldest first."""
    return [each for each in starters if session in find_ancestors(each, starters)[1:]]
