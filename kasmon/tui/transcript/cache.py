"""The transcripts that were shown lately, with their last diffs; filled by the reader of the logs."""

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from kasmon.host.rpc.frames import TextDelta
from kasmon.model.events import ToolFinished
from kasmon.model.permission import SessionId
from kasmon.store.event_log import START, Cursor
from kasmon.tui.gateway.protocol import TranscriptUpdate

if TYPE_CHECKING:
    from kasmon.model.transcript.layout import Transcript

KEPT: Final = 8


class SessionTranscript:
    """One session's transcript, the position up to which its log is read, and its last diff."""

    def __init__(self) -> None:
        from kasmon.model.transcript.layout import Transcript  # not before the first frame

        self.transcript = Transcript()
        self.cursor: Cursor = START
        self._end: Transcript | None = None
        """The end of a long log, until all of it is read."""
        self.diff = ""
        """The last reported change, as a unified diff; empty if none is known."""

    @property
    def shown(self) -> "Transcript":
        """The transcript to show: the whole, or its end while the rest is being read."""
        return self._end or self.transcript

    @property
    def is_whole(self) -> bool:
        """Whether a long log is read completely."""
        return self._end is None

    def add_batch(self, update: TranscriptUpdate) -> None:
        if isinstance(update, TextDelta):
            self.transcript.write(update.text, update.thinking)
            if self._end is not None:
                self._end.write(update.text, update.thinking)
            return
        if update.is_end:
            self._end = type(self.transcript)()
            for event in update.events:
                self._end.add(event)
            return
        if not update.more:
            self._end = None
        for event in update.events:
            self.transcript.add(event)
            if isinstance(event, ToolFinished) and event.diff:
                self.diff = event.diff
        self.cursor = update.cursor


class TranscriptCache:
    """The transcripts by session; the least recently shown are dropped first."""

    def __init__(self) -> None:
        self._transcripts: OrderedDict[SessionId, SessionTranscript] = OrderedDict()

    def of(self, session: SessionId) -> SessionTranscript:
        """Return the transcript of *session*, which is shown now; an empty one if none is cached."""
        transcript = self._transcripts.setdefault(session, SessionTranscript())
        self._transcripts.move_to_end(session)
        while len(self._transcripts) > KEPT:
            self._transcripts.popitem(last=False)
        return transcript

    def get(self, session: SessionId) -> SessionTranscript | None:
        """Return the transcript of *session* if it is cached; it does not count as shown."""
        return self._transcripts.get(session)

    def drop(self, session: SessionId) -> None:
        self._transcripts.pop(session, None)
