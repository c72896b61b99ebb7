"""Codex's file changes as one unified diff: codex sends the content of a new file, and bare hunks of a changed one."""

import os
from collections.abc import Sequence

from kasmon.backends.common.diff import NOWHERE, compare, render, shorten_path, split_lines
from kasmon.backends.common.json_access import Table, text


def unified(changes: Sequence[Table], workdir: str) -> str:
    """Return the unified diff of *changes*; paths within *workdir* are shown relative to it."""
    return "".join(_one(change, workdir) for change in changes)


def paths(changes: Sequence[Table], workdir: str) -> list[str]:
    """Return the files that *changes* touch, in their order."""
    return [shorten_path(text(change, "path"), workdir) for change in changes]


def _one(change: Table, workdir: str) -> str:
    path = shorten_path(text(change, "path"), workdir)
    body = text(change, "diff")
    kind = text(change, "kind", "type")
    if kind == "add":
        return render(NOWHERE, _side("b", path), compare([], split_lines(body)))
    if kind == "delete":
        return render(_side("a", path), NOWHERE, compare(split_lines(body), []))
    moved = shorten_path(text(change, "kind", "move_path"), workdir) or path
    hunks = body if body.endswith("\n") or not body else f"{body}\n"
    if body.startswith(("--- ", "diff ")):
        return hunks
    renamed = f"rename from {path}\nrename to {moved}\n" if moved != path else ""
    return renamed + render(_side("a", path), _side("b", moved), ()) + hunks


def _side(side: str, path: str) -> str:
    return path if os.path.isabs(path) else f"{side}/{path}"  # noqa: PTH117 - it may be any text
