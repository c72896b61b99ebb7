"""Window titles in what a pane prints: OSC 0 and 2, and tmux's own ESC k. Sans-IO.

Agents show their state there, some ten times a second. So a title is read at once, without asking tmux.
"""

from typing import Final

from kasmon.terminal_text.sequences import Grammar, SequenceScanner

_TITLES: Final = Grammar((b"]0;", b"]2;", b"k"), longest_bytes=1024)


class TitleScanner:
    """Finds titles in a pane's output, however it is cut into pieces."""

    def __init__(self) -> None:
        self._scanner = SequenceScanner(_TITLES)

    def feed(self, data: bytes) -> bytes | None:
        """Return the last title that *data* completes, as foreign bytes; None if it completes none."""
        if not self._scanner.rest and b"\x1b" not in data:
            return None
        found = None
        for _, title in self._scanner.feed(data):
            found = found if title is None else title
        return found
