"""The rows of a transcript at one width, drawn lazily: from the end backwards, or around a position."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, overload

import msgspec

from kasmon.model.transcript.blocks import draw
from kasmon.model.transcript.heights import Heights
from kasmon.model.transcript.text import TextLine

if TYPE_CHECKING:
    from kasmon.model.transcript.layout import Transcript

KEPT_BLOCKS: Final = 512
FAR: Final = 1 << 62
"""More rows than any transcript has."""


class RowPosition(msgspec.Struct, frozen=True, order=True):
    """A row of a transcript: its block, and the row's index in it.

    The text that is being written counts as one more block behind the last one.
    """

    block: int
    row: int


class TranscriptRows(Sequence[TextLine]):
    """The rows of a transcript at one width, drawn lazily."""

    def __init__(self, transcript: "Transcript", width: int) -> None:
        self.width = width
        self.drawn = 0
        """How many times a block was drawn so far."""
        self._transcript = transcript
        self._style = transcript.style(width)
        self._plain = msgspec.structs.replace(self._style, colours=False)
        self._heights = Heights(self._height, len(transcript.blocks))
        self._kept: OrderedDict[int, list[TextLine]] = OrderedDict()
        self._followed = len(transcript.replaced)
        self._live: tuple[int, list[TextLine]] = (-1, [])

    def __len__(self) -> int:
        """The exact number of rows; measures every unmeasured block."""
        while not self.measure(1000):
            pass
        return self._heights.measured + len(self._render_streamed())

    @overload
    def __getitem__(self, at: int) -> TextLine: ...
    @overload
    def __getitem__(self, at: slice) -> list[TextLine]: ...
    def __getitem__(self, at: int | slice) -> TextLine | list[TextLine]:
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

    def __iter__(self) -> Iterator[TextLine]:
        """Yield every row from the beginning; draws block after block and caches none."""
        for at in range(len(self._transcript.blocks)):
            yield from self._draw(at)
        yield from self._render_streamed()

    def above_bottom(self, above: int, count: int) -> list[TextLine]:
        """Return the *count* rows that end *above* rows over the bottom, oldest first; fewer at the beginning."""
        self._follow()
        written = self._render_streamed()
        pieces = [_select_last(written, above, count)]
        missing, skipped = count - len(pieces[0]), max(0, above - len(written))
        while missing > 0 and (place := self._heights.find_position(skipped)) is not None:
            at, row = place
            piece = _select_last(self._block(at)[: row + 1], 0, missing)
            pieces.append(piece)
            missing, skipped = missing - len(piece), skipped + len(piece)
        return [row for piece in reversed(pieces) for row in piece]

    # Positions: only the rows near them are drawn or measured.

    @property
    def last(self) -> RowPosition:
        """The last row of all; without rows, the position of the first one to come."""
        return self.walk(RowPosition(len(self._transcript.blocks), 0), FAR)

    def walk(self, place: RowPosition, rows: int) -> RowPosition:
        """Return the row *rows* further down than *place*, up if negative; clamped to the first and last row."""
        self._follow()
        end = len(self._transcript.blocks)
        block = min(place.block, end)
        row = min(place.row, max(self._height_of(block) - 1, 0)) + rows
        while row < 0 and block > 0:
            block -= 1
            row += self._height_of(block)
        row = max(row, 0)
        while block < end and row >= (height := self._height_of(block)):
            block, row = block + 1, row - height
        if row >= self._height_of(block):
            while block > 0 and not self._height_of(block):
                block -= 1
            row = max(self._height_of(block) - 1, 0)
        return RowPosition(block, row)

    def ending(self, place: RowPosition, count: int) -> list[TextLine]:
        """Return the *count* rows that end with *place*, oldest first; fewer at the beginning."""
        self._follow()
        pieces = [self._rows_of(place.block)[: place.row + 1][-count:]]
        missing, at = count - len(pieces[0]), place.block
        while missing > 0 and at > 0:
            at -= 1
            pieces.append(_select_last(self._rows_of(at), 0, missing))
            missing -= len(pieces[-1])
        return [row for piece in reversed(pieces) for row in piece]

    def above(self, place: RowPosition) -> int:
        """Return approximately how many rows are below *place*; exact if all of them were drawn or measured."""
        self._follow()
        written = len(self._render_streamed())
        if place.block == len(self._transcript.blocks):
            return max(written - 1 - place.row, 0)
        return written + self._heights.below(place.block) + self._height_of(place.block) - 1 - place.row

    def find_position(self, above: int) -> RowPosition | None:
        """Return the row exactly *above* rows over the last one; None if there is none."""
        self._follow()
        written = len(self._render_streamed())
        if above < written:
            return RowPosition(len(self._transcript.blocks), written - 1 - above)
        found = self._heights.find_position(above - written)
        return None if found is None else RowPosition(*found)

    def block(self, at: int) -> list[TextLine]:
        self._follow()
        return self._block(at)

    @property
    def measured(self) -> int:
        self._follow()
        return self._heights.measured + len(self._render_streamed())

    @property
    def estimate(self) -> int:
        """The approximate number of rows; exact once everything is measured."""
        self._follow()
        return self._heights.estimate + len(self._render_streamed())

    def measure(self, blocks: int) -> bool:
        """Measure up to *blocks* further blocks, from the end to the beginning; return True when all are measured."""
        self._follow()
        return self._heights.measure(blocks)

    def _follow(self) -> None:
        """Drop cached rows of replaced blocks, and account for new blocks."""
        for at in self._transcript.replaced[self._followed :]:
            self._kept.pop(at, None)
            self._heights.mark_stale(at)
        self._followed = len(self._transcript.replaced)
        self._heights.follow(len(self._transcript.blocks))

    def _render_streamed(self) -> list[TextLine]:
        if self._live[0] != self._transcript.changes:
            self._live = (self._transcript.changes, self._transcript.written(self.width))
        return self._live[1]

    def _height_of(self, at: int) -> int:
        """Return how many rows block *at* has; behind the last one, those of the text that is being written."""
        return len(self._render_streamed()) if at == len(self._transcript.blocks) else self._heights.of(at)

    def _rows_of(self, at: int) -> list[TextLine]:
        return self._render_streamed() if at == len(self._transcript.blocks) else self._block(at)

    def _height(self, at: int) -> int:
        return len(self._kept[at]) if at in self._kept else len(self._draw(at, colours=False))

    def _block(self, at: int) -> list[TextLine]:
        rows = self._kept.get(at)
        if rows is None:
            rows = self._kept[at] = self._draw(at)
            if len(self._kept) > KEPT_BLOCKS:
                self._kept.popitem(last=False)
        return rows

    def _draw(self, at: int, *, colours: bool = True) -> list[TextLine]:
        block = self._transcript.blocks[at]
        if block.caller >= 0 and self._transcript.is_hidden(at):
            return []
        self.drawn += 1
        look = self._style if colours else self._plain
        if at in self._transcript.opened:
            look = msgspec.structs.replace(look, fold=False, opened=True)
        rows = draw(block, look)
        return rows[1:] if at == 0 and rows and not rows[0].spans else rows


def _select_last(rows: list[TextLine], above: int, count: int) -> list[TextLine]:
    """Return the *count* of *rows* that end *above* rows over their last; fewer at the beginning."""
    end = max(0, len(rows) - above)
    return rows[max(0, end - max(0, count)) : end]
