"""One turn of an interpreter: its request, time limit, output so far, and the clients that wait for its answer."""

import codecs
import math
import os
import time
from collections.abc import Callable, Mapping

from kasmon.sandbox.guest.event_loop import Timer


class TruncatingBuffer:
    """Holds at most *cap* bytes of all data added."""

    def __init__(self, cap: int) -> None:
        self._half = max(1, cap // 2)
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        space = self._half - len(self._head)
        if space > 0:
            self._head += data[:space]
            data = data[space:]
        if data:
            self._tail += data[-self._half :]
            if len(self._tail) > 2 * self._half:
                del self._tail[: -self._half]

    def text(self) -> tuple[str, int]:
        """Return the text, and how many bytes of it are omitted; no character is split."""
        head, tail = bytes(self._head), bytes(self._tail[-self._half :])
        if len(head) + len(tail) == self.total:
            return (head + tail).decode("utf-8", "replace"), 0
        head, tail = _without_begun(head), _without_rest(tail)
        omitted = self.total - len(head) - len(tail)
        gap = f"\n[... {omitted} bytes omitted here ...]\n"
        return head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace"), omitted


def _without_begun(data: bytes) -> bytes:
    """Return *data* without an incomplete character at its end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the first byte of a character
            length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
    return data


def _without_rest(data: bytes) -> bytes:
    """Return *data* without the rest of a character at its start."""
    cut = 0
    while cut < min(3, len(data)) and data[cut] & 0xC0 == 0x80:
        cut += 1
    return data[cut:]


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
        self.key = ""
        """Its key, by which it can be recalled and interrupted; empty where it has none."""
        self.timeout_s = timeout_s
        self.nonce = os.urandom(8).hex()
        """Part of the interpreter's answer; an answer without it is not the interpreter's."""
        self.output = {stream: TruncatingBuffer(min(cap, MOST_CAP_BYTES)) for stream in STREAMS}
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
        self.interruptible_at = math.inf
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
        self.output[stream].add(data)
        if self.listeners and (text := self._decoders[stream].decode(data)):
            self._notify(stream, text)

    def finish_output(self) -> None:
        """Handle the end of its output."""
        for stream in STREAMS if self.listeners else ():
            if text := self._decoders[stream].decode(b"", final=True):
                self._notify(stream, text)

    def _notify(self, stream: str, text: str) -> None:
        for listener in self.listeners:
            listener(stream, text)

    def answer(self, message: dict[str, object]) -> None:
        """Send *message* to all waiting clients."""
        self.finish_output()
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call(message)
