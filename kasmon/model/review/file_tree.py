"""The files of a diff as a tree of folders, with the sums of each folder. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from kasmon.model.review.file_changes import FileChange


class TreeRow(NamedTuple):
    """A folder or a file."""

    depth: int
    label: str
    """A file's name, or a folder's with its `/`; a folder with one entry is on the row of that. Untrusted."""
    added: int
    removed: int
    file: int | None = None
    """The index of the file; None for a folder."""


def build_tree(files: Sequence[FileChange]) -> tuple[TreeRow, ...]:
    """Return the rows of *files*: those of a folder together, in the order of their names, folders first."""
    rows: list[TreeRow] = []
    entries = [(tuple(file.name.split("/")), at) for at, file in enumerate(files)]
    _add(rows, files, sorted(entries, key=lambda entry: _key(entry[0])), 0, 0)
    return tuple(rows)


def file_order(rows: Sequence[TreeRow]) -> tuple[int, ...]:
    """Return the indexes of the files in the order of their rows."""
    return tuple(row.file for row in rows if row.file is not None)


def _key(parts: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    last = len(parts) - 1
    return tuple((int(at == last), part) for at, part in enumerate(parts))


def _add(
    rows: list[TreeRow],
    files: Sequence[FileChange],
    entries: Sequence[tuple[tuple[str, ...], int]],
    prefix: int,
    depth: int,
) -> None:
    """Add *entries*, which share their first *prefix* parts and are sorted."""
    at = 0
    while at < len(entries):
        parts, file = entries[at]
        end = at if len(parts) - prefix > 1 else at + 1
        while end < len(entries) and len(entries[end][0]) - prefix > 1 and entries[end][0][prefix] == parts[prefix]:
            end += 1
        group = entries[at:end]
        if len(group) == 1:
            change = files[file]
            rows.append(TreeRow(depth, "/".join(parts[prefix:]), change.added, change.removed, file))
            at = end
            continue
        shared = _count_shared(group, prefix)
        added, removed = (sum(getattr(files[each], field) for _, each in group) for field in ("added", "removed"))
        rows.append(TreeRow(depth, "/".join(parts[prefix:shared]) + "/", added, removed))
        _add(rows, files, group, shared, depth + 1)
        at = end


def _count_shared(entries: Sequence[tuple[tuple[str, ...], int]], prefix: int) -> int:
    """Return how many parts of their folders all *entries* share."""
    first, last = entries[0][0], entries[-1][0]
    count = prefix + 1
    while count < min(len(parts) for parts, _ in entries) - 1 and first[count] == last[count]:
        if any(parts[count] != first[count] for parts, _ in entries):
            break
        count += 1
    return count
