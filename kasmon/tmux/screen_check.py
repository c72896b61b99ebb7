"""Whether rows that were read still stand on a pane's screen: a question that tmux answers in the moment of an act.

tmux can search what a pane shows (`#{C:...}`), and `if-shell -F` acts on the answer before anything else is done: so a
key is sent only where the screen is still the one that was read. Of what stands there only ASCII letters, digits and a
few marks of ours get into the question; all the rest is a wildcard, for a format is a language of its own.
"""

import re
from collections.abc import Sequence
from typing import Final

MARKS: Final = "❯›●▶►"
"""Marks of a menu's choice that count as they are."""
MOST: Final = 40
"""So many rows are asked for at most: the lowest of those that were read."""
LONGEST: Final = 120
MOST_GAPS: Final = 3
"""What stands behind so many gaps of unknown width is not asked for: a search with more of them may take long."""
_GAP: Final = re.compile(rf"[^\x20-\x7e{MARKS}]+")
_PLACE: Final = re.compile(rf"[^A-Za-z0-9*{MARKS}]")


def changed(size: tuple[int, int], rows: Sequence[str], read: range) -> str:
    """A format that is 1 unless the pane is of *size*, and each row of *read* stands where it stands in *rows*.

    Args:
        size: columns and rows of the pane.
        rows: all that it shows, top to bottom.
        read: which of them have to be the same still.
    """
    wanted = [pattern for at in reversed(read) if (pattern := _pattern(rows[at]))][:MOST]
    asked = ["#{pane_width}", "#{pane_height}", *(f"#{{C:{pattern}}}" for pattern in wanted)]
    expected = [*size, *(_first(pattern, rows) for pattern in wanted)]
    return f"#{{!=:{'|'.join(asked)},{'|'.join(map(str, expected))}}}"


def cursor_moved(x: int, y: int) -> str:
    """A format that is 1 unless the pane's cursor is at column *x* and row *y*, from 0: where it was when nothing was
    typed yet, an empty box has nothing else to compare."""
    return f"#{{!=:#{{cursor_x}}|#{{cursor_y}},{int(x)}|{int(y)}}}"


def _pattern(row: str) -> str:
    """*row* with `?` for each character that is no letter or digit, `*` for what may be of another width in tmux."""
    gapped = _GAP.sub("*", row.replace("*", "?"))
    pattern = _PLACE.sub("?", gapped)[:LONGEST]
    pattern = "*".join(pattern.split("*")[: MOST_GAPS + 1]).strip("?*")
    return pattern if re.search("[A-Za-z0-9]", pattern) else ""


def _first(pattern: str, rows: Sequence[str]) -> int:
    """The number of the first row that fits, from 1 as tmux counts; 0 if none does."""
    fits = re.compile("".join({"?": ".", "*": ".*"}.get(sign, re.escape(sign)) for sign in pattern))
    return next((at for at, row in enumerate(rows, 1) if fits.search(row)), 0)
