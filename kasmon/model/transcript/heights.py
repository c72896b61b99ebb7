"""The number of rows of each transcript block: measured where shown, elsewhere the average of the measured ones."""

from array import array
from collections.abc import Callable
from typing import Final

UNMEASURED: Final = -1
GROUP: Final = 512
"""How many blocks have a common sum; so that a million blocks need 2 bytes each."""


class Heights:
    """Heights of blocks 0..n-1.

    Args:
        height: measures one block, in rows.
        blocks: how many there are; none is measured yet.
    """

    def __init__(self, height: Callable[[int], int], blocks: int) -> None:
        self.measured = 0
        """The rows of all measured blocks."""
        self._height = height
        self._stale: set[int] = set()
        self._exact = array("h")  # wider once a block has more rows than that
        self._rows, self._unmeasured = array("i"), array("i")
        """For each group: the rows of its measured blocks, and how many others it has."""
        self._low = 0
        """All blocks from here on are measured."""
        self.follow(blocks)

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
        rows = self.measured - self._before(self._low)[0]
        while rows <= above:
            if self._low == 0:
                return None
            self._low -= 1
            rows += self.of(self._low)
        row = self.measured - 1 - above  # counted from the first measured row
        group = 0
        while row >= self._rows[group]:
            row -= self._rows[group]
            group += 1
        block = group * GROUP
        while row >= (known := max(self._exact[block], 0)):
            row -= known
            block += 1
        return block, row

    def below(self, block: int) -> int:
        """Return approximately how many rows are below *block*; exact if all of them are measured."""
        return self._about(block + 1)

    def _about(self, first: int) -> int:
        """Return approximately how many rows there are from block *first* on."""
        count = len(self._exact)
        rows_before, missing_before = self._before(first)
        every = sum(self._unmeasured)
        missing = every - missing_before
        mean = missing * self.measured // (count - every) if count > every else missing
        return self.measured - rows_before + mean

    def _before(self, block: int) -> tuple[int, int]:
        """Return the rows of the measured blocks before *block*, and how many others there are."""
        group = block // GROUP
        part = self._exact[group * GROUP : block]
        missing = part.count(UNMEASURED)
        return sum(self._rows[:group]) + sum(part) - UNMEASURED * missing, sum(self._unmeasured[:group]) + missing

    def _grow(self, blocks: int) -> None:
        before = len(self._exact)
        self._exact += array(self._exact.typecode, [UNMEASURED]) * (blocks - before)
        groups = -(-blocks // GROUP) - len(self._rows)
        self._rows += array("i", [0]) * groups
        self._unmeasured += array("i", [0]) * groups
        for start in range(before - before % GROUP, blocks, GROUP):
            self._unmeasured[start // GROUP] += min(start + GROUP, blocks) - max(start, before)

    def _put(self, block: int, rows: int) -> None:
        was, group = self._exact[block], block // GROUP
        try:
            self._exact[block] = rows
        except OverflowError:
            self._exact = array("i", self._exact)
            self._exact[block] = rows
        more = rows - max(was, 0)
        self.measured += more
        self._rows[group] += more
        self._unmeasured[group] -= was == UNMEASURED
