r"""Compiles the patterns of screen rule files: regular expressions that are fast on every row of a screen.

Python's engine backtracks, so some patterns take exponential time on crafted rows. Here at most two parts of a
pattern may have to be tried at each length:

| part | counts |
|---|---|
| `x*` `x+` `x{2,}` `x{0,40}` and their lazy forms | one each |
| `x{3}`, and `x*+` `x++` `x?+`, which do not backtrack | none |
| `x?` `x{1,4}` | none; eight of `x?` are the most |
| a pattern with any of these that does not begin with `^` | one more: it is tried at each position of the row |

Only single characters, classes and `.` are repeated. A group is optional (`?`) at most, and must backtrack: Python
before 3.11.5 matches a possessive one wrongly (python/cpython#106052). Back-references, lookahead, lookbehind and
flags are not allowed. So a row of n characters costs n² steps in the worst case, and rows are short
(`terminal_screen.LONGEST`).
"""

import re
from typing import Final

LONGEST: Final = 400
"""The maximum length of a pattern."""
MOST: Final = 2
"""How many parts of a pattern may be tried at each length."""
FREE: Final = 8
"""A repetition with at most this many lengths counts as optional."""
MOST_WAYS: Final = 256
"""The maximum number of combinations of optional parts."""

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
    """An invalid pattern, or one that could be slow on some row; the message gives the reason."""


def compiled(source: str) -> re.Pattern[str]:
    """Compile *source*. Raises `PatternError` if it is no valid regular expression, or not fast on every row."""
    if len(source) > LONGEST:
        raise PatternError(f"it is longer than {LONGEST} characters")
    try:
        pattern = re.compile(source)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"it is not a valid pattern: {error}") from error
    tried, branches = _compute_cost(source)
    if tried > MOST:
        raise PatternError(
            f"{tried} of its parts have no length limit, {MOST} are allowed: start it with ^, or write x++ for x+"
        )
    if branches > MOST_WAYS:
        raise PatternError("too many of its parts are optional: write x?+ for x?")
    return pattern


def _compute_cost(source: str) -> tuple[int, int]:
    """Return how many parts of *source* are tried at each length, and the number of combinations of its optional parts.

    Raises:
        PatternError: if it contains a forbidden construct.
    """
    tried, branches, before, has_repeat = 0, 1, "", False
    for match in _PIECE.finditer(source):
        kind, piece = str(match.lastgroup), match[0]
        if kind == "escape" and piece[1].isdigit():
            raise PatternError("it refers back to a group")
        if kind == "open" and piece == "(" and source.startswith("(?", match.start()):
            raise PatternError(
                f"{source[match.start() : match.start() + 3]!r} is not allowed: (, (?: and (?P<name> are"
            )
        if kind == "repeat":
            spread = _count_lengths(piece)
            if before == "close" and (spread != 2 or piece.endswith("+")):
                raise PatternError("it repeats a group")
            has_repeat = has_repeat or spread == 0
            if not (piece.endswith("+") and piece != "+"):
                tried += spread == 0
                branches *= spread or 1
        before = kind
    is_tied = source.startswith("^") and not _has_bare_branch(source)
    return tried + (has_repeat and not is_tied), branches


def _count_lengths(piece: str) -> int:
    """Return how many lengths the repetition *piece* allows: 1 for `{3}`, 2 for `?`, 0 if unlimited or above `FREE`."""
    if piece[0] != "{":
        return 2 if piece[0] == "?" else 0
    low, comma, high = piece[1 : piece.index("}")].partition(",")
    if not comma:
        return 1
    spread = int(high) - int(low or 0) + 1 if high else 0
    return spread if spread <= FREE else 0


def _has_bare_branch(source: str) -> bool:
    """Return whether *source* has a branch outside of groups, which its `^` does not anchor."""
    depth = 0
    for match in _PIECE.finditer(source):
        depth += (match.lastgroup == "open") - (match.lastgroup == "close")
        if not depth and match.lastgroup == "plain" and match[0] == "|":
            return True
    return False
