"""Ask the terminal for the picture in its clipboard, and take the reply out of the input. Sans-IO.

The protocol is kitty's OSC 5522 (https://sw.kovidgoyal.net/kitty/clipboard/). A terminal that does not know it sends
nothing, nor does tmux; kitty asks the user first. Each question has an id, which the terminal repeats in each piece of
its reply: so the late rest of an earlier reply is no part of the next one.
"""

import math
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Final

from kasmon.model.prompts.image import IMAGE_BYTES, SUFFIXES

KINDS: Final = b64encode(" ".join(SUFFIXES).encode()).decode()
"""Every kind of picture that agents accept, as the protocol names them."""
HOLD_S: Final = 0.01
"""How long ESC waits for the rest of a possible reply, in seconds."""
INNER_HOLD_S: Final = 0.5
"""The same within a reply, whose end begins with ESC too."""
STALL_S: Final = 2.0
"""How long a piece of a reply may take, in seconds; from then on it is dropped, and the reply with it."""
DROP_S: Final = 10.0
"""How long the rest of a dropped piece is dropped too, in seconds. Keys do not extend it."""
LONGEST_PACKET: Final = 1 << 20
"""A longer piece of a reply is dropped; kitty's have 4 KiB of data."""
REASONS: Final = {
    "EPERM": "the terminal was not permitted to read its clipboard",
    "ENOSYS": "the terminal does not read that clipboard",
    "EBUSY": "the terminal is busy",
}
"""What the protocol's errors mean."""
NO_PICTURE: Final = "there is no picture in the clipboard"
TOO_LONG: Final = "the picture in the clipboard is too large"
BROKEN: Final = "the terminal's reply broke off"
_CERTAIN: Final = b"\x1b]5522;"
_INNER: Final = re.compile(rb"[A-Za-z0-9+/=:;,._-]*")
"""What a piece consists of; any other byte before its end is a key."""
_KEY: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])|[^\x1b]", re.DOTALL)
_KEY_BEGUN: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")


class ClipboardReply:
    """Finds the reply in input that comes in pieces of any size. Before the first `expect` it changes nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.picture = b""
        """The picture of the last reply; empty if it had none."""
        self.problem = ""
        """Why it had none."""
        self.is_over = False
        """Whether a whole reply came since `expect`."""
        self._clock = clock
        self._asked = 0
        """How many questions were asked; the id of the last one."""
        self._data: dict[bytes, bytearray] = {}
        """The media types as sent -> their data so far."""
        self._size = 0
        self._is_broken = False
        """Whether a piece of this reply was dropped."""
        self._held = b""
        """A possible beginning of a piece, or of a key within one."""
        self._piece = bytearray()
        self._piece_asked = 0
        """`_asked` when the current piece began."""
        self._until: float | None = None
        """When the current piece is given up, or was to be dropped, by the clock; None outside of a piece."""
        self._is_dropping = False
        self._came_at = -math.inf
        """When the last piece of the reply came, by the clock."""

    def expect(self) -> str:
        """Expect a reply from now on; return the question to send."""
        self._asked, self.is_over, self.picture, self.problem = self._asked + 1, False, b"", ""
        self._data, self._size, self._is_broken, self._came_at = {}, 0, False, -math.inf
        return f"\x1b]5522;type=read:id={self._asked};{KINDS}\x1b\\"

    @property
    def is_reading(self) -> bool:
        """Whether a reply has begun and not ended: a piece of it came within `STALL_S`."""
        return not self.is_over and self._clock() - self._came_at < STALL_S

    @property
    def hold_s(self) -> float | None:
        """After this many seconds without input, call `settle`; None while nothing is pending."""
        if not self._held:
            return None
        return HOLD_S if self._until is None else INNER_HOLD_S

    def feed(self, data: bytes) -> bytes:
        """Return *data*, with what was pending before it, without replies."""
        if not self._asked:
            return data
        self._expire()
        kept = bytearray()
        data, self._held = self._held + data, b""
        while data:
            if self._until is not None:
                data = self._read_piece(data, kept)
                continue
            before, found, data = data.partition(_CERTAIN)
            if found:
                self._until, self._is_dropping, self._piece_asked = self._clock() + STALL_S, False, self._asked
            elif size := _count_partial(before):
                before, self._held = before[:-size], before[-size:]
            kept += before
        return bytes(kept)

    def settle(self) -> bytes:
        """Return the key that was pending, as nothing followed."""
        held, self._held = self._held, b""
        return held

    def _expire(self) -> None:
        """Drop a piece that takes too long, and expect no more of one that was dropped long ago."""
        now = self._clock()
        if self._until is not None and now >= self._until and not self._is_dropping:
            self._drop(self._until)
        if self._until is not None and now >= self._until:
            self._leave_piece()

    def _drop(self, at: float) -> None:
        self._note_break()
        self._piece.clear()
        self._until, self._is_dropping = at + DROP_S, True

    def _note_break(self) -> None:
        """Note that the current piece, of which nothing was dropped yet, has no end."""
        metadata, separator, _ = bytes(self._piece).partition(b";")
        whole = metadata if separator else metadata.rpartition(b":")[0]  # its last field may be cut
        self._is_broken = self._is_broken or self._is_own(_fields(whole))

    def _read_piece(self, data: bytes, kept: bytearray) -> bytes:
        """Take what *data* has of the current piece, or one key, which is added to *kept*; return the rest."""
        inner = _INNER.match(data)
        assert inner is not None
        data = data[inner.end() :]
        if not self._is_dropping:
            self._piece += inner[0]
            if len(self._piece) > LONGEST_PACKET:
                self._drop(self._clock())
        if data.startswith((b"\x07", b"\x1b\\")):
            piece, is_whole = bytes(self._piece), not self._is_dropping
            self._leave_piece()
            if is_whole:
                metadata, _, payload = piece.partition(b";")
                self._add(_fields(metadata), payload)
            return data[1 if data.startswith(b"\x07") else 2 :]
        if data.startswith(_CERTAIN):  # the current one has no end
            if not self._is_dropping:
                self._note_break()
            self._leave_piece()
            return data
        if _KEY_BEGUN.match(data) or (data and _CERTAIN.startswith(data)):
            self._held = data
            return b""
        key = _KEY.match(data)
        size = key.end() if key else 1
        kept += data[:size]
        return data[size:]

    def _leave_piece(self) -> None:
        self._piece.clear()
        self._until, self._is_dropping = None, False

    def _is_own(self, fields: Mapping[bytes, bytes]) -> bool:
        """Whether the current piece, with these *fields*, may be of the last question; a terminal may omit the id."""
        own = b"%d" % self._asked
        return self._piece_asked == self._asked and fields.get(b"id", own) == own

    def _add(self, fields: Mapping[bytes, bytes], payload: bytes) -> None:
        status = fields.get(b"status", b"")
        if fields.get(b"type") != b"read" or self.is_over or not self._is_own(fields):
            return
        self._came_at = self._clock()
        if status == b"OK":
            return
        if status == b"DATA":
            self._size += len(payload)
            if self._size * 3 // 4 <= IMAGE_BYTES * len(SUFFIXES):
                self._data.setdefault(fields.get(b"mime", b""), bytearray()).extend(_decode(payload))
            return
        self.is_over = True
        sent = {_decode(mime).decode("ascii", "replace"): bytes(data) for mime, data in self._data.items()}
        self.picture = next((sent[kind] for kind in SUFFIXES if sent.get(kind)), b"")
        self._data = {}
        if status != b"DONE":
            status_text = status.decode("ascii", "replace")
            self.problem, self.picture = REASONS.get(status_text, f"the terminal answered {status_text[:20]!r}"), b""
        elif self._is_broken:
            self.problem, self.picture = BROKEN, b""
        elif not self.picture or len(self.picture) > IMAGE_BYTES:
            self.problem, self.picture = TOO_LONG if self._size * 3 // 4 > IMAGE_BYTES else NO_PICTURE, b""


def _fields(metadata: bytes) -> dict[bytes, bytes]:
    return {name: value for name, _, value in (each.partition(b"=") for each in metadata.split(b":"))}


def _decode(payload: bytes) -> bytes:
    try:
        return b64decode(payload)
    except ValueError:
        return b""


def _count_partial(data: bytes) -> int:
    """Return how many bytes at the end of *data* may begin a piece."""
    return next((size for size in range(len(_CERTAIN) - 1, 0, -1) if data.endswith(_CERTAIN[:size])), 0)
