"""A pyte screen for kasmon's own output: styled rows in, cells out.

pyte 0.8.2 drops the text after a zero-width joiner or a variation selector, and counts an emoji of several code points
as several; here whole characters are drawn, as wide as Textual counts them. It never sees another program's output.

pyte is imported without the width tables of `wcwidth`, which take a megabyte: of these it uses one function, to draw
characters. Other importers of `wcwidth` get the real module.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from types import ModuleType

from rich.cells import cell_len, split_graphemes
from rich.color import Color, ColorType
from rich.segment import Segment
from rich.style import Style
from textual.filter import dim_color
from textual.strip import Strip

_stands_in = "wcwidth" not in sys.modules
if _stands_in:
    _widths = ModuleType("wcwidth")
    _widths.wcwidth = _widths.wcswidth = cell_len  # type: ignore[attr-defined]  # both: another thread may import now
    sys.modules["wcwidth"] = _widths
try:
    import pyte
finally:
    if _stands_in:
        del sys.modules["wcwidth"]

Char = pyte.screens.Char
_LOOK = itemgetter(slice(1, None))
"""Returns all of a `Char` but its text."""

StyledPiece = tuple[str, Style]
"""Sanitized text, and its style."""

_NAMES = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
_NUMBERS = {name: number for number, name in enumerate((*_NAMES, *(f"bright{name}" for name in _NAMES)))}
_NUMBERS["bfightmagenta"] = _NUMBERS["brightmagenta"]  # pyte 0.8.2 misspells this background
_UNSAFE = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "\ufffd") | {ord("\t"): " "}


class PyteBuffer(pyte.Screen):
    """A pyte screen without automatic wrapping: a row that is too long is cut at the edge."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        self._stream = pyte.Stream(self)

    def write(self, y: int, pieces: Iterable[StyledPiece]) -> None:
        """Replace row *y* by *pieces*."""
        text = "".join(f"\x1b[{_sgr(style)}m{text.translate(_UNSAFE)}" for text, style in pieces if text)
        self._stream.feed(f"\x1b[{y + 1};1H\x1b[0m\x1b[2K{text}")

    def scroll(self, up: int) -> None:
        """Move every row *up* rows, down if negative; the rows that come in are empty."""
        edge, step = (self.lines, "\n") if up > 0 else (1, "\x1bM")
        self._stream.feed(f"\x1b[{edge};1H\x1b[0m{step * abs(up)}")

    def draw(self, data: str) -> None:
        """Draw whole characters at the cursor; one without a width joins the one before it."""
        row, cursor, attributes = self.buffer[self.cursor.y], self.cursor, self.cursor.attrs
        leading = ""
        for text, width in _characters(data):
            if not width:
                if not self._join(row, cursor.x, text):
                    leading += text
                continue
            if cursor.x + width > self.columns:
                cursor.x = self.columns
                break
            row[cursor.x] = _char(attributes, leading + text)
            if width == 2:
                row[cursor.x + 1] = _char(attributes, "")
            cursor.x += width
            leading = ""
        if leading:
            row[0] = _char(attributes, leading + " ")
        self.dirty.add(cursor.y)

    @staticmethod
    def _join(row: dict[int, Char], x: int, text: str) -> bool:
        """Add *text* to the character that ends before cell *x*; return whether there is one."""
        for at in (x - 1, x - 2):
            if at in row and row[at].data:
                row[at] = row[at]._replace(data=row[at].data + text)
                return True
        return False

    def strip(self, y: int) -> Strip:
        """Return row *y* as cells, exactly as wide as the screen."""
        row = self.buffer[y]
        cells: Sequence[Char] = [row[x] for x in range(self.columns)]
        segments = [Segment("".join(cell.data for cell in run), _style(look)) for look, run in groupby(cells, _LOOK)]
        return Strip(segments).adjust_cell_length(self.columns)


def _characters(data: str) -> Iterator[tuple[str, int]]:
    if data.isascii():
        yield from ((character, 1) for character in data)
    else:
        yield from ((data[start:end], width) for start, end, width in split_graphemes(data)[0])


@lru_cache(8192)
def _char(attributes: Char, text: str) -> Char:
    return attributes._replace(data=text)


@lru_cache(1024)
def _sgr(style: Style) -> str:
    """Return the SGR numbers of *style*; dim is a colour between text and background, never SGR 2."""
    colour, background = style.color, style.bgcolor
    if style.dim and colour is not None and background is not None and colour.triplet and background.triplet:
        colour = dim_color(background, colour)
    flags = (style.bold, style.italic, style.underline, style.blink, style.reverse, style.strike)
    numbers = ["0", *(number for flag, number in zip(flags, "134579", strict=True) if flag)]
    return ";".join([*numbers, *_colour_numbers(colour, 30), *_colour_numbers(background, 40)])


def _colour_numbers(colour: Color | None, base: int) -> list[str]:
    if colour is None or colour.type is ColorType.DEFAULT:
        return []
    if colour.triplet is not None:
        return [str(base + 8), "2", *map(str, colour.triplet)]
    number = colour.number or 0
    if number < 16:
        return [str(base + number if number < 8 else base + 52 + number)]
    return [str(base + 8), "5", str(number)]


@lru_cache(4096)
def _style(appearance: tuple[object, ...]) -> Style:
    colour, background, bold, italics, underscore, strikethrough, reverse, blink = appearance
    return Style(
        color=_colour(str(colour)),
        bgcolor=_colour(str(background)),
        bold=bool(bold) or None,
        italic=bool(italics) or None,
        underline=bool(underscore) or None,
        strike=bool(strikethrough) or None,
        reverse=bool(reverse) or None,
        blink=bool(blink) or None,
    )


def _colour(name: str) -> Color | None:
    if name == "default":
        return None
    return Color.from_ansi(_NUMBERS[name]) if name in _NUMBERS else Color.parse(f"#{name}")
