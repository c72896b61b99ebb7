"""The events added to one session's log from now on, for callers that wait for one of them."""

from kasmon.errors import LogMissingError
from kasmon.model.events import Event
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.event_log import Cursor, EventLog


class NewEvents:
    """Remembers the read position, initially *since*, or the current end of the log."""

    def __init__(self, paths: Paths, session: SessionId, since: Cursor | None = None) -> None:
        self._log = EventLog(paths.log(session))
        self.cursor = Cursor(self._log.size()) if since is None else since

    def skip(self) -> None:
        """Leave out all events until now."""
        self.cursor = Cursor(self._log.size())

    def more(self) -> list[Event]:
        """Return the events since the last call, oldest first; none while there is no log."""
        try:
            read = list(self._log.read(self.cursor))
        except LogMissingError:
            return []
        self.cursor = read[-1][1] if read else self.cursor
        return [event for event, _ in read]
