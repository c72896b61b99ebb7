"""Draws rows of styled text on the terminal; only changed rows are written, each in one piece."""

from collections.abc import Sequence
from typing import Final

from kasmon.model.transcript.text import TextLine, Token

COLOURS: Final[dict[Token, str]] = {
    Token.FAINT: "90",
    Token.HEADING: "1;35",
    Token.STRONG: "1",
    Token.CODE: "36",
    Token.CODE_BLOCK: "36",
    Token.BULLET: "35",
    Token.PROMPT: "1;34",
    Token.THOUGHT: "3;90",
    Token.TOOL: "1",
    Token.OUTPUT: "90",
    Token.OK: "32",
    Token.FAILED: "31",
    Token.ADDED: "32",
    Token.REMOVED: "31",
    Token.HUNK: "36",
    Token.NUMBER: "90",
    Token.DONE: "90",
    Token.DOING: "1;33",
    Token.ASKS: "1;33",
    Token.ANSWER: "33",
    Token.NOTICE: "34",
    Token.WARNING: "33",
    Token.ERROR: "1;31",
    Token.LIMIT: "33",
    Token.BOUNDARY: "90",
    Token.SESSION: "90",
}
BOLD_ONLY: Final = {Token.HEADING, Token.STRONG, Token.PROMPT, Token.TOOL, Token.DOING, Token.ASKS, Token.ERROR}
"""The tokens that are bold when colours are off."""
BAR: Final = "\x1b[7m"


def paint(line: TextLine, colours: bool) -> str:
    """Return *line* with its styles as SGR sequences."""
    pieces = []
    for text, token in line.spans:
        style = COLOURS.get(token, "") if colours else ("1" if token in BOLD_ONLY else "")
        pieces.append(f"\x1b[{style}m{text}\x1b[0m" if style and text else text)
    return "".join(pieces)


class Painter:
    """Tracks the content of the screen, to write only changes."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._size = (0, 0)

    def changes(self, rows: Sequence[str], size: tuple[int, int], cursor: tuple[int, int] | None) -> str:
        """Return the output that makes the screen of *size* show *rows* and the cursor at row and column, or hidden."""
        out = []
        if size != self._size:
            self._shown, self._size = [], size
            out.append("\x1b[0m\x1b[2J")
        for number, row in enumerate(rows):
            if number >= len(self._shown) or self._shown[number] != row:
                out.append(f"\x1b[{number + 1};1H\x1b[0m{row}\x1b[0m\x1b[K")
        self._shown = list(rows)
        place = f"\x1b[{cursor[0] + 1};{cursor[1] + 1}H\x1b[?25h" if cursor else ""
        return f"\x1b[?2026h\x1b[?25l{''.join(out)}{place}\x1b[?2026l" if out or cursor else "\x1b[?25l"
