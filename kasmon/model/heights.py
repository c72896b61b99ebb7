"""How many rows each block of a transcript has, measured from the end backwards and only as far as is needed."""

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

ANEW: Final = 2000
"""If so many blocks came since the last look, what was known is dropped: they may be all that anybody looks at."""


class Heights:
    """Heights of blocks 0..n-1, as running sums on both sides of an anchor.

    Args:
        height: measures one block, in rows.
        blocks: how many there are; none is measured yet.
    """

    def __init__(self, height: Callable[[int], int], blocks: int) -> None:
        self._height = height
        self._stale: set[int] = set()
        self._reset(blocks)

    def _reset(self, blocks: int) -> None:
        self._anchor = blocks
        self._before: list[int] = []  # [k]: rows of the blocks anchor-1-k .. anchor-1
        self._after: list[int] = []  # [k]: rows of the blocks anchor .. anchor+k
        self._stale.clear()

    @property
    def known(self) -> int:
        """The rows of all measured blocks."""
        return _last(self._before) + _last(self._after)

    @property
    def estimate(self) -> int:
        """The rows of all blocks; those that are not measured count as the average of those that are."""
        left = self._anchor - len(self._before)
        measured = len(self._before) + len(self._after)
        return self.known + (left * self.known // measured if measured else left)

    def follow(self, blocks: int) -> None:
        """There are *blocks* now, some of them changed: bring the known heights up to date."""
        if blocks - self._anchor - len(self._after) > ANEW:
            self._reset(blocks)
        for at in sorted(self._stale):
            self._measure_again(at)
        self._stale.clear()
        for at in range(self._anchor + len(self._after), blocks):
            self._after.append(_last(self._after) + self._height(at))

    def changed(self, block: int) -> None:
        """*block* has to be measured again, if it was measured."""
        if self._anchor - len(self._before) <= block < self._anchor + len(self._after):
            self._stale.add(block)

    def measure(self, blocks: int) -> bool:
        """Measure up to so many further blocks; True when none is left."""
        for at in range(self._anchor - len(self._before) - 1, -1, -1)[:blocks]:
            self._before.append(_last(self._before) + self._height(at))
        return len(self._before) == self._anchor

    def place(self, above: int) -> tuple[int, int] | None:
        """The block, and the row within it, *above* rows over the last row; None where there is none any more."""
        down = _last(self._after) - 1 - above
        if down >= 0:
            step = bisect_right(self._after, down)
            return self._anchor + step, down - (self._after[step - 1] if step else 0)
        up = -1 - down
        while _last(self._before) <= up:
            if self.measure(1) and _last(self._before) <= up:
                return None
        step = bisect_right(self._before, up)
        block = self._anchor - 1 - step
        return block, self._before[step] - 1 - up

    def below(self, block: int) -> int | None:
        """How many rows there are below *block*; None where that is not measured yet."""
        if block >= self._anchor:
            return _last(self._after) - self._after[block - self._anchor]
        step = self._anchor - 1 - block
        if step >= len(self._before):
            return None
        return _last(self._after) + (self._before[step - 1] if step else 0)

    def _measure_again(self, at: int) -> None:
        sums, step = (self._after, at - self._anchor) if at >= self._anchor else (self._before, self._anchor - 1 - at)
        more = self._height(at) - (sums[step] - (sums[step - 1] if step else 0))
        if more:
            sums[step:] = [each + more for each in sums[step:]]


def _last(sums: list[int]) -> int:
    return sums[-1] if sums else 0
