"""A unified diff as rows: line numbers on the left, removed and added lines distinguished by sign and style."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kasmon.model.transcript.text import Margin, Span, TextLine, Token, wrap

HUNK: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
HEADERS: Final = ("--- ", "+++ ", "diff ", "index ")
SIDES: Final = {"-": Token.REMOVED, "+": Token.ADDED, " ": Token.SAME, "": Token.SAME}


def draw_diff(lines: Sequence[str], width: int, margin: Margin = ()) -> list[TextLine]:
    """Return the cleaned *lines* of a diff as rows of at most *width* cells, *margin* left of each."""
    number_width = digits(lines)
    return [line for number, span in number_lines(lines) for line in row(number, [span], number_width, width, margin)]


def row(number: str, spans: Sequence[Span], number_width: int, width: int, margin: Margin = ()) -> list[TextLine]:
    """Return a line of a diff as rows of at most *width* cells, the first with its *number* in *number_width* cells."""
    first = (*margin, (f"{number:>{number_width}} ", Token.NUMBER))
    rest = (*margin, (" " * (number_width + 1), Token.NUMBER))
    return wrap(spans, width, first, rest, words=False)


def digits(lines: Sequence[str]) -> int:
    """Return the number of digits of a diff's longest line number."""
    return max((len(number) for number, _ in number_lines(lines)), default=1)


def number_lines(lines: Sequence[str]) -> Iterator[tuple[str, Span]]:
    """Yield each line with its number: in the old file if it was removed, else in the new one; "" outside of hunks."""
    for line, token, old, new in number_both(lines):
        number = "" if token in (Token.HUNK, Token.FAINT) else str(old if token is Token.REMOVED else new)
        yield number, (line, token)


def number_both(lines: Sequence[str]) -> Iterator[tuple[str, Token, int, int]]:
    """Yield each line with its kind, and its numbers in the old and in the new file; 0 where it is not in it.

    Until a hunk has all its lines, a line that looks like a header belongs to the hunk.
    """
    old = new = old_left = new_left = 0
    is_in_hunk = False
    for line in lines:
        sign = line[:1]
        if sign == "@" and (hunk := HUNK.match(line)):
            is_in_hunk = True
            old, new = int(hunk[1]), int(hunk[3])
            old_left, new_left = int(hunk[2] or 1), int(hunk[4] or 1)
            yield line, Token.HUNK, 0, 0
        elif sign not in SIDES or (old_left <= 0 and new_left <= 0 and (not is_in_hunk or line.startswith(HEADERS))):
            yield line, Token.FAINT, 0, 0
        else:
            in_old, in_new = sign != "+", sign != "-"
            yield line, SIDES[sign], old if in_old else 0, new if in_new else 0
            old, old_left = old + in_old, old_left - in_old
            new, new_left = new + in_new, new_left - in_new


def changed_lines(lines: Sequence[str]) -> list[str]:
    """Return the removed and added lines of a diff, each with its sign; the same for the same change in any context."""
    return [line for line, token, _, _ in number_both(lines) if token in (Token.REMOVED, Token.ADDED)]


def count_changes(lines: Sequence[str]) -> str:
    """Return how many lines a diff adds and removes, as `+1 −2`."""
    changed = changed_lines(lines)
    added = sum(line.startswith("+") for line in changed)
    return f"+{added} −{len(changed) - added}"


def of_inputs(asked: Mapping[str, Any], edited: Mapping[str, Any]) -> str:
    """Return the unified diff from *asked* to *edited*, two inputs of a tool; empty if they are the same."""
    import difflib  # only here: it is heavy, and inputs are rarely edited

    before, after = _as_lines(asked), _as_lines(edited)
    return "\n".join(list(difflib.unified_diff(before, after, lineterm=""))[2:])


def _as_lines(given: Mapping[str, Any]) -> list[str]:
    """Return an input as lines: a field per line; a multi-line value is below its name."""
    import json  # only here: the dashboard's first frame imports this module, and inputs are rarely edited

    lines: list[str] = []
    for name, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        first, *rest = text.split("\n")
        lines += [f"{name}:", *(f"  {line}" for line in (first, *rest))] if rest else [f"{name}: {first}"]
    return lines
