"""A tool call as rows: the call, its outcome, and its output in its own colours; long outputs are folded.

Bold, faint and the six hues are kept and mapped to the theme; backgrounds, blinking, concealing and the rest are not.
A colour sequence cannot inject anything: the text between two of them is cleaned like any other.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from kasmon.model.events import Event, ToolFinished, ToolStarted
from kasmon.model.transcript import diff
from kasmon.model.transcript.style import (
    BELOW,
    FOLD_CHARACTERS,
    FOLD_LINES,
    INDENT,
    UNDER,
    TranscriptStyle,
    fold_row,
    hidden,
)
from kasmon.model.transcript.text import BLANK, Span, TextLine, Token, wrap
from kasmon.sanitize import Clean, clean_block, clean_line
from kasmon.terminal_text.styles import PLAIN, STYLE_CHANGE, TextStyle, colour_numbers

GREY: Final = 48
"""A colour whose channels (0 to 255) differ by less has no hue."""

_HUES: Final = ("", "red", "green", "yellow", "blue", "magenta", "cyan", "")
"""By the digit of `30` to `37`, whose bits stand for red, green and blue."""
_CUBE: Final = (0, 95, 135, 175, 215, 255)


def ansi_lines(text: str, token: Token) -> list[list[Span]]:
    """Return the lines of a foreign *text*, cleaned; text without a colour of its own is *token*."""
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
    style = PLAIN
    for at, piece in enumerate(STYLE_CHANGE.split(text)):
        if at % 2:
            style = style.after(piece)
        else:
            yield clean_block(piece), _token(style, token)


@lru_cache(maxsize=4096)
def _token(style: TextStyle, token: Token) -> Token:
    colour = colour_numbers(style.foreground)
    if hue := _hue_of(colour):
        return Token(f"loud-{hue}" if "1" in style.attributes else hue)
    if "1" in style.attributes:
        return Token.LOUD
    return Token.FAINT if "2" in style.attributes or colour == (90,) else token


def _hue_of(colour: tuple[int, ...]) -> str:
    match colour:
        case (2, *channels):
            return _hue([min(channel, 255) for channel in (*channels, 0, 0, 0)[:3]])
        case (5, number) if number < 16:
            return _HUES[number % 8]
        case (5, number) if number < 232:
            cell = number - 16
            return _hue([_CUBE[cell // 36], _CUBE[cell // 6 % 6], _CUBE[cell % 6]])
        case (number,) if number >= 30:
            return _HUES[number % 10]
    return ""


def _hue(channels: list[int]) -> str:
    """Return the nearest of the six hues to the red, green and blue *channels*."""
    least, most = min(channels), max(channels)
    if most - least < GREY:
        return ""
    return _HUES[sum(1 << bit for bit, channel in enumerate(channels) if channel > (least + most) / 2)]


FOLD_DIFF_LINES: Final = 60
"""How many lines of a folded change are drawn."""


def call(event: ToolStarted | ToolFinished, then: Sequence[Event], style: TranscriptStyle) -> list[TextLine]:
    """Return the call that *event* began (or ended, if its beginning is unknown); *then* holds its later events."""
    finished = ending(event, then)
    began = next((each for each in (event, *then) if isinstance(each, ToolStarted)), None)
    if began is not None:
        name, subject = clean_line(began.tool), title(began)
    else:
        name, subject = clean_line("a tool"), clean_line(event.call)
    sign: Span = (" …", Token.FAINT)
    if finished is not None:
        sign = (" ✓", Token.OK) if finished.ok else (" ✗", Token.FAILED)
    beginning, left_out = _short([(subject, Token.SUBJECT)], style)
    more = [(f"… {left_out} more characters", Token.FAINT)] if left_out else []
    head = [(name, Token.TOOL), *([(" ", Token.SUBJECT), *beginning] if subject else []), *more, sign]
    rows = [BLANK, *wrap(head, style.width, (("● ", sign[1]),), INDENT)]
    if finished is not None:
        rows += result(finished, style)
    return rows


def title(event: ToolStarted) -> Clean:
    """Return the subject of the call, in one line."""
    return clean_line(event.title) or clean_line(event.input if event.input != "{}" else "")


def ending(event: Event, then: Sequence[Event]) -> ToolFinished | None:
    """Return how the call ended, if it did."""
    return next((each for each in (event, *then) if isinstance(each, ToolFinished)), None)


def folds(finished: ToolFinished) -> bool:
    """Whether folding hides a part of its output."""
    diff_lines, output = clean_block(finished.diff).split("\n"), clean_block(finished.output)
    lines = output.removesuffix("\n").split("\n")
    too_long = any(len(line) > FOLD_CHARACTERS for line in lines)
    return len(diff_lines) > FOLD_DIFF_LINES + 1 or len(lines) > FOLD_LINES + 1 or too_long


def cut_off(blob: str, style: TranscriptStyle) -> list[TextLine]:
    """Return the row that names the blob with the full text."""
    told = f"… truncated; the full text is stored as blob {clean_line(blob)[:12]}"
    return wrap([(told, Token.FAINT)], style.width, UNDER, UNDER) if blob else []


def result(finished: ToolFinished, style: TranscriptStyle) -> list[TextLine]:
    """Return the result of the call, as rows."""
    rows: list[TextLine] = []
    if finished.diff:
        lines = clean_block(finished.diff).removesuffix("\n").split("\n")
        shown = _folded(len(lines), FOLD_DIFF_LINES, style)
        rows += [*diff.draw_diff(lines[:shown], style.width, UNDER), *hidden(len(lines) - shown, "lines", style)]
    if finished.output:
        output = ansi_lines(finished.output, Token.OUTPUT if finished.ok else Token.FAILED)
        shown = _folded(len(output), FOLD_LINES, style)
        for number, line in enumerate(output[:shown]):
            beginning, cut = _short(line, style)
            rows += wrap(beginning, style.width, UNDER if number else BELOW, UNDER, words=False)
            rows += hidden(cut, "characters", style)
        rows += hidden(len(output) - shown, "lines", style)
    if style.opened and folds(finished):
        rows += fold_row("▴ collapse", style)
    return [*rows, *cut_off(finished.blob, style)]


def _folded(lines: int, most: int, style: TranscriptStyle) -> int:
    return lines if not style.fold or lines <= most + 1 else most


def _short(line: Sequence[Span], style: TranscriptStyle) -> tuple[list[Span], int]:
    """Return the part of *line* that is drawn, and how many characters are not."""
    left_out = max(0, sum(len(text) for text, _ in line) - FOLD_CHARACTERS) if style.fold else 0
    if not left_out:
        return [*line], 0
    left, shown = FOLD_CHARACTERS, list[Span]()
    for text, token in line:
        shown.append((text[:left], token))
        left -= len(shown[-1][0])
    return shown, left_out
