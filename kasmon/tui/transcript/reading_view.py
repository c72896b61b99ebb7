"""A transcript with search and copying."""

import math
import time
from collections.abc import Callable
from typing import Final

from textual.message import Message
from textual.timer import Timer

from kasmon.model.events import Event
from kasmon.model.transcript.blocks import Block
from kasmon.model.transcript.clipboard_text import Piece, last_answer, piece
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.rows import RowPosition, TranscriptRows
from kasmon.model.transcript.search import CaseFoldedText, TranscriptSearch, marked
from kasmon.model.transcript.text import TextLine
from kasmon.tui.transcript.cursor import CursorView
from kasmon.tui.transcript.virtual_screen import StyleOf

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


class TranscriptReader(CursorView):
    """The transcript of one session, with a search in it."""

    class Found(Message):
        """The progress of the search: matching blocks so far, whether it is done, whether one is at the cursor."""

        def __init__(self, places: int, done: bool, here: bool) -> None:
            super().__init__()
            self.places, self.done, self.here = places, done, here

    def __init__(self, transcript: Transcript, style_of: StyleOf) -> None:
        super().__init__(transcript, style_of)
        self.search: TranscriptSearch | None = None
        self._from = RowPosition(0, 0)
        """Where the search began."""
        self._find_target: Callable[[TranscriptRows], RowPosition | None] | None = None
        """Returns the match to go to; None once it was found or the search is over."""
        self._search_timer: Timer | None = None
        self._reported_at = -math.inf

    def read(self, on: bool) -> None:
        if not on:
            self.search = None
        super().read(on)

    def cancel_search_move(self) -> None:
        self._find_target = None

    def copied(self, *, answer: bool = False) -> Piece | None:
        """Return the text under the cursor: its code block if it is in one, else its block; or the last answer."""
        place = self.place()
        if answer or place is None:
            return last_answer(self._transcript)
        row = self._lines.block(place.block)[place.row]
        return piece(self._transcript.blocks[place.block], row.code) or last_answer(self._transcript)

    # Search.

    def find(self, words: str) -> None:
        """Go to the nearest row with *words* at or above the start of the search; else to the nearest below."""
        if self.search is None:
            here = self._here()
            self._from = RowPosition(here.block, here.row + 1)
        self.search = TranscriptSearch(self._transcript, words) if words else None
        self._find_target = self._first if words else None
        self._draw()
        self._search_on()

    def seek(self, event: Event, line: str, words: str) -> bool:
        """Go to *line* of *event*, and search for *words* from there; False if it is not in the transcript yet."""
        blocks = self._transcript.blocks
        at = next((n for n in reversed(range(len(blocks))) if _holds(blocks[n], event)), None)
        if at is None:
            return False
        begins = line.strip()[:SOUGHT].strip()
        row = self._showing(at, begins)
        if row is None and at not in self._transcript.opened and self._transcript.toggle(at):
            row = self._showing(at, begins)
        row = self._showing(at, words) if row is None else row
        self.search = None
        self._go_to(RowPosition(at, row or 0))
        self.find(words)
        return True

    def _showing(self, block: int, words: str) -> int | None:
        """Return the first row of *block* that shows *words*; None if none does."""
        folded = words.casefold()
        return next((n for n, row in enumerate(self._lines.block(block)) if folded in row.text.casefold()), None)

    def find_next(self, *, down: bool = False) -> None:
        """Go to the next row with the words, up unless *down*."""
        if (search := self.search) is not None:
            here = self._here()
            self._find_target = (
                (lambda lines: search.below(here, lines)) if down else lambda lines: search.above(here, lines)
            )
            self._search_on()

    def drop_search(self) -> None:
        """End the search, and return to where it began."""
        was = self.search
        self.search = self._find_target = None
        if was is not None:
            self._go_to(RowPosition(self._from.block, max(self._from.row - 1, 0)))
        self._draw()

    def _first(self, lines: TranscriptRows) -> RowPosition | None:
        assert self.search is not None
        found = self.search.above(self._from, lines)
        return found or (self.search.below(self._from, lines) if self.search.is_done else None)

    def _search_on(self) -> None:
        """Search for as long as a frame allows; go to a match as soon as it is found."""
        until, search = time.monotonic() + PORTION_S, self.search
        if search is None:
            return
        search.look(0)
        while not search.is_done and time.monotonic() < until:
            search.look(LOOKED_BLOCKS)
        search.tires = False
        found = self._find_target(self._lines) if self._find_target is not None else None
        here = found is not None or self._find_target is None
        if found is not None:
            self._find_target = None
            self._go_to(found)
        if search.is_done and not search.tires:
            self._find_target = None
        else:
            self._schedule_search()
        if found is not None or search.is_done:
            self._draw()
        elif until < self._reported_at + TOLD_S:
            return
        self._reported_at = until
        self.post_message(self.Found(len(search.found), search.is_done, here))

    def _schedule_search(self) -> None:
        if self._search_timer is None:
            self._search_timer = self.set_timer(FRAME_S if self._find_target is None else BREATH_S, self._on_frame)

    def _on_frame(self) -> None:
        self._search_timer = None
        search = self.search
        if search is not None and (self._find_target is not None or not search.is_done):
            self._search_on()

    def style_row(self, row: TextLine) -> TextLine:
        words = self.search.words if self.search is not None else CaseFoldedText("")
        return marked(row, words) if words else row


def _holds(block: Block, event: Event) -> bool:
    """Whether *block* shows *event*."""
    return any(each.at == event.at and each == event for each in (block.event, *block.then))
