"""Whether a pane's program accepts bracketed paste, by the control sequences it printed. Sans-IO."""

from typing import Final

from kasmon.terminal_text.sequences import Grammar, SequenceScanner

_MODE_AND_RESETS: Final = Grammar(controls=rb"\[\?(?:[\d;]{1,20};)?2004(?:;[\d;]{1,20})?[hl]|c|\[!p")


class BracketedPasteTracker:
    """The mode of one pane. tmux reports it itself since 3.7."""

    def __init__(self) -> None:
        self.is_on: bool | None = None
        """None if some of its output was not received."""
        self._scanner = SequenceScanner(_MODE_AND_RESETS)

    def begin(self) -> None:
        """Reset for a new program, all of whose output will be received."""
        self.is_on, self._scanner.rest = False, b""

    def handle_missed_output(self) -> None:
        """Record that some output was not received."""
        self.is_on, self._scanner.rest = None, b""

    def feed(self, data: bytes) -> None:
        """Process *data* that the pane printed."""
        if self._scanner.rest or b"\x1b" in data:
            for control, _ in self._scanner.feed(data):
                self.is_on = control.endswith(b"h")
