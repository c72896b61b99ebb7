"""Parses rows of terminal text into texts and their styles. Pure.

Rows hold text, SGR sequences (`ESC [ 1;31 m`) and, between SO and SI, line drawing; `tmux capture-pane -e` gives such.
The caller removes everything else in a row.
"""

import re
from typing import Final

SGR_BODY: Final = r"\[[0-9;:]{0,128}m"
"""A pattern of one style change without its ESC. A longer list of numbers is no style."""
SGR: Final = rf"\x1b{SGR_BODY}"
STYLE_CHANGE: Final = re.compile(f"({SGR})")
CHANGE: Final = re.compile(f"({SGR}|[\x0e\x0f])")
"""Splits a row into texts and, between them, changes for `TextStyle.after`."""
LINE_DRAWING: Final = str.maketrans("+,-.0`afghijklmnopqrstuvwxyz{|}~", "→←↑↓█◆▒°±▒␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
"""The characters that letters between SO and SI represent: the VT100's graphics, as tmux stores them."""

_ENDS: Final = {
    22: ("1", "2"), 23: ("3",), 24: ("4", "21"), 25: ("5", "6"), 27: ("7",), 28: ("8",), 29: ("9",), 55: ("53",),
}  # fmt: skip
_COLOURS: Final = {38: 0, 48: 1, 58: 2}
_MOST_STYLES: Final = 8192
"""How many styles and transitions are cached before the cache is cleared."""

Look = tuple[tuple[str, ...], str, str, str, bool]


class TextStyle:
    """The style of cells. There is one object per style, which caches the styles that follow it."""

    __slots__ = ("attributes", "background", "following", "foreground", "is_drawing", "sgr", "underline")

    def __init__(
        self,
        attributes: tuple[str, ...] = (),
        foreground: str = "",
        background: str = "",
        underline: str = "",
        is_drawing: bool = False,
    ) -> None:
        self.attributes, self.is_drawing = attributes, is_drawing
        """Attributes are `1`, `4:3` and so on, in order; `is_drawing` is true between SO and SI."""
        self.foreground, self.background, self.underline = foreground, background, underline
        """Colours as they were written: `31`, `38;5;208`, `48:2::1:2:3`; empty for the terminal's own."""
        numbers = ";".join(part for part in (*attributes, foreground, background, underline) if part)
        self.sgr = f"\x1b[0;{numbers}m" if numbers else "\x1b[m"
        """The sequence that sets this style, whatever the style before."""
        self.following: dict[str, TextStyle] = {}

    def after(self, change: str) -> "TextStyle":
        """Return the style after *change*: an SGR sequence, SO or SI."""
        return self.following.get(change) or _find_following(self, change)


PLAIN: Final = TextStyle()
_styles: dict[Look, TextStyle] = {((), "", "", "", False): PLAIN}
_steps = 0


def read_row(row: str, style: TextStyle = PLAIN) -> tuple[list[tuple[str, TextStyle]], TextStyle]:
    """Return the texts of *row*, which begins in *style*, with styles and decoded line drawing, and the last style."""
    first, *rest = CHANGE.split(row)
    texts = [(first.translate(LINE_DRAWING) if style.is_drawing else first, style)] if first else []
    changes = iter(rest)
    for change in changes:
        style = style.following.get(change) or _find_following(style, change)
        if text := next(changes):
            texts.append((text.translate(LINE_DRAWING) if style.is_drawing else text, style))
    return texts, style


def colour_numbers(colour: str) -> tuple[int, ...]:
    """Return the numbers of a *colour*: `(31,)`, `(5, 208)` or `(2, red, green, blue)`; empty for the default colour.

    They come unvalidated from a program: there may be too few of them, or too large ones.
    """
    if not colour:
        return ()
    first, *numbers = [_number(part) for part in colour.replace(":", ";").split(";")]
    if first not in _COLOURS:
        return (first,)
    if ":" in colour and numbers[0] == 2 and len(numbers) > 4:  # a colour space follows the 2
        del numbers[1]
    return tuple(numbers[: 4 if numbers and numbers[0] == 2 else 2])


def _find_following(style: TextStyle, change: str) -> TextStyle:
    global _steps
    _steps += 1
    if _steps > _MOST_STYLES:
        _styles.clear()
        _styles[(), "", "", "", False] = PLAIN
        PLAIN.following.clear()
        style.following.clear()
        _steps = 0
    look = _apply_change(style, change)
    following = _styles.get(look)
    if following is None:
        following = _styles[look] = TextStyle(*look)
    style.following[change] = following
    return following


def _apply_change(style: TextStyle, change: str) -> Look:
    """Return the style values after *change*; unknown numbers change nothing."""
    attributes, colours = style.attributes, [style.foreground, style.background, style.underline]
    if change in "\x0e\x0f":
        return attributes, style.foreground, style.background, style.underline, change == "\x0e"
    fields = change[2:-1].split(";")
    at = 0
    while at < len(fields):
        field = fields[at]
        base, colon, detail = field.partition(":")
        number = _number(base)
        field = f"{number}{colon}{detail}"
        number = 24 if field == "4:0" else number
        at += 1
        if number in _COLOURS:
            length = 0 if colon else {5: 2, 2: 4}.get(_number(fields[at]) if at < len(fields) else 0, 1)
            colours[_COLOURS[number]] = ";".join([field, *fields[at : at + length]])
            at += length
        elif number == 0:
            attributes, colours = (), ["", "", ""]
        elif number <= 9 or number in (21, 53):
            others = (each for each in attributes if each.partition(":")[0] != str(number))
            attributes = tuple(sorted((*others, field)))
        elif number in _ENDS:
            attributes = tuple(each for each in attributes if each.partition(":")[0] not in _ENDS[number])
        elif 30 <= number <= 39 or 90 <= number <= 97:
            colours[0] = "" if number == 39 else str(number)
        elif 40 <= number <= 49 or 100 <= number <= 107:
            colours[1] = "" if number == 49 else str(number)
        elif number == 59:
            colours[2] = ""
    return attributes, colours[0], colours[1], colours[2], style.is_drawing


def _number(digits: str) -> int:
    return int(digits) if 0 < len(digits) <= 5 else 0
