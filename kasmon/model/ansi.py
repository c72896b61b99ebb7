"""The colours of a program's output, as style tokens; of everything else that its sequences say nothing is left.

Bold, faint and the six hues are kept, a theme shows them; grounds, blinking, concealing and the rest are not. What a
colour sequence cannot do it cannot do here either: the text between two of them is cleaned like any other.
"""

import re
from collections.abc import Iterator
from typing import Final

from kasmon.clean import clean_block
from kasmon.model.text import Span, Token

PARAMETERS: Final = 64
"""A longer list of numbers in one sequence is no style, in characters."""
GREY: Final = 48
"""Where a colour's channels (0 to 255) differ by less, it has no hue."""

_STYLE: Final = re.compile(rf"\x1b\[([\d;:]{{0,{PARAMETERS}}})m")
_HUES: Final = ("", "red", "green", "yellow", "blue", "magenta", "cyan", "")
"""By the digit of `30` to `37`, which is also one bit for each of red, green and blue."""
_CUBE: Final = (0, 95, 135, 175, 215, 255)


def lines(text: str, token: Token) -> list[list[Span]]:
    """The lines of a foreign *text*, cleaned; what has no colour of its own is *token*."""
    if "\x1b" not in text:
        return [[(line, token)] for line in clean_block(text).removesuffix("\n").split("\n")]
    rows: list[list[Span]] = [[]]
    for piece, style in _pieces(text, token):
        head, *others = piece.split("\n")
        rows[-1].append((head, style))
        rows += [[(other, style)] for other in others]
    if len(rows) > 1 and not any(piece for piece, _ in rows[-1]):
        rows.pop()
    return [[span for span in row if span[0]] or [("", token)] for row in rows]


def _pieces(text: str, token: Token) -> Iterator[Span]:
    hue, bold, faint = "", False, False
    first, *rest = _STYLE.split(text)
    yield clean_block(first), token
    for at in range(0, len(rest), 2):
        hue, bold, faint = _after(hue, bold, faint, rest[at])
        yield clean_block(rest[at + 1]), _token(hue, bold, faint, token)


def _token(hue: str, bold: bool, faint: bool, token: Token) -> Token:
    if hue:
        return Token(f"loud-{hue}" if bold else hue)
    return Token.LOUD if bold else Token.FAINT if faint else token


def _after(hue: str, bold: bool, faint: bool, parameters: str) -> tuple[str, bool, bool]:
    """Hue and weight behind `CSI parameters m`; what it does not know it leaves alone."""
    fields = iter(parameters.replace(":", ";").split(";"))
    for field in fields:
        code = _number(field)
        if code == 0:
            hue, bold, faint = "", False, False
        elif code == 1:
            bold = True
        elif code == 2:
            faint = True
        elif code == 22:
            bold = faint = False
        elif code in (38, 48, 58):
            found = _extended(fields)
            hue = found if code == 38 else hue
        elif code == 39:
            hue = ""
        elif 30 <= code <= 37:
            hue = _HUES[code - 30]
        elif 90 <= code <= 97:
            hue, faint = _HUES[code - 90], faint or code == 90
    return hue, bold, faint


def _extended(fields: Iterator[str]) -> str:
    """The hue of `5;n` or `2;r;g;b`; takes its numbers off *fields*."""
    kind = _number(next(fields, ""))
    if kind == 2:
        return _hue([min(_number(next(fields, "")), 255) for _ in range(3)])
    number = _number(next(fields, "")) if kind == 5 else 0
    if number < 16:
        return _HUES[number % 8]
    cell = number - 16
    return _hue([_CUBE[cell // 36], _CUBE[cell // 6 % 6], _CUBE[cell % 6]]) if number < 232 else ""


def _hue(channels: list[int]) -> str:
    """The nearest of the six hues, from how much red, green and blue there is."""
    least, most = min(channels), max(channels)
    if most - least < GREY:
        return ""
    return _HUES[sum(1 << bit for bit, channel in enumerate(channels) if channel > (least + most) / 2)]


def _number(text: str) -> int:
    return int(text) if 0 < len(text) <= 3 else 0
