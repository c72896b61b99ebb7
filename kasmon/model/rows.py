"""The rows of a transcript at one width, drawn when they are asked for and counted from the end backwards."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, overload

import msgspec

from kasmon.model.block import draw
from kasmon.model.heights import Heights
from kasmon.model.text import Line

if TYPE_CHECKING:
    from kasmon.model.transcript import Transcript

KEPT_BLOCKS: Final = 512
"""How many drawn blocks are kept."""


class Lines(Sequence[Line]):
    """The rows of a transcript at one width, drawn when they are asked for."""

    def __init__(self, transcript: "Transcript", width: int) -> None:
        self.width = width
        self.drawn = 0
        """How many times a block was drawn so far."""
        self._transcript = transcript
        self._look = transcript.look(width)
        self._plain = msgspec.structs.replace(self._look, colours=False)
        self._heights = Heights(self._height, len(transcript.blocks))
        self._kept: OrderedDict[int, list[Line]] = OrderedDict()
        self._followed = len(transcript.replaced)
        self._live: tuple[int, list[Line]] = (-1, [])

    def __len__(self) -> int:
        """The exact number of rows; measures every block that was not measured before."""
        while not self.measure(1000):
            pass
        return self._heights.known + len(self._written())

    @overload
    def __getitem__(self, at: int) -> Line: ...
    @overload
    def __getitem__(self, at: slice) -> list[Line]: ...
    def __getitem__(self, at: int | slice) -> Line | list[Line]:
        if isinstance(at, slice):
            if at.step in (None, 1) and at.start is not None and at.start < 0 and (at.stop is None or at.stop < 0):
                above = -(at.stop or 0)
                return self.above_bottom(above, -at.start - above)
            start, stop, step = at.indices(len(self))
            if step == 1:
                return self.above_bottom(len(self) - stop, stop - start)
            return [self[each] for each in range(start, stop, step)]
        above = -at - 1 if at < 0 else len(self) - 1 - at
        row = self.above_bottom(above, 1) if above >= 0 else []
        if not row:
            raise IndexError(at)
        return row[0]

    def __iter__(self) -> Iterator[Line]:
        """Every row from the beginning; draws block after block and keeps none."""
        for at in range(len(self._transcript.blocks)):
            yield from self._draw(at)
        yield from self._written()

    def above_bottom(self, above: int, count: int) -> list[Line]:
        """The *count* rows that end *above* rows over the bottom, oldest first; fewer where it begins."""
        self._follow()
        written = self._written()
        pieces = [_ending(written, above, count)]
        missing, skipped = count - len(pieces[0]), max(0, above - len(written))
        while missing > 0 and (place := self._heights.place(skipped)) is not None:
            at, row = place
            piece = _ending(self._block(at)[: row + 1], 0, missing)
            pieces.append(piece)
            missing, skipped = missing - len(piece), skipped + len(piece)
        return [row for piece in reversed(pieces) for row in piece]

    def place(self, above: int) -> tuple[int, int] | None:
        """The block, and the row within it, that stands *above* rows over the last row; None where there is none."""
        self._follow()
        above -= len(self._written())
        return self._heights.place(above) if above >= 0 else None

    def above(self, block: int, row: int = 0) -> int | None:
        """How many rows lie below this row of *block*; None where that is not measured yet."""
        self._follow()
        below = self._heights.below(block)
        return None if below is None else len(self._written()) + below + self._height(block) - 1 - row

    def block(self, at: int) -> list[Line]:
        """The rows of block *at*."""
        self._follow()
        return self._block(at)

    @property
    def known(self) -> int:
        """How many rows, counted from the bottom, are measured."""
        self._follow()
        return self._heights.known + len(self._written())

    @property
    def estimate(self) -> int:
        """About how many rows there are; exact once everything is measured."""
        self._follow()
        return self._heights.estimate + len(self._written())

    def measure(self, blocks: int) -> bool:
        """Measure up to so many further blocks, from the end to the beginning; True when all are measured."""
        self._follow()
        return self._heights.measure(blocks)

    def _follow(self) -> None:
        """Let go of what is known about blocks that were replaced, and measure those that came."""
        for at in self._transcript.replaced[self._followed :]:
            self._kept.pop(at, None)
            self._heights.changed(at)
        self._followed = len(self._transcript.replaced)
        self._heights.follow(len(self._transcript.blocks))

    def _written(self) -> list[Line]:
        if self._live[0] != self._transcript.changes:
            self._live = (self._transcript.changes, self._transcript.written(self.width))
        return self._live[1]

    def _height(self, at: int) -> int:
        return len(self._kept[at]) if at in self._kept else len(self._draw(at, colours=False))

    def _block(self, at: int) -> list[Line]:
        rows = self._kept.get(at)
        if rows is None:
            rows = self._kept[at] = self._draw(at)
            if len(self._kept) > KEPT_BLOCKS:
                self._kept.popitem(last=False)
        return rows

    def _draw(self, at: int, *, colours: bool = True) -> list[Line]:
        self.drawn += 1
        look = self._look if colours else self._plain
        if at in self._transcript.opened:
            look = msgspec.structs.replace(look, fold=False, opened=True)
        rows = draw(self._transcript.blocks[at], look)
        return rows[1:] if at == 0 and rows and not rows[0].spans else rows


def _ending(rows: list[Line], above: int, count: int) -> list[Line]:
    """The *count* of *rows* that end *above* rows over their last; fewer where they begin."""
    end = max(0, len(rows) - above)
    return rows[max(0, end - max(0, count)) : end]
