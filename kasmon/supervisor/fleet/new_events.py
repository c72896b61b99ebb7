"""The events added to one session's log from now on, for callers that wait for one of them."""

from kasmon.errors import LogMissingError
from kasmon.model.events import Event
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.event_log import Cursor, EventLog


class NewEvents:
    """Remembers the read position, initially the current end of the log."""

    def __init__(self, places: Paths, session: SessionId) -> None:
        self._log = EventLog(places.log(session))
        self._cursor = Cursor(self._log.size())

    def more(self) -> list[Event]:
        """Return the events since the last call, oldest first; none while there is no log."""
        try:
            read = list(self._log.read(self._cursor))
        except LogMissingError:
            return []
        self._cursor = read[-1][1] if read else self._cursor
        return [event for event, _ in read]
