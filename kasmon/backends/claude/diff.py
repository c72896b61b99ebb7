"""Unified diffs: of a finished tool, as the agent reports it, and of a requested tool, against the current file."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kasmon.backends.common.json_access import Table, count, rows, text, texts

CONTEXT: Final = 3
"""How many unchanged lines surround a change."""
COMPARED: Final = 4_000_000
"""The largest product of line counts for which two texts are compared; beyond it, all lines are replaced."""
CHANGING: Final = frozenset({"Edit", "Write", "MultiEdit"})
"""Tools whose input determines a file's content."""


class Hunk(NamedTuple):
    """One change: its first line in the old and the new file, counted from 1, and its lines with their signs."""

    old: int
    new: int
    lines: Sequence[str]


def diff_of_result(result: Table) -> str:
    """Return the diff of a finished tool from its structured *result*; empty if it changed no file."""
    path = text(result, "filePath")
    hunks = [
        Hunk(count(hunk, "oldStart"), count(hunk, "newStart"), texts(hunk, "lines"))
        for hunk in rows(result, "structuredPatch")
    ]
    if path and hunks:
        return _written(path, hunks)
    if path and result.get("type") == "create":
        return _written(path, _hunks("", text(result, "content")))
    return ""


def wanted(tool: str, asked: Table, before: str | None) -> str:
    """Return the diff of what *tool* would do with the input *open*; empty if unknown.

    Args:
        tool: the tool's name.
        asked: its input.
        before: what the file holds now, empty if there is none; None if unknown.
    """
    path = text(asked, "file_path")
    if tool not in CHANGING or not path:
        return ""
    if tool == "Write":
        return "" if before is None else _written(path, _hunks(before, text(asked, "content")))
    edits = rows(asked, "edits") if tool == "MultiEdit" else [asked]
    after = _edited(before, edits) if before is not None else None
    if before is not None and after is not None:
        return _written(path, _hunks(before, after))
    loose = [hunk for edit in edits for hunk in _hunks(text(edit, "old_string"), text(edit, "new_string"))]
    return _written(path, loose)


def _edited(before: str, edits: Sequence[Table]) -> str | None:
    """Return *before* after *edits*; None if one of them does not match."""
    after = before
    for edit in edits:
        old, new = text(edit, "old_string"), text(edit, "new_string")
        if (old not in after) if old else after:
            return None
        after = after.replace(old, new, -1 if edit.get("replace_all") is True else 1) if old else new
    return after


def _hunks(before: str, after: str) -> list[Hunk]:
    """Return the changes from *before* to *after*; common first and last lines are skipped."""
    old, new = _lines(before), _lines(after)
    same = next(
        (at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    )
    most = min(len(old), len(new)) - same
    behind = next((at for at in range(most) if old[-1 - at] != new[-1 - at]), most)
    if same == len(old) == len(new):
        return []
    first = max(0, same - CONTEXT)
    last_old, last_new = (min(len(lines), len(lines) - behind + CONTEXT) for lines in (old, new))
    middle_old, middle_new = old[first:last_old], new[first:last_new]
    if len(middle_old) * len(middle_new) > COMPARED:
        lines = [*(f"-{line}" for line in middle_old), *(f"+{line}" for line in middle_new)]
        return [Hunk(first + 1, first + 1, lines)]
    return [Hunk(hunk.old + first, hunk.new + first, hunk.lines) for hunk in _compared(middle_old, middle_new)]


def _lines(of: str) -> list[str]:
    lines = of.split("\n")
    return lines if lines[-1] else lines[:-1]


def _compared(old: Sequence[str], new: Sequence[str]) -> Iterator[Hunk]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT):
        lines: list[str] = []
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                lines += (f" {line}" for line in old[old_from:old_to])
                continue
            lines += (f"-{line}" for line in old[old_from:old_to])
            lines += (f"+{line}" for line in new[new_from:new_to])
        yield Hunk(group[0][1] + 1, group[0][3] + 1, lines)


def _written(path: str, hunks: Sequence[Hunk]) -> str:
    """Return *hunks* as a unified diff of *path*; empty if there are none."""
    if not hunks:
        return ""
    shown = " ".join(path.splitlines())
    is_new = len(hunks) == 1 and all(line.startswith("+") for line in hunks[0].lines) and hunks[0].new <= 1
    told = ["--- /dev/null" if is_new else f"--- {shown}", f"+++ {shown}"]
    for hunk in hunks:
        taken, put = (sum(line[:1] in (sign, " ") for line in hunk.lines) for sign in "-+")
        told.append(f"@@ -{hunk.old if taken else hunk.old - 1},{taken} +{hunk.new if put else hunk.new - 1},{put} @@")
        told += hunk.lines
    return "\n".join(told)
