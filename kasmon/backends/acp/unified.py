"""Two texts as a unified diff, in time that stays small for texts of any size."""

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
COMPARED: Final = 4000
"""How many lines are compared in full, both texts together; of longer ones all between the first and last difference
is one change."""
CONTEXT: Final = 3
NOWHERE: Final = "/dev/null"


def unified(path: str, old: str | None, new: str | None) -> str:
    """The change from *old* to *new*; None is a file that is not there. Empty if nothing changes."""
    before, after = LINE.findall(old or ""), LINE.findall(new or "")
    heading = (NOWHERE if old is None else f"a/{path}", NOWHERE if new is None else f"b/{path}")
    if before == after:
        return "" if old is not None and new is not None else f"--- {heading[0]}\n+++ {heading[1]}\n"
    if len(before) + len(after) <= COMPARED:
        rows: Iterator[str] = difflib.unified_diff(before, after, *heading, n=CONTEXT)
    else:
        rows = _coarse(before, after, heading)
    return "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)


def _coarse(before: Sequence[str], after: Sequence[str], heading: tuple[str, str]) -> Iterator[str]:
    """One hunk from the first line that differs to the last."""
    head = sum(1 for _ in takewhile(bool, (one == other for one, other in zip(before, after, strict=False))))
    most = min(len(before), len(after)) - head
    tail = sum(1 for _ in takewhile(bool, (before[-1 - n] == after[-1 - n] for n in range(most))))
    start = max(0, head - CONTEXT)
    out, come = before[head : len(before) - tail], after[head : len(after) - tail]
    behind = before[len(before) - tail : len(before) - tail + CONTEXT]
    same = (head - start) + len(behind)
    yield f"--- {heading[0]}\n"
    yield f"+++ {heading[1]}\n"
    yield f"@@ -{_range(start, len(out) + same)} +{_range(start, len(come) + same)} @@\n"
    yield from (f" {line}" for line in before[start:head])
    yield from (f"-{line}" for line in out)
    yield from (f"+{line}" for line in come)
    yield from (f" {line}" for line in behind)


def _range(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"
