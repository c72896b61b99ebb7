"""Ask the terminal for the picture in its clipboard, and take the reply out of the input. Sans-IO.

The protocol is kitty's OSC 5522 (https://sw.kovidgoyal.net/kitty/clipboard/). A terminal that does not know it sends
nothing, nor does tmux; kitty asks the user first.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final

from kasmon.model.prompts.image import IMAGE_BYTES, SUFFIXES

QUERY: Final = f"\x1b]5522;type=read;{b64encode(' '.join(SUFFIXES).encode()).decode()}\x1b\\"
"""Asks for every kind of picture that agents accept."""
HOLD_S: Final = 0.01
"""How long ESC waits for the rest of a possible reply, in seconds."""
STALL_S: Final = 2.0
"""How long an unfinished reply waits for its rest, in seconds; it is dropped then."""
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
_PACKET: Final = re.compile(rb"\x1b\]5522;([^;\x07\x1b]*)(?:;([^\x07\x1b]*))?(?:\x07|\x1b\\)")
_CERTAIN: Final = b"\x1b]5522;"


class ClipboardReply:
    """Finds the reply in input that comes in pieces of any size. Before the first `expect` it changes nothing."""

    def __init__(self) -> None:
        self.picture = b""
        """The picture of the last reply; empty if it had none."""
        self.problem = ""
        """Why it had none."""
        self.is_over = False
        """Whether a whole reply came since `expect`."""
        self._is_expected = False
        self._data: dict[bytes, bytearray] = {}
        """The media types as sent -> their data so far."""
        self._size = 0
        self._pending = b""

    def expect(self) -> None:
        """Expect a reply from now on: `QUERY` was sent."""
        self._is_expected, self.is_over, self.picture, self.problem = True, False, b"", ""
        self._data, self._size = {}, 0

    @property
    def hold_s(self) -> float | None:
        """If nothing comes for this long, call `settle`; None while nothing is pending."""
        return None if not self._pending else STALL_S if self._pending.startswith(_CERTAIN) else HOLD_S

    def feed(self, data: bytes) -> bytes:
        """Return *data*, with what was pending before it, without replies."""
        if not self._is_expected:
            return data
        data, self._pending = self._pending + data, b""
        kept, end = [], 0
        for match in _PACKET.finditer(data):
            kept.append(data[end : match.start()])
            end = match.end()
            self._add(_fields(match[1]), match[2] or b"")
        rest = data[end:]
        if (at := _beginning(rest)) is not None:
            rest, self._pending = rest[:at], rest[at:]
            if len(self._pending) > LONGEST_PACKET:
                self._pending = _CERTAIN
        return b"".join((*kept, rest))

    def settle(self) -> bytes:
        """Return what was pending: it was a key, as nothing followed. A reply without an end is dropped."""
        pending, self._pending = self._pending, b""
        return b"" if pending.startswith(_CERTAIN) else pending

    def _add(self, fields: Mapping[bytes, bytes], payload: bytes) -> None:
        status = fields.get(b"status", b"")
        if fields.get(b"type") != b"read" or self.is_over or status == b"OK":
            return
        if status == b"DATA":
            self._size += len(payload)
            if self._size * 3 // 4 <= IMAGE_BYTES * len(SUFFIXES):
                self._data.setdefault(fields.get(b"mime", b""), bytearray()).extend(_decoded(payload))
            return
        self.is_over = True
        sent = {_decoded(mime).decode("ascii", "replace"): bytes(data) for mime, data in self._data.items()}
        self.picture = next((sent[kind] for kind in SUFFIXES if sent.get(kind)), b"")
        self._data = {}
        if status != b"DONE":
            said = status.decode("ascii", "replace")
            self.problem = REASONS.get(said, f"the terminal answered {said[:20]!r}")
        elif not self.picture or len(self.picture) > IMAGE_BYTES:
            self.problem, self.picture = TOO_LONG if self._size * 3 // 4 > IMAGE_BYTES else NO_PICTURE, b""


def _fields(metadata: bytes) -> dict[bytes, bytes]:
    return {name: value for name, _, value in (each.partition(b"=") for each in metadata.split(b":"))}


def _decoded(payload: bytes) -> bytes:
    try:
        return b64decode(payload)
    except ValueError:
        return b""


def _beginning(data: bytes) -> int | None:
    """Return where the unfinished packet at the end of *data* begins; None without one."""
    at = data.rfind(_CERTAIN)
    if at >= 0:
        return at
    return next((len(data) - size for size in range(len(_CERTAIN) - 1, 0, -1) if data.endswith(_CERTAIN[:size])), None)
