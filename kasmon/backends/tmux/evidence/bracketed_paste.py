"""Whether a pane's program takes a paste as one (bracketed paste), by what it was heard to ask for. Sans-IO."""

from typing import Final

from kasmon.terminal_text.sequences import Grammar, SequenceScanner

_MODE_AND_RESETS: Final = Grammar(controls=rb"\[\?(?:[\d;]{1,20};)?2004(?:;[\d;]{1,20})?[hl]|c|\[!p")


class BracketedPasteTracker:
    """Of one pane. tmux tells it itself since 3.7."""

    def __init__(self) -> None:
        self.is_on: bool | None = None
        """None where nobody heard all of its output."""
        self._scanner = SequenceScanner(_MODE_AND_RESETS)

    def begin(self) -> None:
        """A new program runs, and all that it prints from here on will be heard."""
        self.is_on, self._scanner.rest = False, b""

    def skipped(self) -> None:
        """Some output was not heard."""
        self.is_on, self._scanner.rest = None, b""

    def heard(self, data: bytes) -> None:
        """The pane printed *data*."""
        if self._scanner.rest or b"\x1b" in data:
            for control, _ in self._scanner.feed(data):
                self.is_on = control.endswith(b"h")
