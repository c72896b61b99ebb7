"""Unified diffs: of a finished tool, as the agent reports it, and of a requested tool, against the current file."""

from collections.abc import Sequence
from typing import Final

from kasmon.backends.common.diff import NOWHERE, Hunk, compare, render, split_lines
from kasmon.backends.common.json_access import Table, count, rows, text, texts

CHANGING: Final = frozenset({"Edit", "Write", "MultiEdit"})
"""Tools whose input determines a file's content."""


def diff_of_result(result: Table) -> str:
    """Return the diff of a finished tool from its structured *result*; empty if it changed no file."""
    path = text(result, "filePath")
    hunks = [
        Hunk(count(hunk, "oldStart"), count(hunk, "newStart"), [f"{line}\n" for line in texts(hunk, "lines")])
        for hunk in rows(result, "structuredPatch")
    ]
    if path and hunks:
        return _format_hunks(path, hunks)
    if path and result.get("type") == "create":
        return _format_hunks(path, _hunks("", text(result, "content")))
    return ""


def wanted(tool: str, asked: Table, before: str | None) -> str:
    """Return the diff of what *tool* would do with the input *asked*; empty if unknown.

    *before*: what the file holds now, empty if there is none; None if unknown.
    """
    path = text(asked, "file_path")
    if tool not in CHANGING or not path:
        return ""
    if tool == "Write":
        return "" if before is None else _format_hunks(path, _hunks(before, text(asked, "content")))
    edits = rows(asked, "edits") if tool == "MultiEdit" else [asked]
    after = _apply_edits(before, edits) if before is not None else None
    if before is not None and after is not None:
        return _format_hunks(path, _hunks(before, after))
    loose = [hunk for edit in edits for hunk in _hunks(text(edit, "old_string"), text(edit, "new_string"))]
    return _format_hunks(path, loose)


def _apply_edits(before: str, edits: Sequence[Table]) -> str | None:
    """Return *before* after *edits*; None if one of them does not match."""
    after = before
    for edit in edits:
        old, new = text(edit, "old_string"), text(edit, "new_string")
        if (old not in after) if old else after:
            return None
        after = after.replace(old, new, -1 if edit.get("replace_all") is True else 1) if old else new
    return after


def _hunks(before: str, after: str) -> list[Hunk]:
    return compare(*(split_lines(text if text.endswith("\n") or not text else f"{text}\n") for text in (before, after)))


def _format_hunks(path: str, hunks: Sequence[Hunk]) -> str:
    """Return *hunks* as a unified diff of *path*; empty if there are none."""
    if not hunks:
        return ""
    shown = " ".join(path.splitlines())
    is_new = len(hunks) == 1 and all(line.startswith("+") for line in hunks[0].lines) and hunks[0].new <= 1
    return render(NOWHERE if is_new else shown, shown, hunks).removesuffix("\n")
