"""Window titles in what a pane prints: OSC 0 and 2, and tmux's own ESC k. Sans-IO.

Agents tell their state there, some of them ten times a second. So a title is heard at once, without asking tmux.
"""

import re
from typing import Final

LONGEST_BYTES: Final = 1024
"""A title that is longer than this is none."""
_TITLE: Final = re.compile(
    rb"(?:\x1b\][02];([^\x07\x1b]{0,1024})(?:\x07|\x1b\\))|(?:\x1bk([^\x07\x1b]{0,1024})\x1b\\)", re.DOTALL
)
_BEGUN: Final = re.compile(rb"\x1b(?:\][02]?|\][02];[^\x07\x1b]{0,1024}\x1b?|k[^\x07\x1b]{0,1024}\x1b?)?\Z", re.DOTALL)


class TitleScanner:
    """Finds titles in a pane's output, however it is cut into pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes | None:
        """The last title that *data* completes, foreign bytes; None if it completes none."""
        if not self._rest and b"\x1b" not in data:
            return None
        data = self._rest + data
        found, end = None, 0
        for match in _TITLE.finditer(data):
            found, end = match[1] if match[1] is not None else match[2], match.end()
        begun = _BEGUN.search(data, max(end, len(data) - LONGEST_BYTES - 8))
        self._rest = data[begun.start() :] if begun else b""
        return found
