"""One turn of an interpreter: its request, time limit, output so far, and the clients that wait for its answer."""

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
"""So that an answer always fits into a frame, whatever its bytes."""

_decoder = codecs.getincrementaldecoder("utf-8")


class GuestTurn:
    """A run, or an internal operation (`do` is not `run`) that needs the interpreter exclusively as well."""

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
        """Its key, by which it can be recalled and interrupted; empty where it has none."""
        self.timeout_s = timeout_s
        self.nonce = os.urandom(8).hex()
        """Part of the interpreter's answer; an answer without it is not the interpreter's."""
        self.keep = {stream: TruncatingBuffer(min(cap, MOST_CAP_BYTES)) for stream in STREAMS}
        self._decoders = {stream: _decoder("replace") for stream in STREAMS}
        self.listeners: list[Callable[[str, str], object]] = []
        """Each is called with the name of a stream, and the text that arrived on it."""
        self.waiting: list[Callable[[dict[str, object]], None]] = []
        """Each is called with the answer, once."""
        self.began: list[Callable[[], None]] = []
        """Each is called when the turn starts."""
        self.begun_at = 0.0
        self.number = 0
        self.timer: Timer | None = None
        self.again: Timer | None = None
        """When the second interrupt is sent: the first one may have come before the code started."""
        self.hears_at = math.inf
        """The time from which an interrupt has effect; infinite before its code has started."""
        self.is_unwanted = False
        """An interrupt was requested before that."""
        self.held: Timer | None = None
        """When that early interrupt is sent."""
        self.overdue = self.interrupted = self.killed = self.restarted = False
        self.lost_before = ""
        """What happened to the interpreter's state before this run; empty where nothing did."""
        self.carried = False
        """Whether a restarted interpreter has the state of the one before."""
        self.earlier = ("", "")
        """Output of background jobs on each stream since the last run."""

    def begin(self) -> None:
        self.begun_at = time.monotonic()
        for call in self.began:
            call()

    def handle_output(self, stream: str, data: bytes) -> None:
        """Handle *data* that the interpreter, or a process it started, wrote to *stream*."""
        self.keep[stream].add(data)
        if self.listeners and (text := self._decoders[stream].decode(data)):
            self._tell(stream, text)

    def finish_output(self) -> None:
        """Handle the end of its output."""
        for stream in STREAMS if self.listeners else ():
            if text := self._decoders[stream].decode(b"", final=True):
                self._tell(stream, text)

    def _tell(self, stream: str, text: str) -> None:
        for listener in self.listeners:
            listener(stream, text)

    def answer(self, words: dict[str, object]) -> None:
        """Send *words* to all waiting clients."""
        self.finish_output()
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call(words)
