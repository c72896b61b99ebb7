"""The search in a shown transcript: it runs in portions between keys, and moves the cursor to a match."""

import math
import time
from collections.abc import Callable
from typing import Final, Protocol

from kasmon.model.events import Event
from kasmon.model.transcript.blocks import Block
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.rows import RowPosition, TranscriptRows
from kasmon.model.transcript.search.blocks import CaseFoldedText, TranscriptSearch, marked
from kasmon.model.transcript.text import TextLine
from kasmon.tui.textual_ext.timers import TimerOwner, start_timer

FRAME_S: Final = 1 / 60
PORTION_S: Final = 0.010
"""How long a search runs without a pause, in seconds."""
BREATH_S: Final = 0.002
"""The pause for keys while the user waits for a match, in seconds."""
LOOKED_BLOCKS: Final = 200
SOUGHT: Final = 30
"""A line is identified by so many of its first characters."""
TOLD_S: Final = 0.1
"""The minimum time between two progress reports, in seconds."""


class SearchedView(TimerOwner, Protocol):
    transcript: Transcript

    @property
    def lines(self) -> TranscriptRows: ...
    def here(self) -> RowPosition: ...
    def go_to(self, place: RowPosition, /) -> None: ...
    def redraw(self) -> None: ...
    def report(self, matches: int, done: bool, at_match: bool, /) -> None: ...


class TranscriptFinder:
    """Searches the transcript of *view*, and moves its cursor."""

    def __init__(self, view: SearchedView) -> None:
        self._view = view
        self.search: TranscriptSearch | None = None
        self._from = RowPosition(0, 0)
        """Where the search began."""
        self._find_target: Callable[[TranscriptRows], RowPosition | None] | None = None
        """Returns the match to go to; None once it was found or the search is over."""
        self._search_timer: object | None = None
        self._reported_at = -math.inf

    def cancel_move(self) -> None:
        """Cancel the pending move to a match, as the user moves the cursor."""
        self._find_target = None

    def find(self, query: str) -> None:
        """Go to the nearest row with *query* at or above the start of the search; else to the nearest below."""
        if self.search is None:
            position = self._view.here()
            self._from = RowPosition(position.block, position.row + 1)
        self.search = TranscriptSearch(self._view.transcript, query) if query else None
        self._find_target = self._first if query else None
        self._view.redraw()
        self._search_on()

    def seek(self, event: Event, line: str, query: str) -> bool:
        """Go to *line* of *event*, and search for *query* from there; False if it is not in the transcript yet."""
        blocks = self._view.transcript.blocks
        at = next((n for n in reversed(range(len(blocks))) if _holds(blocks[n], event)), None)
        if at is None:
            return False
        begins = line.strip()[:SOUGHT].strip()
        row = self._find_row(at, begins)
        if row is None and at not in self._view.transcript.opened and self._view.transcript.toggle(at):
            row = self._find_row(at, begins)
        row = self._find_row(at, query) if row is None else row
        self.search = None
        self._view.go_to(RowPosition(at, row or 0))
        self.find(query)
        return True

    def _find_row(self, block: int, query: str) -> int | None:
        """Return the first row of *block* that shows *query*; None if none does."""
        folded = query.casefold()
        return next((n for n, row in enumerate(self._view.lines.block(block)) if folded in row.text.casefold()), None)

    def find_next(self, *, down: bool = False) -> None:
        """Go to the next row with the words, up unless *down*."""
        if (search := self.search) is not None:
            position = self._view.here()
            self._find_target = (
                (lambda lines: search.below(position, lines)) if down else lambda lines: search.above(position, lines)
            )
            self._search_on()

    def drop(self) -> None:
        """End the search, and return to where it began."""
        was = self.search
        self.search = self._find_target = None
        if was is not None:
            self._view.go_to(RowPosition(self._from.block, max(self._from.row - 1, 0)))
        self._view.redraw()

    def _first(self, lines: TranscriptRows) -> RowPosition | None:
        assert self.search is not None
        found = self.search.above(self._from, lines)
        return found or (self.search.below(self._from, lines) if self.search.is_done else None)

    def _search_on(self) -> None:
        """Search for as long as a frame allows; go to a match as soon as it is found."""
        until, search = time.monotonic() + PORTION_S, self.search
        if search is None:
            return
        search.scan(0)
        while not search.is_done and time.monotonic() < until:
            search.scan(LOOKED_BLOCKS)
        search.tires = False
        found = self._find_target(self._view.lines) if self._find_target is not None else None
        at_match = found is not None or self._find_target is None
        if found is not None:
            self._find_target = None
            self._view.go_to(found)
        if search.is_done and not search.tires:
            self._find_target = None
        else:
            self._schedule_search()
        if found is not None or search.is_done:
            self._view.redraw()
        elif until < self._reported_at + TOLD_S:
            return
        self._reported_at = until
        self._view.report(len(search.matches), search.is_done, at_match)

    def _schedule_search(self) -> None:
        if self._search_timer is None:
            wait_s = FRAME_S if self._find_target is None else BREATH_S
            self._search_timer = start_timer(self._view, wait_s, self._on_frame)

    def _on_frame(self) -> None:
        self._search_timer = None
        search = self.search
        if search is not None and (self._find_target is not None or not search.is_done):
            self._search_on()

    def style_row(self, row: TextLine) -> TextLine:
        query = self.search.query if self.search is not None else CaseFoldedText("")
        return marked(row, query) if query else row


def _holds(block: Block, event: Event) -> bool:
    return any(each.at == event.at and each == event for each in (block.event, *block.then))
