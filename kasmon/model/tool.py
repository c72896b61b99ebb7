"""A call of a tool as rows: what it was, how it went, and its output in its own colours, long ones folded."""

from collections.abc import Sequence
from typing import Final

from kasmon.clean import Clean, clean_block, clean_line
from kasmon.model import ansi, diff
from kasmon.model.drawing import (
    BELOW,
    FOLD_CHARACTERS,
    FOLD_LINES,
    INDENT,
    UNDER,
    Look,
    fold_row,
    hidden,
)
from kasmon.model.event import Event, ToolFinished, ToolStarted
from kasmon.model.text import BLANK, Line, Span, Token, fitted

FOLD_DIFF_LINES: Final = 60
"""How many lines of a change are drawn where folding is on."""


def call(event: ToolStarted | ToolFinished, then: Sequence[Event], look: Look) -> list[Line]:
    """The call that *event* began or, where its beginning is not known, ended; *then* is what came of it."""
    finished = ending(event, then)
    began = next((each for each in (event, *then) if isinstance(each, ToolStarted)), None)
    if began is not None:
        name, subject = clean_line(began.tool), title(began)
    else:
        name, subject = clean_line("a tool"), clean_line(event.call)
    sign: Span = (" …", Token.FAINT)
    if finished is not None:
        sign = (" ✓", Token.OK) if finished.ok else (" ✗", Token.FAILED)
    beginning, left_out = _short([(subject, Token.SUBJECT)], look)
    more = [(f"… {left_out} more characters", Token.FAINT)] if left_out else []
    head = [(name, Token.TOOL), *([(" ", Token.SUBJECT), *beginning] if subject else []), *more, sign]
    rows = [BLANK, *fitted(head, look.width, (("● ", sign[1]),), INDENT)]
    if finished is not None:
        rows += result(finished, look)
    return rows


def title(event: ToolStarted) -> Clean:
    """What the call is about, in one line."""
    return clean_line(event.title) or clean_line(event.input if event.input != "{}" else "")


def ending(event: Event, then: Sequence[Event]) -> ToolFinished | None:
    """How the call ended, if it did."""
    return next((each for each in (event, *then) if isinstance(each, ToolFinished)), None)


def folds(finished: ToolFinished) -> bool:
    """Whether some of its output is hidden where folding is on."""
    diff_lines, output = clean_block(finished.diff).split("\n"), clean_block(finished.output)
    lines = output.removesuffix("\n").split("\n")
    too_long = any(len(line) > FOLD_CHARACTERS for line in lines)
    return len(diff_lines) > FOLD_DIFF_LINES + 1 or len(lines) > FOLD_LINES + 1 or too_long


def cut_off(blob: str, look: Look) -> list[Line]:
    """The row that says where the rest of a text is."""
    told = f"… cut here; the whole of it is kept as blob {clean_line(blob)[:12]}"
    return fitted([(told, Token.FAINT)], look.width, UNDER, UNDER) if blob else []


def result(finished: ToolFinished, look: Look) -> list[Line]:
    """What came of the call, as rows."""
    rows: list[Line] = []
    if finished.diff:
        lines = clean_block(finished.diff).removesuffix("\n").split("\n")
        shown = _folded(len(lines), FOLD_DIFF_LINES, look)
        rows += [*diff.drawn(lines[:shown], look.width, UNDER), *hidden(len(lines) - shown, "lines", look)]
    if finished.output:
        output = ansi.lines(finished.output, Token.OUTPUT if finished.ok else Token.FAILED)
        shown = _folded(len(output), FOLD_LINES, look)
        for number, line in enumerate(output[:shown]):
            beginning, cut = _short(line, look)
            rows += fitted(beginning, look.width, UNDER if number else BELOW, UNDER, words=False)
            rows += hidden(cut, "characters", look)
        rows += hidden(len(output) - shown, "lines", look)
    if look.opened and folds(finished):
        rows += fold_row("▴ fold it again", look)
    return [*rows, *cut_off(finished.blob, look)]


def _folded(lines: int, most: int, look: Look) -> int:
    """How many of so many *lines* are drawn."""
    return lines if not look.fold or lines <= most + 1 else most


def _short(line: Sequence[Span], look: Look) -> tuple[list[Span], int]:
    """As much of *line* as is drawn, and how many characters are not."""
    left_out = max(0, sum(len(text) for text, _ in line) - FOLD_CHARACTERS) if look.fold else 0
    if not left_out:
        return [*line], 0
    left, shown = FOLD_CHARACTERS, list[Span]()
    for text, token in line:
        shown.append((text[:left], token))
        left -= len(shown[-1][0])
    return shown, left_out
