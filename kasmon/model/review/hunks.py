"""The lines of one file's diff, by hunk. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Final, Literal, NamedTuple

import msgspec

from kasmon.model.transcript.diff import HUNK, number_both
from kasmon.model.transcript.text import Token

FOLDED_LINES: Final = 1000
"""A hunk with more lines is folded at first."""


class DiffLine(NamedTuple):
    """One line of a diff."""

    text: str
    """Cleaned, with its sign."""
    token: Token
    """HUNK, ADDED, REMOVED, SAME; FAINT for what belongs to no file's content."""
    old: int = 0
    """Its number in the old file; 0 if it is not in it."""
    new: int = 0
    """Its number in the new file; 0 if it is not in it."""


class DiffHunk(NamedTuple):
    """Lines `start` to `end`, exclusive, of a file's diff; the first is its header, unless it has none."""

    start: int
    end: int

    @property
    def is_long(self) -> bool:
        return self.end - self.start > FOLDED_LINES


class ShownHunk(msgspec.Struct, frozen=True, kw_only=True):
    """A hunk as a person saw it."""

    name: str
    head: str
    """The first line of its file's part of the diff."""
    lines: tuple[str, ...]
    """With its header, cleaned."""
    turn: int | None = None
    """The turn whose changes it is part of; None for those of the branch."""

    @property
    def span(self) -> tuple[int, int]:
        """The numbers of its first and its last line in the file as it is now; as it was, if nothing is left of it."""
        found = HUNK.match(self.lines[0])
        assert found is not None
        old, old_count, new, new_count = found.groups()
        first, count = (new, new_count) if new_count != "0" else (old, old_count)
        return int(first), int(first) + int(count or 1) - 1

    @property
    def digest(self) -> str:
        """A digest of all of it; another hunk, or this one after its file changed, has another."""
        return sha256(msgspec.json.encode((self.name, self.head, self.lines, self.turn))).hexdigest()[:16]

    def count(self, sign: str) -> int:
        """Return the number of its lines with this sign."""
        return sum(line.startswith(sign) for line in self.lines[1:])


class HunkedFile(NamedTuple):
    lines: tuple[DiffLine, ...]
    hunks: tuple[DiffHunk, ...]

    def hunk_at(self, line: int) -> int:
        """Return the index of the hunk that has *line*."""
        return max(0, bisect_right(self.hunks, line, key=lambda hunk: hunk.start) - 1)


def parse(lines: Sequence[str]) -> HunkedFile:
    """Return the *lines* of `FileChange.lines`, by hunk."""
    numbered = tuple(map(partial(tuple.__new__, DiffLine), number_both(lines)))  # without a call for each line
    starts = [at for at, line in enumerate(numbered) if line.token is Token.HUNK]
    if not starts or starts[0]:
        starts.insert(0, 0)
    ends = [*starts[1:], len(numbered)]
    return HunkedFile(numbered, tuple(map(DiffHunk, starts, ends)))


def numbered_lines(file: HunkedFile, side: Literal["new", "old"]) -> list[tuple[int, int]]:
    """Return the index and the number of each line that is in the new file, or in the old one."""
    numbers = ((at, line.new if side == "new" else line.old) for at, line in enumerate(file.lines))
    return [(at, number) for at, number in numbers if number]


def list_changes(file: HunkedFile) -> list[int]:
    """Return the first line of each run of changed lines."""
    changed = (Token.ADDED, Token.REMOVED)
    return [
        at
        for at, line in enumerate(file.lines)
        if line.token in changed and (at == 0 or file.lines[at - 1].token not in changed)
    ]
