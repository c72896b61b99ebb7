"""A session's events as rows of text at a width, drawn only as far as somebody looks.

`add` files events into blocks; `lines(width)` is a view on their rows. What is asked for from the end (`lines[-40:]`,
`tail`) draws no more than it needs, so that a session of 100,000 events opens at its end at once. `len`, and whatever
counts from the beginning, has to measure every block once at that width; `Lines.measure` does it in small portions.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from typing import Final, overload

from kasmon.model.block import Block, draw, live
from kasmon.model.drawing import Look
from kasmon.model.event import (
    Event,
    MessageSaid,
    PlanUpdated,
    RequestAnswered,
    RequestOpened,
    RequestSetAside,
    RequestWithdrawn,
    SessionEnded,
    SessionStarted,
    SignalSeen,
    ThoughtSaid,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from kasmon.model.heights import Heights
from kasmon.model.text import Line

KEPT_BLOCKS: Final = 512
"""How many drawn blocks are kept for each width."""
KEPT_WIDTHS: Final = 3


class Transcript:
    """The blocks of one session, oldest first.

    Args:
        fold: cut long outputs, with the exact number of hidden lines below.
        zone: whose clock times are shown by; None: this machine's.
    """

    def __init__(self, *, fold: bool = True, zone: tzinfo | None = None) -> None:
        self.changes = 0
        """Grows with every change; whoever has drawn at this number is up to date."""
        self.blocks: list[Block] = []
        self._fold, self._zone = fold, zone
        self._live = ("", False)
        self.replaced: list[int] = []
        """The numbers of the blocks that were replaced, in the order of that."""
        self._places: dict[tuple[str, str], int] = {}
        self._turn: TurnStarted | None = None
        self._usage: UsageReported | None = None
        self._views: OrderedDict[int, Lines] = OrderedDict()

    def add(self, event: Event) -> None:
        """File *event*: as a block of its own, or into the block that it finishes."""
        match event:
            case ToolStarted():
                self._append(Block(event), ("call", event.call))
            case ToolFinished():
                self._join(("call", event.call), event)
            case RequestOpened():
                self._append(Block(event), ("request", event.request.id))
            case RequestAnswered() | RequestSetAside() | RequestWithdrawn():
                self._join(("request", event.request), event)
            case PlanUpdated() if self.blocks and isinstance(self.blocks[-1].event, PlanUpdated):
                self._replace(len(self.blocks) - 1, Block(event))
            case UsageReported():
                self._count(event)
            case TurnStarted():
                self._turn, self._usage = event, None
                self._append(Block(event))
            case TurnEnded():
                self._append(Block(event, tuple(each for each in (self._turn, self._usage) if each is not None)))
                self._turn = self._usage = None
            case SignalSeen():
                return
            case _:
                self._append(Block(event))
        if isinstance(event, MessageSaid | ThoughtSaid | TurnEnded | SessionStarted | SessionEnded):
            self._live = ("", False)
        self.changes += 1

    def write(self, text: str, thinking: bool = False) -> None:
        """Show *text* behind the last block: all that is written so far of a message whose fact has not come yet.

        An empty text ends what is shown of its own kind, and leaves the other kind alone.
        """
        if text or self._live[1] == thinking:
            self._live = (text, thinking)
            self.changes += 1

    def lines(self, width: int) -> "Lines":
        """The rows at *width* cells; the view follows whatever is added later."""
        view = self._views.get(width)
        if view is None:
            view = self._views[width] = Lines(self, width)
            while len(self._views) > KEPT_WIDTHS:
                self._views.popitem(last=False)
        self._views.move_to_end(width)
        return view

    def tail(self, width: int, count: int, above: int = 0) -> list[Line]:
        """The *count* rows that end *above* rows over the bottom, oldest first; fewer where it begins."""
        return self.lines(width).above_bottom(above, count)

    def _append(self, block: Block, place: tuple[str, str] | None = None) -> None:
        if place is not None:
            self._places[place] = len(self.blocks)
        self.blocks.append(block)

    def _join(self, place: tuple[str, str], event: Event) -> None:
        at = self._places.get(place)
        if at is None:
            self._append(Block(event))
        else:
            self._replace(at, Block(self.blocks[at].event, (*self.blocks[at].then, event)))

    def _count(self, usage: UsageReported) -> None:
        last = self.blocks[-1] if self.blocks else None
        if self._turn is not None:
            self._usage = usage
        elif last is not None and isinstance(last.event, TurnEnded):
            then = tuple(each for each in last.then if not isinstance(each, UsageReported))
            self._replace(len(self.blocks) - 1, Block(last.event, (*then, usage)))
        elif last is not None and isinstance(last.event, UsageReported):
            self._replace(len(self.blocks) - 1, Block(usage))
        else:
            self._append(Block(usage))

    def _replace(self, at: int, block: Block) -> None:
        self.blocks[at] = block
        self.replaced.append(at)

    def look(self, width: int) -> Look:
        """How its blocks are drawn at *width*."""
        return Look(width=width, fold=self._fold, zone=self._zone)

    def written(self, width: int) -> list[Line]:
        """The rows of what `write` showed last."""
        return live(*self._live, self.look(width))


class Lines(Sequence[Line]):
    """The rows of a transcript at one width, drawn when they are asked for."""

    def __init__(self, transcript: Transcript, width: int) -> None:
        self.width = width
        self.drawn = 0
        """How many times a block was drawn so far."""
        self._transcript = transcript
        self._look = transcript.look(width)
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
        return len(self._kept[at]) if at in self._kept else len(self._draw(at))

    def _block(self, at: int) -> list[Line]:
        rows = self._kept.get(at)
        if rows is None:
            rows = self._kept[at] = self._draw(at)
            if len(self._kept) > KEPT_BLOCKS:
                self._kept.popitem(last=False)
        return rows

    def _draw(self, at: int) -> list[Line]:
        self.drawn += 1
        rows = draw(self._transcript.blocks[at], self._look)
        return rows[1:] if at == 0 and rows and not rows[0].spans else rows


def _ending(rows: list[Line], above: int, count: int) -> list[Line]:
    """The *count* of *rows* that end *above* rows over their last; fewer where they begin."""
    end = max(0, len(rows) - above)
    return rows[max(0, end - max(0, count)) : end]
