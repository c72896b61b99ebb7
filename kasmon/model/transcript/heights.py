"""The number of rows of each transcript block: measured where shown, elsewhere the average of the measured ones."""

from array import array
from collections.abc import Callable
from typing import Final

UNMEASURED: Final = -1


class Heights:
    """Heights of blocks 0..n-1.

    Two Fenwick trees hold the sums over measured blocks: one of their rows, one of their number.

    Args:
        height: measures one block, in rows.
        blocks: how many there are; none is measured yet.
    """

    def __init__(self, height: Callable[[int], int], blocks: int) -> None:
        self._height = height
        self._stale: set[int] = set()
        self._exact = array("i")
        self._rows, self._measured = array("i", [0]), array("i", [0])
        self._low = 0
        """All blocks from here on are measured."""
        self.follow(blocks)

    @property
    def measured(self) -> int:
        """The rows of all measured blocks."""
        return _before(self._rows, len(self._exact))

    @property
    def estimate(self) -> int:
        """The rows of all blocks; unmeasured ones count as the average of the measured ones."""
        return self._about(0)

    def follow(self, blocks: int) -> None:
        """Update the heights to *blocks* blocks, some of them changed."""
        if blocks > len(self._exact):
            self._grow(blocks)
            self._low = blocks
        for at in sorted(self._stale):
            self._put(at, self._height(at))
        self._stale.clear()

    def mark_stale(self, block: int) -> None:
        """Mark *block* as to be measured again, if it was measured."""
        if block < len(self._exact) and self._exact[block] != UNMEASURED:
            self._stale.add(block)

    def of(self, block: int) -> int:
        """Return the height of *block*; measure it if necessary."""
        known = self._exact[block]
        if known == UNMEASURED:
            known = self._height(block)
            self._put(block, known)
        return known

    def measure(self, blocks: int) -> bool:
        """Measure up to *blocks* further blocks, from the end backwards; return True when none is left."""
        while self._low > 0 and blocks > 0:
            blocks -= self._exact[self._low - 1] == UNMEASURED
            self._low -= 1
            self.of(self._low)
        return self._low == 0

    def find_position(self, above: int) -> tuple[int, int] | None:
        """Return the block, and the row in it, *above* rows over the last row; None beyond the beginning.

        All blocks below it are measured, if they were not.
        """
        while self.measured - _before(self._rows, self._low) <= above:
            if self.measure(1) and self.measured <= above:
                return None
        row = self.measured - 1 - above  # counted from the first measured row
        block = _holding(self._rows, row)
        return block, row - _before(self._rows, block)

    def below(self, block: int) -> int:
        """Return approximately how many rows are below *block*; exact if all of them are measured."""
        return self._about(block + 1)

    def _about(self, first: int) -> int:
        """Return approximately how many rows there are from block *first* on."""
        count = len(self._exact)
        measured = _before(self._measured, count)
        missing = count - first - (measured - _before(self._measured, first))
        rows = self.measured
        return rows - _before(self._rows, first) + (missing * rows // measured if measured else missing)

    def _grow(self, blocks: int) -> None:
        before = len(self._exact)
        self._exact += array("i", [UNMEASURED]) * (blocks - before)
        for tree in (self._rows, self._measured):
            _lengthen(tree, blocks - before)

    def _put(self, block: int, rows: int) -> None:
        was = self._exact[block]
        self._exact[block] = rows
        _add(self._rows, block, rows if was == UNMEASURED else rows - was)
        _add(self._measured, block, was == UNMEASURED)


def _add(tree: "array[int]", at: int, value: int) -> None:
    at += 1
    while value and at < len(tree):
        tree[at] += value
        at += at & -at


def _lengthen(tree: "array[int]", more: int) -> None:
    old = len(tree) - 1
    tree += array("i", [0]) * more
    at = old + (old & -old)
    while 0 < at < len(tree):
        tree[at] = _before(tree, old) - _before(tree, at - (at & -at))
        at += at & -at


def _before(tree: "array[int]", at: int) -> int:
    total = 0
    while at > 0:
        total += tree[at]
        at -= at & -at
    return total


def _holding(tree: "array[int]", row: int) -> int:
    """Return the index of the value in which the sum passes *row*."""
    at, step = 0, 1 << (len(tree) - 1).bit_length()
    while step:
        if at + step < len(tree) and tree[at + step] <= row:
            at += step
            row -= tree[at]
        step >>= 1
    return at
