"""The lines of one file's diff, by hunk; which added line replaced which removed one, and their changed words. Pure."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from kasmon.model.transcript.diff import number_both
from kasmon.model.transcript.text import Token

FOLDED_LINES: Final = 1000
"""A hunk with more lines is folded at first."""
LONGEST_LINE: Final = 500
"""Words of lines longer than this, in characters, are not compared."""
MOST_WORDS: Final = 160
"""Nor are lines with more words and signs."""
ALIKE: Final = 0.4
"""Lines that share a smaller part of their text are shown as changed as a whole."""
_WORD: Final = re.compile(r"\w+|\s+|[^\w\s]")
Range: TypeAlias = tuple[int, int]
"""The first character, and the one after the last."""
Pair: TypeAlias = tuple[int | None, int | None]
"""The indexes of an old line and of the new one beside it; None where a side has none."""


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
    """Its file."""
    head: str
    """The first line of its file's part of the diff."""
    lines: tuple[str, ...]
    """With its header, cleaned."""
    turn: int | None = None
    """The turn whose changes it is part of; None for those of the branch."""


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


def pair_up(file: HunkedFile, start: int, end: int) -> Iterator[Pair]:
    """Yield lines `start` to `end` of *file* for two columns; removed lines are beside those that replaced them."""
    at = start
    while at < end:
        token = file.lines[at].token
        if token not in (Token.REMOVED, Token.ADDED):
            yield at, at
            at += 1
            continue
        first = at
        while at < end and file.lines[at].token is Token.REMOVED:
            at += 1
        middle = at
        while at < end and file.lines[at].token is Token.ADDED:
            at += 1
        for step in range(max(middle - first, at - middle)):
            old, new = first + step, middle + step
            yield old if old < middle else None, new if new < at else None


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


def compare_words(old: str, new: str) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """Return the ranges of *old* that are gone, and those of *new* that are new; none if little is common."""
    if old == new or max(len(old), len(new)) > LONGEST_LINE:
        return (), ()
    before, after = _WORD.findall(old), _WORD.findall(new)
    if max(len(before), len(after)) > MOST_WORDS:
        return (), ()
    from difflib import SequenceMatcher  # only for a shown change

    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    shared = sum(len(word.strip()) for block in blocks for word in before[block.a : block.a + block.size])
    longest = max(len("".join(old.split())), len("".join(new.split())))
    if shared < ALIKE * longest:
        return (), ()
    return (
        _between(before, [(block.a, block.a + block.size) for block in blocks]),
        _between(after, [(block.b, block.b + block.size) for block in blocks]),
    )


def _between(words: list[str], same: list[Range]) -> tuple[Range, ...]:
    """Return the ranges of characters between the words in *same*, which ends with an empty range at the end."""
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word))
    ranges: list[Range] = []
    at = 0
    for start, end in same:
        if start > at:
            ranges.append((starts[at], starts[start]))
        at = end
    return tuple(ranges)


def find_partners(file: HunkedFile, hunk: DiffHunk) -> dict[int, int]:
    """Return the index of each removed line in *hunk* with that of the added line which replaced it, and back."""
    return dict(_partners(file.lines, hunk))


def _partners(lines: Sequence[DiffLine], hunk: DiffHunk) -> Iterator[tuple[int, int]]:
    removed: list[int] = []
    added = 0
    for at in range(hunk.start, hunk.end):
        line = lines[at]
        if line.token is Token.REMOVED:
            if added:
                removed, added = [], 0
            removed.append(at)
        elif line.token is Token.ADDED:
            if added < len(removed):
                yield removed[added], at
                yield at, removed[added]
            added += 1
        else:
            removed, added = [], 0
