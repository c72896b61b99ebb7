"""Formats that check whether a pane's screen still shows given rows; tmux evaluates them right before it acts.

tmux can search a pane's screen (`#{C:...}`), and `if-shell -F` acts on the result before anything else happens. So a
key is sent only while the screen is still the one that was read. Only ASCII letters, digits and a few known marks of
the screen enter the format, since a format is a language of its own; every other character becomes a wildcard.
"""

import re
from collections.abc import Sequence
from typing import Final

MARKS: Final = "❯›●▶►"
"""Marks of a menu's choice, compared literally."""
MOST: Final = 40
"""The most rows that are compared: the lowest of those that were read."""
LONGEST: Final = 120
MOST_GAPS: Final = 3
"""Text after this many gaps of unknown width is not compared: a search with more gaps may take long."""
_GAP: Final = re.compile(rf"[^\x20-\x7e{MARKS}]+")
_PLACE: Final = re.compile(rf"[^A-Za-z0-9*{MARKS}]")


def changed(size: tuple[int, int], rows: Sequence[str], read: range) -> str:
    """Return a format that is 1 unless the pane has *size*, and shows each row of *read* where *rows* has it.

    Args:
        size: columns and rows of the pane.
        rows: all rows of the pane, top to bottom.
        read: the indices of the rows that must be unchanged.
    """
    patterns = [pattern for at in reversed(read) if (pattern := _build_pattern(rows[at]))][:MOST]
    formats = ["#{pane_width}", "#{pane_height}", *(f"#{{C:{pattern}}}" for pattern in patterns)]
    expected = [*size, *(_find_first(pattern, rows) for pattern in patterns)]
    return f"#{{!=:{'|'.join(formats)},{'|'.join(map(str, expected))}}}"


def cursor_moved(x: int, y: int) -> str:
    """Return a format that is 1 unless the pane's cursor is at column *x* and row *y*, from 0. For an empty input box,
    which has no text to compare."""
    return f"#{{!=:#{{cursor_x}}|#{{cursor_y}},{int(x)}|{int(y)}}}"


def _build_pattern(row: str) -> str:
    """Return *row* with `?` for each special character and `*` for characters whose width may differ in tmux."""
    gapped = _GAP.sub("*", row.replace("*", "?"))
    pattern = _PLACE.sub("?", gapped)[:LONGEST]
    pattern = "*".join(pattern.split("*")[: MOST_GAPS + 1]).strip("?*")
    return pattern if re.search("[A-Za-z0-9]", pattern) else ""


def _find_first(pattern: str, rows: Sequence[str]) -> int:
    """Return the number of the first row that matches, from 1 as in tmux; 0 if none does."""
    fits = re.compile("".join({"?": ".", "*": ".*"}.get(sign, re.escape(sign)) for sign in pattern))
    return next((at for at, row in enumerate(rows, 1) if fits.search(row)), 0)
