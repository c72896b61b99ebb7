"""One thing that an interpreter is asked to do: for how long, what it said meanwhile, and who waits for the answer."""

import codecs
import math
import os
import time
from collections.abc import Callable, Mapping

from kasmon.sandbox.guest.event_loop import Timer
from kasmon.sandbox.guest.truncation import TruncatingBuffer

STREAMS = ("stdout", "stderr")
TIME_S = 30.0
CAP_BYTES = 256 * 1024
MOST_CAP_BYTES = 1024 * 1024
"""So that an answer always fits into a frame, whatever its bytes are."""

_decoder = codecs.getincrementaldecoder("utf-8")


class GuestTurn:
    """A run, or something of ours (`do` is not `run`) that needs the interpreter for itself as well."""

    def __init__(
        self,
        words: Mapping[str, object],
        *,
        do: str = "run",
        timeout_s: float = TIME_S,
        cap: int = CAP_BYTES,
        session: str = "",
    ) -> None:
        self.do, self.words, self.session = do, words, session
        self.word = ""
        """By which it is asked for again, and interrupted; empty where it has none."""
        self.timeout_s = timeout_s
        self.nonce = os.urandom(8).hex()
        """Stands in the interpreter's answer; what comes without it is not the interpreter's."""
        self.keep = {stream: TruncatingBuffer(min(cap, MOST_CAP_BYTES)) for stream in STREAMS}
        self._decoders = {stream: _decoder("replace") for stream in STREAMS}
        self.listeners: list[Callable[[str, str], object]] = []
        """Each is told, with the name of a stream, what comes on it."""
        self.waiting: list[Callable[[dict[str, object]], None]] = []
        """Each is given the answer, once."""
        self.began: list[Callable[[], None]] = []
        """Each is called when it is this turn's turn."""
        self.begun_at = 0.0
        self.number = 0
        self.timer: Timer | None = None
        self.again: Timer | None = None
        """When it is interrupted once more, since it may not have begun inside the interpreter the first time."""
        self.hears_at = math.inf
        """From when on an interrupt is heard; for ever unheard while its code has not begun."""
        self.is_unwanted = False
        """It was interrupted before that."""
        self.held: Timer | None = None
        """When it is interrupted that was before that."""
        self.overdue = self.interrupted = self.killed = self.restarted = False
        self.lost_before = ""
        """What became of the interpreter's state before this run; empty where nothing did."""
        self.carried = False
        """Whether a restarted interpreter has what the one before had."""
        self.earlier = ("", "")
        """What background jobs said on each stream since the last run."""

    def begin(self) -> None:
        self.begun_at = time.monotonic()
        for call in self.began:
            call()

    def heard(self, stream: str, data: bytes) -> None:
        """The interpreter, or what it started, said *data* on *stream*."""
        self.keep[stream].add(data)
        if self.listeners and (text := self._decoders[stream].decode(data)):
            self._tell(stream, text)

    def heard_all(self) -> None:
        """No more will come."""
        for stream in STREAMS if self.listeners else ():
            if text := self._decoders[stream].decode(b"", final=True):
                self._tell(stream, text)

    def _tell(self, stream: str, text: str) -> None:
        for listener in self.listeners:
            listener(stream, text)

    def answer(self, words: dict[str, object]) -> None:
        """Give *words* to all who wait."""
        self.heard_all()
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call(words)
