"""What a pane's output asks of its terminal that tmux keeps to itself: clipboard and cursor shape. Sans-IO.

Our tmux neither sets the clipboard of whoever is attached nor tells (before 3.6) what the cursor looks like: both are
picked out of what the pane prints. A question for the clipboard's content is never answered.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

from kasmon.clean import outgoing

CLIPBOARD_BYTES: Final = 100_000
"""The longest text, in bytes, that a program may put on the clipboard."""
_LONGEST: Final = CLIPBOARD_BYTES * 4 // 3 + 64

_CLIPBOARD: Final = re.compile(rb"\x1b\]52;[cpqs0-7]{0,12};([^\x07\x1b]*)(?:\x07|\x1b{1,2}\\)")
_BEGUN: Final = re.compile(rb"\x1b\]52;[^\x07\x1b]*\x1b{0,2}$")
_SHAPE: Final = re.compile(rb"\x1b\[([0-6]?) q|\x1bc|\x1b\[!p")
_SHAPES: Final = {b"3": "underline", b"4": "underline", b"5": "bar", b"6": "bar"}
_TAIL: Final = 8
"""So many bytes may be the beginning of something."""


class Clip(NamedTuple):
    """A text for the clipboard; None where it is longer than allowed."""

    text: str | None


class Signs:
    """Reads one pane's output, in pieces of any size."""

    def __init__(self) -> None:
        self.shape = ""
        """`underline`, `bar`, or `block`; empty before the program said anything."""
        self._kept = b""
        self._skips = False
        """In the middle of a text for the clipboard that is too long."""

    def feed(self, data: bytes) -> list[Clip]:
        """What *data* puts on the clipboard, in order. Empty *data* says that some output was not heard."""
        if not data:
            self._kept, self._skips = b"", False
            return []
        if not self._kept and b"\x1b" not in data and not self._skips:
            return []
        data = self._kept + data
        self._kept = b""
        if self._skips:
            end = re.search(rb"\x07|\x1b", data)
            if end is None:
                return []
            self._skips, data = False, data[end.start() :]
        for match in _SHAPE.finditer(data):
            self.shape = _SHAPES.get(match[1] or b"", "block")
        clips = [clip for match in _CLIPBOARD.finditer(data) if (clip := _read(match[1])) is not None]
        if begun := _BEGUN.search(data):
            if len(data) - begun.start() > _LONGEST:
                self._skips = True
                clips.append(Clip(None))
            else:
                self._kept = data[begun.start() :]
        elif (last := data.rfind(b"\x1b", max(len(data) - _TAIL, 0))) >= 0:
            self._kept = data[last:]
        return clips


def _read(encoded: bytes) -> Clip | None:
    """The text that *encoded* stands for; None for a question, an empty text, and what is no text."""
    if len(encoded) > _LONGEST:
        return Clip(None)
    try:
        text = outgoing(base64.b64decode(encoded, validate=True).decode("utf-8", "replace"))
    except (binascii.Error, ValueError):
        return None
    if len(text.encode()) > CLIPBOARD_BYTES:
        return Clip(None)
    return Clip(text) if text else None
