"""Convert one captured row of a terminal to one strip of cells; everything except text and colours is dropped.

Rows come from `tmux capture-pane -e`: text, SGR sequences, hyperlinks (tmux 3.4 and later) and, between SO and SI, line
drawing. Each row starts in the default style. A row never acts on the terminal that shows it: every other sequence is
dropped with its payload, as are other controls; characters that change the reading direction become U+FFFD.
"""

import re
from collections.abc import Iterator
from typing import Any

from rich.color import Color
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip

from kasmon.terminal_text.styles import LINE_DRAWING, PLAIN, SGR, SGR_BODY, STYLE_CHANGE, TextStyle, colour_numbers

BIDI = "\u061c\u202a-\u202e\u2066-\u2069"
"""Bidi controls, without LRM and RLM: those only affect adjacent characters, and Hebrew and Arabic need them."""
CONTROLS = "\x00-\x1f\x7f-\x9f"
STEPS = 16_384
"""How many different style changes are cached before the cache is cleared."""

_ODD = re.compile(rf"\x1b(?!{SGR_BODY})|(?!\x1b)[{CONTROLS}{BIDI}]")
_UNWANTED = re.compile(
    rf"(?P<keep>{SGR}|[\x0e\x0f])"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS, SOS, PM, APC, with their payload
    r"|\x1b\[[0-?]*[ -/]*(?:[@-~]|$)"
    r"|\x1b[ -/]*[0-~]?"
    rf"|(?P<tab>\t)|(?P<bidi>[{BIDI}])|[{CONTROLS}]"
)

_ATTRIBUTES = {
    "1": "bold", "2": "dim", "3": "italic", "4": "underline", "4:2": "underline2", "5": "blink", "6": "blink",
    "7": "reverse", "8": "conceal", "9": "strike", "21": "underline2", "53": "overline",
}  # fmt: skip


def strip_of(row: str) -> Strip:
    """Return *row* as cells, as wide as its text."""
    if _ODD.search(row):
        row = _clean(row)
    pieces = STYLE_CHANGE.split(row)
    segments = [Segment(pieces[0], None)] if pieces[0] else []
    style, changes = PLAIN, iter(pieces[1:])
    for change in changes:
        style = style.following.get(change) or style.after(change)
        if text := next(changes):
            segments.append(Segment(text, _pens[style]))
    return Strip(segments, sum(map(len, pieces[::2])) if row.isascii() else None)


def _clean(row: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match["keep"]:
            return match["keep"]
        return " " if match["tab"] else "\ufffd" if match["bidi"] else ""

    first, *drawings = _UNWANTED.sub(replacement, row).split("\x0e")
    return "".join(_draw_lines(first, drawings)).replace("\x0f", "")


def _draw_lines(first: str, drawings: list[str]) -> Iterator[str]:
    yield first
    for drawing in drawings:
        letters, _, text = drawing.partition("\x0f")
        for at, piece in enumerate(STYLE_CHANGE.split(letters)):
            yield piece if at % 2 else piece.translate(LINE_DRAWING)
        yield text


class _Pens(dict[TextStyle, RichStyle | None]):
    """A cache of the Rich style for each text style."""

    def __missing__(self, style: TextStyle) -> RichStyle | None:
        if len(self) >= STEPS:
            self.clear()
        has: dict[str, Any] = {
            _ATTRIBUTES.get(each) or _ATTRIBUTES[each.partition(":")[0]]: True for each in style.attributes
        }
        pen = RichStyle(color=_colour(style.foreground), bgcolor=_colour(style.background), **has) or None
        self[style] = pen
        return pen


def _colour(written: str) -> Color | None:
    match colour_numbers(written):
        case (5, number) if number <= 255:
            return Color.from_ansi(number)
        case (2, red, green, blue) if max(red, green, blue) <= 255:
            return Color.from_triplet(ColorTriplet(red, green, blue))
        case (number,) if number >= 30:
            return Color.from_ansi(number % 10 + (8 if number >= 90 else 0))
    return None


_pens = _Pens()
