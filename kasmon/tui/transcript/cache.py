"""The transcripts that were looked at lately, and the diffs seen in them; filled by whoever reads the logs."""

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from kasmon.host.rpc.frames import TextDelta
from kasmon.model.events import ToolFinished
from kasmon.model.permission import SessionId
from kasmon.store.event_log import START, Cursor
from kasmon.tui.gateway.protocol import Heard

if TYPE_CHECKING:
    from kasmon.model.transcript.layout import Transcript

KEPT: Final = 8
"""How many transcripts are kept."""


class SessionTranscript:
    """One session's transcript, how far its log is read, and its last diff."""

    def __init__(self) -> None:
        from kasmon.model.transcript.layout import Transcript  # not before the first frame

        self.transcript = Transcript()
        self.cursor: Cursor = START
        self._end: Transcript | None = None
        """The end of a long story, until all of it is read."""
        self.diff = ""
        """The last change that it told of, as a unified diff; empty where none is known."""

    @property
    def shown(self) -> "Transcript":
        """What there is to show: all of it, or its end as long as the rest is being read."""
        return self._end or self.transcript

    @property
    def is_whole(self) -> bool:
        """Whether all of a long story is read."""
        return self._end is None

    def take(self, heard: Heard) -> None:
        """File what was heard."""
        if isinstance(heard, TextDelta):
            self.transcript.write(heard.text, heard.thinking)
            if self._end is not None:
                self._end.write(heard.text, heard.thinking)
            return
        if heard.is_end:
            self._end = type(self.transcript)()
            for event in heard.events:
                self._end.add(event)
            return
        if not heard.more:
            self._end = None
        for event in heard.events:
            self.transcript.add(event)
            if isinstance(event, ToolFinished) and event.diff:
                self.diff = event.diff
        self.cursor = heard.cursor


class TranscriptCache:
    """The transcripts by session; those that were not looked at for longest go first."""

    def __init__(self) -> None:
        self._told: OrderedDict[SessionId, SessionTranscript] = OrderedDict()

    def of(self, session: SessionId) -> SessionTranscript:
        """That of *session*, which is looked at now; an empty one where none is kept."""
        told = self._told.setdefault(session, SessionTranscript())
        self._told.move_to_end(session)
        while len(self._told) > KEPT:
            self._told.popitem(last=False)
        return told

    def known(self, session: SessionId) -> SessionTranscript | None:
        """That of *session*, where one is kept; this is no look at it."""
        return self._told.get(session)

    def drop(self, session: SessionId) -> None:
        self._told.pop(session, None)
