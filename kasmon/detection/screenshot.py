"""What a terminal showed at one moment: rows of text, how their cells look, cursor and title. Pure.

Rows come as tmux captures them (`captured`), where a style goes on in the next row, or as the host keeps them
(`shown`), where each row stands alone. Either way only text and looks are left; everything else is dropped.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from kasmon.sanitize import clean_line
from kasmon.terminal_text import styles
from kasmon.terminal_text.styles import TextStyle, colour_numbers, read_row

LONGEST: Final = 500
"""A pattern sees so many characters of a row, and an ellipsis where it is longer."""
MOST_ROWS: Final = 200
"""Of a taller screen only the lowest rows are read."""
LONGEST_TITLE: Final = 256

_GREY_CHANNELS: Final = 24
"""Where a colour's channels (0 to 255) differ by no more, it is a grey."""
_DARKEST_TEXT: Final = 60
_BRIGHTEST_GREY: Final = 200
"""A grey between these two is what hints and placeholders are written in."""


class CellStyle(NamedTuple):
    """How cells look, as far as anybody has to know."""

    bold: bool = False
    faint: bool = False
    """Dim, or a grey that hints are written in."""
    reverse: bool = False
    foreground: str = ""
    background: str = ""
    is_drawing: bool = False


PLAIN: Final = CellStyle()


class StyledRun(NamedTuple):
    """Characters of a row that look alike, the end not included."""

    start: int
    end: int
    look: CellStyle


class ScreenRow(NamedTuple):
    """One row, without the blanks at its end."""

    text: str
    runs: tuple[StyledRun, ...]
    """Those that do not look plain, from left to right."""
    seen: str
    """What a pattern gets to see."""

    def looks(self, start: int, end: int) -> set[CellStyle]:
        """How the characters from *start* to *end* look that are no blanks."""
        return {self.look_at(at) for at in range(start, end) if not self.text[at : at + 1].isspace()}

    def look_at(self, at: int) -> CellStyle:
        """How the character at *at* looks, counted from 0 in the text and not in cells."""
        return next((run.look for run in self.runs if run.start <= at < run.end), PLAIN)

    def is_placeholder(self, start: int, end: int) -> bool:
        """Whether the text from *start* to *end* is a hint in an empty field: faint behind a cursor on its first cell.

        A text of one character is none: it may have been typed.
        """
        solid = [at for at in range(start, end) if not (self.text[at : at + 1].isspace() or self.look_at(at).faint)]
        return solid == [start] and self.look_at(start).reverse and len(self.text[start:end].strip()) > 1


class Screenshot:
    """One terminal at one moment. Rows are read when somebody asks for them."""

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
        """*cursor* is column and row from 0, None where nobody knows; *columns* 0 where nobody knows."""
        above = max(0, len(rows) - MOST_ROWS)
        self.rows = tuple(rows[above:])
        self.title = clean_line(title[: LONGEST_TITLE * 4])[:LONGEST_TITLE].strip()
        self.cursor = None if cursor is None else (cursor[0], cursor[1] - above)
        self.cursor_visible, self.alternate, self.columns = cursor_visible, alternate, columns

    @cached_property
    def end(self) -> int:
        """The number of rows down to the last that is not blank."""
        return next((at + 1 for at in reversed(range(len(self.rows))) if self.rows[at].text), 0)

    @property
    def cursor_row(self) -> int | None:
        """The row of the cursor; without one the last that is not blank."""
        if self.cursor is None:
            return self.end - 1 if self.end else None
        return self.cursor[1] if 0 <= self.cursor[1] < len(self.rows) else None

    @property
    def is_cursor_at_end(self) -> bool:
        """Whether nothing stands to the right of the cursor."""
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
) -> Screenshot:
    """The screen of which `tmux capture-pane -e` gave *text*."""
    rows: list[ScreenRow] = []
    style = styles.PLAIN
    for line in text.removesuffix("\n").split("\n")[-MOST_ROWS:]:
        row, style = _row(line, style)
        rows.append(row)
    return Screenshot(rows, title, cursor=cursor, cursor_visible=cursor_visible, alternate=alternate, columns=columns)


def shown(
    rows: Iterable[str],
    title: str = "",
    *,
    cursor: tuple[int, int] | None = None,
    cursor_visible: bool = True,
    alternate: bool = False,
    columns: int = 0,
) -> Screenshot:
    """The screen of these *rows*, each of which begins plain (`host/terminal/row_styles.py`)."""
    return Screenshot(
        [_row(row, styles.PLAIN)[0] for row in rows],
        title,
        cursor=cursor,
        cursor_visible=cursor_visible,
        alternate=alternate,
        columns=columns,
    )


def cells(text: str) -> int:
    """The width of *text* on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


@lru_cache(maxsize=8192)
def _row(raw: str, style: TextStyle) -> tuple[ScreenRow, TextStyle]:
    """The row *raw* behind cells of *style*, and the style behind it."""
    if style is styles.PLAIN and raw.isascii() and raw.isprintable():
        text = raw.rstrip()
        return ScreenRow(text, (), _seen(text)), style
    text, runs = "", list[StyledRun]()
    pieces, behind = read_row(raw, style)
    for piece, drawn_in in pieces:
        if piece := piece if piece.isascii() and piece.isprintable() else clean_line(piece):
            if drawn_in is not styles.PLAIN and (look := _look(drawn_in)) != PLAIN:
                runs.append(StyledRun(len(text), len(text) + len(piece), look))
            text += piece
    text = text.replace("\u00a0", " ").rstrip()
    return ScreenRow(text, tuple(run for run in runs if run.start < len(text)), _seen(text)), behind


def _seen(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@lru_cache(maxsize=4096)
def _look(style: TextStyle) -> CellStyle:
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
    """Whether *colour* (`(90,)`, `(5, 246)`, `(2, 136, 136, 136)`) is a grey that hints are written in."""
    match colour:
        case (90,):
            return True
        case (5, number):
            return number == 8 or 236 <= number <= 250
        case (2, *channels) if len(channels) == 3:
            most = max(channels)
            return most - min(channels) <= _GREY_CHANNELS and _DARKEST_TEXT <= most <= _BRIGHTEST_GREY
    return False
