"""What a terminal showed at one moment: rows of text, how their cells look, cursor and title. Pure.

Rows come as tmux captures them (`captured`), where a style goes on in the next row, or as the host keeps them
(`shown`), where each row stands alone. Either way only text and looks are left; everything else is dropped.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from kasmon.clean import clean_line

LONGEST: Final = 500
"""A pattern sees so many characters of a row, and an ellipsis where it is longer."""
MOST_ROWS: Final = 200
"""Of a taller screen only the lowest rows are read."""
LONGEST_TITLE: Final = 256

_CHANGE: Final = re.compile(r"\x1b\[([0-9;:]{0,128})m|([\x0e\x0f])")
_LINE_DRAWING: Final = str.maketrans("+,-.0`afghijklmnopqrstuvwxyz{|}~", "→←↑↓█◆▒°±▒␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
_GREY_CHANNELS: Final = 24
"""Where a colour's channels (0 to 255) differ by no more, it is a grey."""
_DARKEST_TEXT: Final = 60
_BRIGHTEST_GREY: Final = 200
"""A grey between these two is what hints and placeholders are written in."""


class Look(NamedTuple):
    """How cells look, as far as anybody has to know."""

    bold: bool = False
    faint: bool = False
    """Dim, or a grey that hints are written in."""
    reverse: bool = False
    foreground: str = ""
    background: str = ""
    is_drawing: bool = False


PLAIN: Final = Look()


class Run(NamedTuple):
    """Characters of a row that look alike, the end not included."""

    start: int
    end: int
    look: Look


class Row(NamedTuple):
    """One row, without the blanks at its end."""

    text: str
    runs: tuple[Run, ...]
    """Those that do not look plain, from left to right."""
    seen: str
    """What a pattern gets to see."""

    def looks(self, start: int, end: int) -> set[Look]:
        """How the characters from *start* to *end* look that are no blanks."""
        return {self.look_at(at) for at in range(start, end) if not self.text[at : at + 1].isspace()}

    def look_at(self, at: int) -> Look:
        """How the character at *at* looks, counted from 0 in the text and not in cells."""
        return next((run.look for run in self.runs if run.start <= at < run.end), PLAIN)


class ScreenShot:
    """One terminal at one moment. Rows are read when somebody asks for them."""

    def __init__(
        self,
        rows: Sequence[Row],
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
) -> ScreenShot:
    """The screen of which `tmux capture-pane -e` gave *text*."""
    rows: list[Row] = []
    look = PLAIN
    for line in text.removesuffix("\n").split("\n")[-MOST_ROWS:]:
        row, look = _row(line, look)
        rows.append(row)
    return ScreenShot(rows, title, cursor=cursor, cursor_visible=cursor_visible, alternate=alternate, columns=columns)


def shown(
    rows: Iterable[str],
    title: str = "",
    *,
    cursor: tuple[int, int] | None = None,
    cursor_visible: bool = True,
    alternate: bool = False,
    columns: int = 0,
) -> ScreenShot:
    """The screen of these *rows*, each of which begins plain (`host/rows.py`)."""
    return ScreenShot(
        [_row(row, PLAIN)[0] for row in rows],
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
def _row(raw: str, look: Look) -> tuple[Row, Look]:
    """The row *raw* behind cells that look like *look*, and the look behind it."""
    if look is PLAIN and raw.isascii() and raw.isprintable():
        text = raw.rstrip()
        return Row(text, (), _seen(text)), look
    text, runs = "", list[Run]()
    pieces = _CHANGE.split(raw)
    for at in range(0, len(pieces), 3):
        piece = pieces[at].translate(_LINE_DRAWING) if look.is_drawing else pieces[at]
        if piece := piece if piece.isascii() and piece.isprintable() else clean_line(piece):
            if look != PLAIN:
                runs.append(Run(len(text), len(text) + len(piece), look))
            text += piece
        if at + 2 < len(pieces):
            shift = pieces[at + 2]
            look = _after(look, pieces[at + 1]) if shift is None else look._replace(is_drawing=shift == "\x0e")
    text = text.replace("\u00a0", " ").rstrip()
    return Row(text, tuple(run for run in runs if run.start < len(text)), _seen(text)), look


def _seen(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@lru_cache(maxsize=4096)
def _after(look: Look, parameters: str) -> Look:
    """*look* after `CSI parameters m`."""
    words = parameters.replace(":", ";").split(";")
    bold, faint, reverse, foreground, background = look[:5]
    dim = faint and not _is_grey(foreground)
    at = 0
    while at < len(words):
        number = int(words[at]) if 0 < len(words[at]) <= 3 else 0
        at += 1
        if number == 0:
            bold = dim = reverse = False
            foreground = background = ""
        elif number in (1, 2, 7):
            bold, dim, reverse = bold or number == 1, dim or number == 2, reverse or number == 7
        elif number == 22:
            bold = dim = False
        elif number == 27:
            reverse = False
        elif number in (38, 48, 58):
            length = {"5": 2, "2": 4}.get(words[at] if at < len(words) else "", 0)
            colour = ";".join(words[at : at + length])
            at += length
            foreground = colour if number == 38 else foreground
            background = colour if number == 48 else background
        elif 30 <= number <= 39 or 90 <= number <= 97:
            foreground = "" if number == 39 else str(number)
        elif 40 <= number <= 49 or 100 <= number <= 107:
            background = "" if number == 49 else str(number)
    return Look(bold, dim or _is_grey(foreground), reverse, foreground, background, look.is_drawing)


def _is_grey(colour: str) -> bool:
    """Whether *colour* (`90`, `5;246`, `2;136;136;136`) is a grey that hints are written in."""
    kind, *numbers = [int(word) if word.isdigit() else 0 for word in colour.split(";")]
    if kind == 90:
        return True
    if kind == 5 and numbers:
        return numbers[0] == 8 or 236 <= numbers[0] <= 250
    if kind == 2 and len(numbers) == 3:
        return max(numbers) - min(numbers) <= _GREY_CHANNELS and _DARKEST_TEXT <= max(numbers) <= _BRIGHTEST_GREY
    return False
