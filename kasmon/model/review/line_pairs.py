"""Which added line of a diff replaced which removed one, by their words; and which words differ in both. Pure."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final, TypeAlias

from kasmon.model.review.hunks import HunkedFile
from kasmon.model.transcript.text import Token

LONGEST_LINE: Final = 500
"""Words of lines longer than this, in characters, are not compared."""
MOST_WORDS: Final = 160
"""Nor are lines with more words and signs."""
ALIKE: Final = 0.4
"""Lines that share a smaller part of their text are shown as changed as a whole."""
MOST_COMPARED: Final = 1600
"""Removed lines times added lines between two equal ones; if there are more, they are paired by their order."""
_WORD: Final = re.compile(r"\w+|\s+|[^\w\s]")
_NAME: Final = re.compile(r"\w+")
Range: TypeAlias = tuple[int, int]
"""The first character, and the one after the last."""
Pair: TypeAlias = tuple[int | None, int | None]
"""The indexes of an old line and of the new one beside it; None where a side has none."""


class LinePairs:
    """The lines of *file* in pairs, computed by hunk when they are needed."""

    def __init__(self, file: HunkedFile) -> None:
        self._file = file
        self._pairs: dict[int, tuple[Pair, ...]] = {}
        self._partners: dict[int, dict[int, int]] = {}

    def in_hunk(self, hunk: int) -> tuple[Pair, ...]:
        """Return the lines of this hunk, without its header, in rows of two columns: each line is in one pair.

        A removed line is beside the added one that replaced it. An unchanged line is both.
        """
        if hunk not in self._pairs:
            self._pairs[hunk] = tuple(self._pair_up(*self._file.hunks[hunk]))
        return self._pairs[hunk]

    def partner(self, line: int) -> int | None:
        """Return the index of the line that replaced this one, or that it replaced; None if there is none."""
        hunk = self._file.hunk_at(line)
        if hunk not in self._partners:
            both = [(old, new) for old, new in self.in_hunk(hunk) if old is not None and new is not None and old != new]
            self._partners[hunk] = dict([*both, *((new, old) for old, new in both)])
        return self._partners[hunk].get(line)

    def _pair_up(self, start: int, end: int) -> Iterator[Pair]:
        lines = self._file.lines
        at = start + (start < end and lines[start].token is Token.HUNK)
        while at < end:
            if lines[at].token not in (Token.REMOVED, Token.ADDED):
                yield at, at
                at += 1
                continue
            first = at
            while at < end and lines[at].token is Token.REMOVED:
                at += 1
            middle = at
            while at < end and lines[at].token is Token.ADDED:
                at += 1
            texts = [line.text[1:] for line in lines[first:at]]
            for old, new in align(texts[: middle - first], texts[middle - first :]):
                yield None if old is None else first + old, None if new is None else middle + new


def align(old: Sequence[str], new: Sequence[str]) -> Iterator[Pair]:
    """Yield the indexes of *old* and *new* in pairs, both in order: similar lines together, and those between by order.

    Takes time in proportion to the lines, times `MOST_COMPARED` at most.
    """
    done_old = done_new = 0
    for at_old, at_new in (*_find_equal(old, new), (len(old), len(new))):
        before, after = old[done_old:at_old], new[done_new:at_new]
        gap_old = gap_new = 0
        for one, other in (*_find_similar(before, after), (len(before), len(after))):
            left, right = range(done_old + gap_old, done_old + one), range(done_new + gap_new, done_new + other)
            yield from zip_longest(left, right)
            if one < len(before):
                yield done_old + one, done_new + other
            gap_old, gap_new = one + 1, other + 1
        if at_old < len(old):
            yield at_old, at_new
        done_old, done_new = at_old + 1, at_new + 1


def _find_equal(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the most pairs in order of lines that differ in blanks at most, and that each side has once."""
    before, after = ([" ".join(line.split()) for line in lines] for lines in (old, new))
    counts = Counter(before), Counter(after)
    positions = {line: at for at, line in enumerate(after) if line and counts[1][line] == 1}
    found = [(at, positions[line]) for at, line in enumerate(before) if counts[0][line] == 1 and line in positions]
    lowest: list[int] = []
    """The lowest last place in *new* of each length of a run of pairs."""
    lengths: list[int] = []
    for _, place in found:
        lengths.append(bisect_left(lowest, place))
        lowest[lengths[-1] : lengths[-1] + 1] = [place]
    run: list[tuple[int, int]] = []
    for pair, length in zip(reversed(found), reversed(lengths), strict=True):
        if length == len(lowest) - 1 - len(run) and (not run or pair[1] < run[-1][1]):
            run.append(pair)
    return run[::-1]


def _find_similar(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs in order whose lines have the most words in common; all by order if there are too many lines."""
    if not old or not new:
        return []
    if len(old) * len(new) > MOST_COMPARED:
        return list(zip(range(len(old)), range(len(new)), strict=False))
    before, after = ([_split_words(line) for line in lines] for lines in (old, new))
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    """The highest sum of similarities from these two lines on."""
    alike = [[_similarity(one, other) for other in after] for one in before]
    for at in range(len(old) - 1, -1, -1):
        row, below, similar = best[at], best[at + 1], alike[at]
        for other in range(len(new) - 1, -1, -1):
            row[other] = max(below[other], row[other + 1], similar[other] + below[other + 1] if similar[other] else 0.0)
    at = other = 0
    found: list[tuple[int, int]] = []
    while at < len(old) and other < len(new):
        if alike[at][other] and best[at][other] == alike[at][other] + best[at + 1][other + 1]:
            found.append((at, other))
            at, other = at + 1, other + 1
        elif best[at][other] == best[at + 1][other]:
            at += 1
        else:
            other += 1
    return found


def _split_words(line: str) -> set[str]:
    return set(_NAME.findall(line[:LONGEST_LINE])) or {line.strip()}


def _similarity(one: set[str], other: set[str]) -> float:
    """Return the part of their words that two lines share; 0 if it is small."""
    shared = 2 * len(one & other) / (len(one) + len(other))
    return shared if shared >= ALIKE else 0.0


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
