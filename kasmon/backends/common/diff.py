"""Unified diffs: of two texts, or of hunks that an agent reports itself. Pure."""

import difflib
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

CONTEXT: Final = 3
"""How many unchanged lines surround a change."""
COMPARED: Final = 4_000_000
"""The largest product of line counts for which two texts are compared; beyond it, the differing range is one change."""
NOWHERE: Final = "/dev/null"
"""The path of a missing file."""
LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")


class Hunk(NamedTuple):
    """One change: its first line in the old and the new file, from 1, and its lines with their signs and newlines."""

    old: int
    new: int
    lines: Sequence[str]


def split_lines(text: str) -> list[str]:
    return LINE.findall(text)


def compare(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """Return the changes from the lines *old* to the lines *new*."""
    same = sum(1 for _ in takewhile(bool, (one == other for one, other in zip(old, new, strict=False))))
    most = min(len(old), len(new)) - same
    behind = sum(1 for _ in takewhile(bool, (old[-1 - n] == new[-1 - n] for n in range(most))))
    if same == len(old) == len(new):
        return []
    first, rest = max(0, same - CONTEXT), max(0, behind - CONTEXT)
    before, after = old[first : len(old) - rest], new[first : len(new) - rest]
    if len(before) * len(after) <= COMPARED:
        groups = difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT)
    else:
        start, tail = same - first, behind - rest
        ends = len(before) - tail, len(after) - tail
        change = ("replace", start, ends[0], start, ends[1])
        groups = iter([[("equal", 0, start, 0, start), change, ("equal", ends[0], len(before), ends[1], len(after))]])
    hunks: list[Hunk] = []
    for group in groups:
        lines: list[str] = []
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                lines += (f" {line}" for line in before[old_from:old_to])
                continue
            lines += (f"-{line}" for line in before[old_from:old_to])
            lines += (f"+{line}" for line in after[new_from:new_to])
        hunks.append(Hunk(group[0][1] + first + 1, group[0][3] + first + 1, lines))
    return hunks


def render(before: str, after: str, hunks: Iterable[Hunk]) -> str:
    """Return *hunks* as a diff from the file *before* to the file *after*; a line without a newline is the last."""
    parts = [f"--- {before}\n+++ {after}\n"]
    for hunk in hunks:
        removed, added = (sum(line[:1] in (sign, " ") for line in hunk.lines) for sign in "-+")
        old, new = hunk.old if removed else hunk.old - 1, hunk.new if added else hunk.new - 1
        parts.append(f"@@ -{old},{removed} +{new},{added} @@\n")
        parts += (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in hunk.lines)
    return "".join(parts)


def shorten_path(path: str, workdir: str) -> str:
    """Return *path*, relative to *workdir* if it is inside."""
    return path.removeprefix(workdir.rstrip("/") + "/")
