"""Which worktrees change the same file, and which of these the same lines. Pure: diffs in, collisions out."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kasmon.model.permission import SessionId
from kasmon.model.transcript.diff import HUNK

LineSpan: TypeAlias = tuple[int, int]
"""Lines of the common base: the first, and the one behind the last. An insertion includes its two neighbour lines."""
WHOLE: Final[tuple[LineSpan, ...]] = ((0, 1 << 31),)
"""The whole file: for a new, deleted or binary one."""


class WorktreeChanges(msgspec.Struct, frozen=True):
    base: str = ""
    """The base commit; lines are only compared between worktrees with the same one."""
    files: Mapping[str, tuple[LineSpan, ...]] = {}


class FileCollision(NamedTuple):
    """A file that another worktree changes too."""

    other: str
    file: str
    lines: bool
    """Whether it changes the same lines."""


def parse_changes(base: str, diff: str, new: tuple[str, ...] = ()) -> WorktreeChanges:
    """Return the changes in a unified diff (`git diff -U0 --no-renames --no-prefix`), and the *new* files."""
    files: dict[str, tuple[LineSpan, ...]] = dict.fromkeys(new, WHOLE)
    name = old = ""
    left_old = left_new = 0
    for line in diff.split("\n"):
        if left_old > 0 and line.startswith("-"):
            left_old -= 1
        elif left_new > 0 and line.startswith("+"):
            left_new -= 1
        elif line.startswith("diff --git "):
            name = old = ""
        elif line.startswith("--- "):
            old = _path(line[4:])
        elif line.startswith("+++ "):
            new_name = _path(line[4:])
            name = new_name or old
            files.setdefault(name, WHOLE if not (old and new_name) else ())
        elif line.startswith("Binary files ") and line.endswith(" differ"):
            files |= dict.fromkeys(_of_binary(line), WHOLE)
        elif name and (hunk := HUNK.match(line)):
            start, count = int(hunk[1]), int(hunk[2] or 1)
            left_old, left_new = count, int(hunk[4] or 1)
            if files[name] is not WHOLE:
                files[name] = (*files[name], (start, start + count) if count else (start, start + 2))
    return WorktreeChanges(base, files)


def find_collisions(trees: Mapping[str, WorktreeChanges]) -> dict[str, tuple[FileCollision, ...]]:
    """Return worktree -> its files that other worktrees change too; worktrees without any are left out."""
    by_file: dict[str, list[str]] = {}
    for tree, changed in trees.items():
        for file in changed.files:
            by_file.setdefault(file, []).append(tree)
    found: dict[str, list[FileCollision]] = {}
    for file, among in sorted(by_file.items()):
        for one, other in combinations(sorted(among), 2):
            same = trees[one].base == trees[other].base and _meet(trees[one].files[file], trees[other].files[file])
            found.setdefault(one, []).append(FileCollision(other, file, same))
            found.setdefault(other, []).append(FileCollision(one, file, same))
    return {tree: tuple(of_it) for tree, of_it in found.items()}


class CollisionSummary(NamedTuple):
    """The collisions of a session as its row shows them."""

    text: str
    lines: bool
    """Whether another worktree changes the same lines."""
    others: tuple[SessionId, ...] = ()


def summarize(named: Sequence[tuple[str, FileCollision]]) -> CollisionSummary:
    """Summarise some collisions, each with the other session's name: the worst one, and the number of the others."""
    name, worst = next(((name, hit) for name, hit in named if hit.lines), named[0])
    more = f" (+{len(named) - 1})" if len(named) > 1 else ""
    return CollisionSummary(describe(worst, name) + more, worst.lines)


def describe(hit: FileCollision, name: str) -> str:
    """Return *hit* as text for people; *name* is their name of the other session."""
    return f"{name} changes {'the same lines of ' if hit.lines else ''}{hit.file} too"


def _meet(one: tuple[LineSpan, ...], other: tuple[LineSpan, ...]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] for a in one for b in other)


def _path(shown: str) -> str:
    """Return a path as a diff names it, without the tab that git adds to names with blanks; empty for `/dev/null`."""
    path = shown.removesuffix("\t")
    return "" if path == "/dev/null" else path


def _of_binary(line: str) -> list[str]:
    names = line.removeprefix("Binary files ").removesuffix(" differ").split(" and ")
    return [name for name in names if name != "/dev/null"]
