"""The transcripts that were looked at lately, and the diffs seen in them; filled by whoever reads the logs."""

from collections import OrderedDict
from typing import Final

from kasmon.host.wire import Written
from kasmon.model.event import ToolFinished
from kasmon.model.permission import SessionId
from kasmon.store.log import START, Cursor
from kasmon.tui.world import Heard

KEPT: Final = 8
"""How many transcripts are kept."""


class Told:
    """One session's transcript, how far its log is read, and its last diff."""

    def __init__(self) -> None:
        from kasmon.model.transcript import Transcript  # not before the first frame

        self.transcript = Transcript()
        self.cursor: Cursor = START
        self.diff = ""

    def take(self, heard: Heard) -> None:
        """File what was heard."""
        if isinstance(heard, Written):
            self.transcript.write(heard.text, heard.thinking)
            return
        for event in heard.events:
            self.transcript.add(event)
            if isinstance(event, ToolFinished) and event.diff:
                self.diff = event.diff
        self.cursor = heard.cursor


class Transcripts:
    """The transcripts by session; those that were not looked at for longest go first."""

    def __init__(self) -> None:
        self._told: OrderedDict[SessionId, Told] = OrderedDict()

    def of(self, session: SessionId) -> Told:
        told = self._told.setdefault(session, Told())
        self._told.move_to_end(session)
        while len(self._told) > KEPT:
            self._told.popitem(last=False)
        return told

    def known(self, session: SessionId) -> Told | None:
        return self._told.get(session)

    def drop(self, session: SessionId) -> None:
        self._told.pop(session, None)
