"""One captured row of a terminal becomes one strip of cells; whatever is neither text nor colour is dropped.

Rows come from `tmux capture-pane -e`: text, SGR sequences, hyperlinks (tmux 3.4 and later) and, between SO and SI, line
drawing. Each row starts in the default style. A row never acts on the terminal that shows it: every other sequence goes
with its payload, every other control goes, and what would turn the reading direction is shown as U+FFFD.
"""

import re
from collections.abc import Iterator
from itertools import islice

from rich.color import Color
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

LINE_DRAWING = str.maketrans(
    "+,-.0`afghijklmnopqrstuvwxyz{|}~",
    "→←↑↓█◆▒°±▒␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·",
)
"""What the letters between SO and SI stand for (the VT100's graphics, as tmux stores them)."""

BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
CONTROLS = "\x00-\x1f\x7f-\x9f"
PARAMETER_LENGTH = 128
"""A longer list of numbers in one sequence is no style."""

STEPS = 16_384
"""How many different changes of style are remembered before all are forgotten."""

_STYLE = re.compile(rf"\x1b\[([\d;:]{{0,{PARAMETER_LENGTH}}})m")
_ODD = re.compile(rf"\x1b(?!\[[\d;:]{{0,{PARAMETER_LENGTH}}}m)|(?!\x1b)[{CONTROLS}{BIDI}]")
_UNWANTED = re.compile(
    rf"(?P<keep>\x1b\[[\d;:]{{0,{PARAMETER_LENGTH}}}m|[\x0e\x0f])"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS, SOS, PM, APC, with what they carry
    r"|\x1b\[[0-?]*[ -/]*(?:[@-~]|$)"
    r"|\x1b[ -/]*[0-~]?"
    rf"|(?P<tab>\t)|(?P<bidi>[{BIDI}])|[{CONTROLS}]"
)

BOLD, DIM, ITALIC, UNDERLINE, BLINK, REVERSE, CONCEAL, STRIKE, UNDERLINE2, OVERLINE = (1 << bit for bit in range(10))
_ON = {1: BOLD, 2: DIM, 3: ITALIC, 4: UNDERLINE, 5: BLINK, 6: BLINK, 7: REVERSE, 8: CONCEAL, 9: STRIKE}
_ON |= {21: UNDERLINE2, 53: OVERLINE}
_OFF = {22: BOLD | DIM, 23: ITALIC, 24: UNDERLINE | UNDERLINE2, 25: BLINK, 27: REVERSE, 28: CONCEAL, 29: STRIKE}
_OFF |= {55: OVERLINE}


class Pen:
    """How the next character is drawn, and which pens the sequences met so far lead to."""

    __slots__ = ("after", "attributes", "background", "colour", "style")

    def __init__(self, colour: Color | None = None, background: Color | None = None, attributes: int = 0) -> None:
        self.colour, self.background, self.attributes = colour, background, attributes
        self.style = _style(colour, background, attributes)
        self.after: dict[str, Pen] = {}


def strip_of(row: str) -> Strip:
    """*row* as cells, as wide as its text."""
    if _ODD.search(row):
        row = _cleaned(row)
    text, *rest = _STYLE.split(row)
    segments = [Segment(text, None)] if text else []
    if rest:
        pen = _plain
        for at in range(0, len(rest), 2):
            pen = pen.after.get(rest[at]) or _known(pen, rest[at])
            if text := rest[at + 1]:
                segments.append(Segment(text, pen.style))
    return Strip(segments, sum([len(segment.text) for segment in segments]) if row.isascii() else None)


def _cleaned(row: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match["keep"]:
            return match["keep"]
        return " " if match["tab"] else "\ufffd" if match["bidi"] else ""

    first, *drawings = _UNWANTED.sub(replacement, row).split("\x0e")
    return "".join(_drawn(first, drawings)).replace("\x0f", "")


def _drawn(first: str, drawings: list[str]) -> Iterator[str]:
    yield first
    for drawing in drawings:
        letters, _, text = drawing.partition("\x0f")
        for at, piece in enumerate(_STYLE.split(letters)):
            yield f"\x1b[{piece}m" if at % 2 else piece.translate(LINE_DRAWING)
        yield text


def _known(pen: Pen, parameters: str) -> Pen:
    """The pen after `CSI parameters m`, remembered as far as there is room."""
    global _plain, _steps
    _steps += 1
    if _steps > STEPS:
        _plain, _steps = Pen(), 0
        _pens.clear()
    drawn_with = _after(pen, parameters)
    found = _pens.get(drawn_with)
    if found is None:
        found = _pens[drawn_with] = Pen(*drawn_with)
    pen.after[parameters] = found
    return found


def _after(pen: Pen, parameters: str) -> tuple[Color | None, Color | None, int]:
    """Colour, background and attributes after `CSI parameters m`; what it does not know it leaves alone."""
    colour, background, attributes = pen.colour, pen.background, pen.attributes
    fields = iter(parameters.split(";"))
    for field in fields:
        head, *details = field.split(":")
        code = _number(head)
        if code == 0:
            colour, background, attributes = None, None, 0
        elif code == 4 and details:
            attributes &= ~(UNDERLINE | UNDERLINE2)
            style = _number(details[0])
            attributes |= 0 if style == 0 else UNDERLINE2 if style == 2 else UNDERLINE
        elif code in _ON:
            attributes |= _ON[code]
        elif code in _OFF:
            attributes &= ~_OFF[code]
        elif code in (38, 48, 58):
            found = _colour_in(details) if details else _colour_after(fields)
            if code == 38:
                colour = found or colour
            elif code == 48:
                background = found or background
        elif code == 39:
            colour = None
        elif code == 49:
            background = None
        elif 30 <= code <= 37 or 90 <= code <= 97:
            colour = Color.from_ansi(code - 30 if code < 90 else code - 82)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            background = Color.from_ansi(code - 40 if code < 100 else code - 92)
    return colour, background, attributes


def _number(text: str) -> int:
    return int(text) if 0 < len(text) <= 5 else 0


def _colour_in(details: list[str]) -> Color | None:
    """The colour of `38:5:n`, `38:2:r:g:b` or `38:2:space:r:g:b`."""
    kind, *numbers = map(_number, details)
    if kind == 2:
        numbers = numbers[-3:] if len(numbers) == 3 else numbers[1:4]
    return _colour(kind, numbers)


def _colour_after(fields: Iterator[str]) -> Color | None:
    """The colour of `38;5;n` or `38;2;r;g;b`; takes its numbers off *fields*."""
    kind = _number(next(fields, ""))
    wanted = {5: 1, 2: 3}.get(kind, 0)
    return _colour(kind, [_number(field) for field in islice(fields, wanted)])


def _colour(kind: int, numbers: list[int]) -> Color | None:
    if kind == 5 and numbers and numbers[0] <= 255:
        return Color.from_ansi(numbers[0])
    if kind == 2 and len(numbers) == 3 and max(numbers) <= 255:
        return Color.from_triplet(ColorTriplet(*numbers))
    return None


def _style(colour: Color | None, background: Color | None, has: int) -> Style | None:
    if colour is None and background is None and not has:
        return None
    return Style(
        color=colour,
        bgcolor=background,
        bold=bool(has & BOLD) or None,
        dim=bool(has & DIM) or None,
        italic=bool(has & ITALIC) or None,
        underline=bool(has & UNDERLINE) or None,
        underline2=bool(has & UNDERLINE2) or None,
        blink=bool(has & BLINK) or None,
        reverse=bool(has & REVERSE) or None,
        conceal=bool(has & CONCEAL) or None,
        strike=bool(has & STRIKE) or None,
        overline=bool(has & OVERLINE) or None,
    )


_plain = Pen()
_pens: dict[tuple[Color | None, Color | None, int], Pen] = {}
_steps = 0
