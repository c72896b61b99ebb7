r"""Patterns of a screen's file: regular expressions of which no row of a screen can make a long search.

Python's engine goes back over what it took, so some patterns take for ever on rows that were made for it. Here at most
two parts of a pattern may have to be tried at each length:

| part | counts |
|---|---|
| `x*` `x+` `x{2,}` `x{0,40}` and their lazy forms | one each |
| `x{3}`, and `x*+` `x++` `x?+`, which give nothing back | none |
| `x?` `x{1,4}` | none; eight of `x?` are the most |
| a pattern with any of these that does not begin with `^` | one more: it is tried at each place of the row |

Only single characters, classes and `.` are repeated; a group is optional (`?`) at most, and gives back what it took:
Python before 3.11.5 matches one that does not wrongly (python/cpython#106052). There are no back-references, no looking
ahead or behind, no flags. So a row of n characters costs n² steps at the very worst, and rows are short
(`screenshot.LONGEST`).
"""

import re
from typing import Final

LONGEST: Final = 400
"""The most characters that a pattern has."""
MOST: Final = 2
"""So many parts of a pattern may be tried at each length."""
FREE: Final = 8
"""A repetition of no more lengths than that counts as optional."""
MOST_WAYS: Final = 256
"""In so many ways optional parts may be there or not."""

_PIECE: Final = re.compile(
    r"(?P<escape>\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|N\{[^}]*\}|.))"
    r"|(?P<klass>\[\^?\]?(?:\\.|[^\\\]])*\])"
    r"|(?P<open>\((?:\?:|\?P<[A-Za-z_]\w*>)?)"
    r"|(?P<close>\))"
    r"|(?P<repeat>(?:[*+?]|\{\d*,?\d*\})[?+]?)"
    r"|(?P<plain>.)",
    re.DOTALL,
)


class PatternError(ValueError):
    """A pattern that is none, or that a row could make slow; the message says why."""


def compiled(source: str) -> re.Pattern[str]:
    """*source* as a pattern.

    Raises:
        PatternError: if it is no regular expression, or none that is fast on every row.
    """
    if len(source) > LONGEST:
        raise PatternError(f"it is longer than {LONGEST} characters")
    try:
        pattern = re.compile(source)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"it is not a valid pattern: {error}") from error
    tried, ways = _cost(source)
    if tried > MOST:
        raise PatternError(
            f"{tried} of its parts have no length limit, {MOST} are allowed: start it with ^, or write x++ for x+"
        )
    if ways > MOST_WAYS:
        raise PatternError("too many of its parts are optional: write x?+ for x?")
    return pattern


def _cost(source: str) -> tuple[int, int]:
    """How many parts of *source* are tried at each length, and in how many ways the optional ones can be left out.

    Raises:
        PatternError: if it holds what is not allowed.
    """
    tried, ways, before, has_repeat = 0, 1, "", False
    for match in _PIECE.finditer(source):
        kind, piece = str(match.lastgroup), match[0]
        if kind == "escape" and piece[1].isdigit():
            raise PatternError("it refers back to a group")
        if kind == "open" and piece == "(" and source.startswith("(?", match.start()):
            raise PatternError(
                f"{source[match.start() : match.start() + 3]!r} is not allowed: (, (?: and (?P<name> are"
            )
        if kind == "repeat":
            spread = _spread(piece)
            if before == "close" and (spread != 2 or piece.endswith("+")):
                raise PatternError("it repeats a group")
            has_repeat = has_repeat or spread == 0
            if not (piece.endswith("+") and piece != "+"):
                tried += spread == 0
                ways *= spread or 1
        before = kind
    is_tied = source.startswith("^") and not _has_bare_branch(source)
    return tried + (has_repeat and not is_tied), ways


def _spread(piece: str) -> int:
    """How many lengths the repetition *piece* allows: 1 for `{3}`, 2 for `?`, 0 for any or more than `FREE`."""
    if piece[0] != "{":
        return 2 if piece[0] == "?" else 0
    low, comma, high = piece[1 : piece.index("}")].partition(",")
    if not comma:
        return 1
    spread = int(high) - int(low or 0) + 1 if high else 0
    return spread if spread <= FREE else 0


def _has_bare_branch(source: str) -> bool:
    """Whether *source* has a branch outside of groups, which its `^` does not tie."""
    depth = 0
    for match in _PIECE.finditer(source):
        depth += (match.lastgroup == "open") - (match.lastgroup == "close")
        if not depth and match.lastgroup == "plain" and match[0] == "|":
            return True
    return False
