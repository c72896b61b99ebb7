"""Codex's file changes as one unified diff: codex sends the content of a new file, and bare hunks of a changed one."""

import os
from collections.abc import Sequence

from kasmon.backends.common.json_access import Table, text

NOWHERE = "/dev/null"


def unified(changes: Sequence[Table], workdir: str) -> str:
    """Return the unified diff of *changes*; paths within *workdir* are shown relative to it."""
    return "".join(_one(change, workdir) for change in changes)


def paths(changes: Sequence[Table], workdir: str) -> list[str]:
    """Return the files that *changes* touch, in their order."""
    return [shortened(text(change, "path"), workdir) for change in changes]


def shortened(path: str, workdir: str) -> str:
    """Return *path*, relative to *workdir* if it is inside."""
    inside = workdir.rstrip("/") + "/"
    return path.removeprefix(inside) if path.startswith(inside) else path


def _one(change: Table, workdir: str) -> str:
    path = shortened(text(change, "path"), workdir)
    body = text(change, "diff")
    kind = text(change, "kind", "type")
    if kind == "add":
        return _header(NOWHERE, _side("b", path)) + _whole(body, "+")
    if kind == "delete":
        return _header(_side("a", path), NOWHERE) + _whole(body, "-")
    moved = shortened(text(change, "kind", "move_path"), workdir) or path
    hunks = body if body.endswith("\n") or not body else f"{body}\n"
    if body.startswith(("--- ", "diff ")):
        return hunks
    renamed = f"rename from {path}\nrename to {moved}\n" if moved != path else ""
    return renamed + _header(_side("a", path), _side("b", moved)) + hunks


def _side(side: str, path: str) -> str:
    return path if os.path.isabs(path) else f"{side}/{path}"  # noqa: PTH117 - it may be any text


def _header(before: str, after: str) -> str:
    return f"--- {before}\n+++ {after}\n"


def _whole(content: str, sign: str) -> str:
    """Return the one hunk that adds (`+`) or removes (`-`) all of *content*."""
    if not content:
        return ""
    lines = content.split("\n")
    is_whole = lines[-1] == ""
    if is_whole:
        lines.pop()
    span = "-0,0 +1," if sign == "+" else "-1,"
    end = "" if sign == "+" else " +0,0"
    body = "".join(f"{sign}{line}\n" for line in lines)
    return f"@@ {span}{len(lines)}{end} @@\n{body}" + ("" if is_whole else "\\ No newline at end of file\n")
