"""Whether a pane's program takes a paste as one (bracketed paste), by what it was heard to ask for. Sans-IO."""

import re
from typing import Final

TAIL: Final = 32
"""So many bytes of what came last may be the beginning of a sequence."""
_ASKED: Final = re.compile(rb"\x1b(?:\[\?([\d;]{1,24})([hl])|(c)|(\[!p))")
MODE: Final = b"2004"


class Brackets:
    """Of one pane. tmux tells it itself since 3.7."""

    def __init__(self) -> None:
        self.is_on: bool | None = None
        """None where nobody heard all of its output."""
        self._tail = b""

    def begin(self) -> None:
        """A new program runs, and all that it prints from here on will be heard."""
        self.is_on, self._tail = False, b""

    def skipped(self) -> None:
        """Some output was not heard."""
        self.is_on, self._tail = None, b""

    def heard(self, data: bytes) -> None:
        """The pane printed *data*."""
        text = self._tail + data
        if b"\x1b" not in text:
            self._tail = b""
            return
        end = 0
        for asked in _ASKED.finditer(text):
            end = asked.end()
            if asked[1] is None:
                self.is_on = False
            elif MODE in asked[1].split(b";"):
                self.is_on = asked[2] == b"h"
        self._tail = text[max(end, len(text) - TAIL) :]
