"""A terminal's content at one moment: rows of text, the styles of their cells, cursor and title. Pure.

Rows come as tmux captures them (`captured`), where a style continues into the next row, or as the host stores them
(`shown`), where each row starts plain. Only text and styles are taken; everything else is dropped.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from kasmon.sanitize import clean_line
from kasmon.terminal_text import styles
from kasmon.terminal_text.styles import TextStyle, colour_numbers, read_row

LONGEST: Final = 500
"""How many characters of a row patterns are matched against; an ellipsis replaces the rest."""
MOST_ROWS: Final = 200
"""How many rows are read; of a taller screen, the lowest ones."""
LONGEST_TITLE: Final = 256

_GREY_CHANNELS: Final = 24
"""A colour whose channels (0 to 255) differ by at most this is a grey."""
_DARKEST_TEXT: Final = 60
_BRIGHTEST_GREY: Final = 200
"""A grey between these two is the colour of hints and placeholders."""


class CellStyle(NamedTuple):
    """The style of cells, as far as the rules need it."""

    bold: bool = False
    faint: bool = False
    """Dim, or the grey of hints."""
    reverse: bool = False
    foreground: str = ""
    background: str = ""
    is_drawing: bool = False


PLAIN: Final = CellStyle()


class StyledRun(NamedTuple):
    """Characters of a row with the same style; the end is exclusive."""

    start: int
    end: int
    style: CellStyle


class ScreenRow(NamedTuple):
    """One row, without trailing blanks."""

    text: str
    runs: tuple[StyledRun, ...]
    """The runs with a style other than plain, from left to right."""
    pattern_text: str
    """The text that patterns are matched against."""

    def styles(self, start: int, end: int) -> set[CellStyle]:
        """Return the styles of the non-blank characters from *start* to *end*."""
        return {self.style_at(at) for at in range(start, end) if not self.text[at : at + 1].isspace()}

    def style_at(self, at: int) -> CellStyle:
        """Return the style of the character at *at*, counted from 0 in the text and not in cells."""
        return next((run.style for run in self.runs if run.start <= at < run.end), PLAIN)

    def is_placeholder(self, start: int, end: int) -> bool:
        """Return whether the text from *start* to *end* is the hint of an empty field: faint after the cursor's cell.

        A text of one character is not: it may have been typed.
        """
        faint = {at for run in self.runs if run.style.faint for at in range(max(start, run.start), min(end, run.end))}
        solid = [at for at in range(start, end) if at not in faint and not self.text[at : at + 1].isspace()]
        return solid == [start] and self.style_at(start).reverse and len(self.text[start:end].strip()) > 1


class TerminalScreen:
    """The content of one terminal at one moment."""

    def __init__(
        self,
        rows: Sequence[ScreenRow],
        title: str = "",
        *,
        cursor: tuple[int, int] | None = None,
        cursor_visible: bool = True,
        alternate: bool = False,
        columns: int = 0,
    ) -> None:
        """*cursor* is column and row from 0, None if unknown; *columns* is 0 if unknown."""
        above = max(0, len(rows) - MOST_ROWS)
        self.rows = tuple(rows[above:])
        self.title = clean_line(title[: LONGEST_TITLE * 4])[:LONGEST_TITLE].strip()
        self.cursor = None if cursor is None else (cursor[0], cursor[1] - above)
        self.cursor_visible, self.alternate, self.columns = cursor_visible, alternate, columns

    @cached_property
    def end(self) -> int:
        """The number of rows down to the last non-blank one."""
        return next((at + 1 for at in reversed(range(len(self.rows))) if self.rows[at].text), 0)

    @property
    def cursor_row(self) -> int | None:
        """The row of the cursor; if that is unknown, the last non-blank one."""
        if self.cursor is None:
            return self.end - 1 if self.end else None
        return self.cursor[1] if 0 <= self.cursor[1] < len(self.rows) else None

    @property
    def is_cursor_at_end(self) -> bool:
        """Whether there is no text to the right of the cursor."""
        if self.cursor is None:
            return True
        at = self.cursor_row
        return at is not None and cells(self.rows[at].text) <= self.cursor[0]


def captured(
    text: str,
    title: str = "",
    *,
    cursor: tuple[int, int] | None = None,
    cursor_visible: bool = True,
    alternate: bool = False,
    columns: int = 0,
) -> TerminalScreen:
    """Return the screen of *text*, the output of `tmux capture-pane -e`."""
    rows: list[ScreenRow] = []
    style = styles.PLAIN
    for line in text.removesuffix("\n").split("\n")[-MOST_ROWS:]:
        row, style = _row(line, style)
        rows.append(row)
    return TerminalScreen(
        rows, title, cursor=cursor, cursor_visible=cursor_visible, alternate=alternate, columns=columns
    )


def shown(rows: Iterable[str], *, cursor: tuple[int, int] | None = None, cursor_visible: bool = True) -> TerminalScreen:
    """Return the screen of *rows*, each of which starts with a plain style (`host/terminal/row_styles.py`)."""
    read = [_row(row, styles.PLAIN)[0] for row in rows]
    return TerminalScreen(read, cursor=cursor, cursor_visible=cursor_visible)


def cells(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


@lru_cache(maxsize=8192)
def _row(raw: str, style: TextStyle) -> tuple[ScreenRow, TextStyle]:
    """Return the row *raw*, which starts with *style*, and the style at its end."""
    if style is styles.PLAIN and raw.isascii() and raw.isprintable():
        text = raw.rstrip()
        return ScreenRow(text, (), _pattern_text(text)), style
    text, runs = "", list[StyledRun]()
    pieces, behind = read_row(raw, style)
    for piece, drawn_in in pieces:
        if piece := piece if piece.isascii() and piece.isprintable() else clean_line(piece):
            if drawn_in is not styles.PLAIN and (look := _cell_style(drawn_in)) != PLAIN:
                runs.append(StyledRun(len(text), len(text) + len(piece), look))
            text += piece
    text = text.replace("\u00a0", " ").rstrip()
    return ScreenRow(text, tuple(run for run in runs if run.start < len(text)), _pattern_text(text)), behind


def _pattern_text(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@lru_cache(maxsize=4096)
def _cell_style(style: TextStyle) -> CellStyle:
    foreground, background = colour_numbers(style.foreground), colour_numbers(style.background)
    return CellStyle(
        "1" in style.attributes,
        "2" in style.attributes or _is_grey(foreground),
        "7" in style.attributes,
        ";".join(map(str, foreground)),
        ";".join(map(str, background)),
        style.is_drawing,
    )


def _is_grey(colour: tuple[int, ...]) -> bool:
    """Return whether *colour* (`(90,)`, `(5, 246)`, `(2, 136, 136, 136)`) is a grey of hints."""
    match colour:
        case (90,):
            return True
        case (5, number):
            return number == 8 or 236 <= number <= 250
        case (2, *channels) if len(channels) == 3:
            most = max(channels)
            return most - min(channels) <= _GREY_CHANNELS and _DARKEST_TEXT <= most <= _BRIGHTEST_GREY
    return False
