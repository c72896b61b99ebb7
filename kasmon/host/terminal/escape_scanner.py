"""A pane's terminal requests that tmux does not forward: clipboard and cursor shape. Sans-IO.

kasmon's tmux neither sets the clipboard of attached terminals nor reports (before 3.6) the cursor's shape: both are
read from the pane's output. A query for the clipboard's content is never answered.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

from kasmon.sanitize import outgoing
from kasmon.terminal_text.sequences import Grammar, SequenceScanner

CLIPBOARD_BYTES: Final = 100_000
"""The longest text, in bytes, that a program may put on the clipboard."""
_LONGEST: Final = CLIPBOARD_BYTES * 4 // 3 + 64

_CLIPBOARD: Final = b"]52;"
_SIGNS: Final = Grammar((_CLIPBOARD,), rb"\[[0-6]? q|c|\[!p", longest_bytes=_LONGEST)
_SELECTION: Final = re.compile(rb"[cpqs0-7]{0,12};")
_SHAPES: Final = {b"3": "underline", b"4": "underline", b"5": "bar", b"6": "bar"}


class ClipboardText(NamedTuple):
    """A text for the clipboard; None if it is longer than allowed."""

    text: str | None


class EscapeScanner:
    """Reads one pane's output, in pieces of any size."""

    def __init__(self) -> None:
        self.shape = ""
        """`underline`, `bar`, or `block`; empty until the program set it."""
        self._scanner = SequenceScanner(_SIGNS)

    def feed(self, data: bytes) -> list[ClipboardText]:
        """Return what *data* puts on the clipboard, in order. Empty *data* means that some output was missed."""
        if not data:
            self._scanner.rest = b""
        if not self._scanner.rest and b"\x1b" not in data:
            return []
        clips: list[ClipboardText] = []
        for introducer, text in self._scanner.feed(data):
            if introducer != _CLIPBOARD:
                self.shape = _SHAPES.get(introducer[1:2], "block")
            elif (clip := _read(text)) is not None:
                clips.append(clip)
        return clips


def _read(said: bytes | None) -> ClipboardText | None:
    """Return the text in *said*, `c;` and Base64; None for a query, an empty text, or no text."""
    if said is None:
        return ClipboardText(None)
    selection = _SELECTION.match(said)
    if selection is None:
        return None
    try:
        text = outgoing(base64.b64decode(said[selection.end() :], validate=True).decode("utf-8", "replace"))
    except (binascii.Error, ValueError):
        return None
    if len(text.encode()) > CLIPBOARD_BYTES:
        return ClipboardText(None)
    return ClipboardText(text) if text else None
