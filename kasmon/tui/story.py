"""A transcript that can be read: a row under the cursor, folds, turns to jump to, words to find, text to copy."""

import time
from collections.abc import Callable
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer

from kasmon.model.copying import Piece, last_answer, piece
from kasmon.model.rows import Lines
from kasmon.model.search import Folded, Place, Search, marked
from kasmon.model.text import Line
from kasmon.model.transcript import Transcript
from kasmon.tui.screen import EventScreen, StyleOf

FRAME_S: Final = 1 / 60
PORTION_S: Final = 0.010
"""How much of a frame goes into looking and measuring, in seconds."""
LOOKED_BLOCKS: Final = 200
MEASURED_BLOCKS: Final = 20
CONTEXT: Final = 3
"""So many rows stay in sight above what was jumped to."""


class Story(EventScreen):
    """The transcript of one session; `read` gives it a cursor."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"story--cursor"}
    DEFAULT_CSS = "Story .story--cursor { background: $k-selected; }"

    class Found(Message):
        """How the search stands: in how many blocks the words are so far, whether all was looked through."""

        def __init__(self, places: int, done: bool, here: bool) -> None:
            super().__init__()
            self.places, self.done, self.here = places, done, here

    def __init__(self, transcript: Transcript, style_of: StyleOf) -> None:
        super().__init__(transcript, style_of)
        self.cursor: int | None = None
        """The row under the cursor, counted from the top of what is in sight; None where nobody reads."""
        self.search: Search | None = None
        self._from = Place(0, 0)
        """Where the search began."""
        self._wanted: Callable[[Lines], Place | None] | None = None
        """What is being looked for, until it is found or there is nothing more to look through."""
        self._aim: tuple[Place, bool] | None = None
        """Where to go once enough is measured, and whether it should stand at the top."""
        self._busy: Timer | None = None

    # The cursor.

    def read(self, on: bool) -> None:
        """Show a cursor, at the last row in sight; or none any more."""
        self.holds = on
        self.cursor = max(self.shown - 1, 0) if on else None
        if not on:
            self.search = self._wanted = self._aim = None
        self._draw()
        self.refresh()

    def move(self, rows: int) -> None:
        """Move the cursor; where it would leave the screen, the screen scrolls."""
        if self.cursor is None:
            return
        self._aim = self._wanted = None
        wanted = self.cursor + rows
        self.cursor = min(max(wanted, 0), max(self.shown - 1, 0))
        if wanted != self.cursor:
            self.back_lines(self.cursor - wanted)
        self.refresh()

    def turn_page(self, pages: int) -> None:
        """Move the cursor and the screen down by so many screens, up where negative."""
        self._aim = self._wanted = None
        before = self.above
        self.back(-pages)
        if self.above == before:
            self.move(pages * self.size.height)
        self.refresh()

    def to_top(self) -> None:
        """To the first row of all."""
        self._go_to(Place(0, 0), at_top=True)

    def to_last(self) -> None:
        """To the last row of all."""
        self._aim = self._wanted = None
        self.to_end()
        self.cursor = max(self.shown - 1, 0)
        self.refresh()

    def place(self) -> Place | None:
        """What is under the cursor; None on text that is being written, or where there is nothing."""
        above = self.above + self.shown - 1 - (self.cursor or 0)
        found = self._lines.place(above) if self.cursor is not None else None
        return None if found is None else Place(*found)

    def jump(self, turns: int) -> bool:
        """Go to the beginning of another turn; False where there is none."""
        starts, here = self._transcript.turns, self._here()
        if turns > 0:
            wanted = next((start for start in starts if start > here.block), None)
        else:
            on_it = here.row <= 1
            wanted = next((start for start in reversed(starts) if start < here.block + (not on_it)), None)
        if wanted is not None:
            self._go_to(Place(wanted, min(1, len(self._lines.block(wanted)) - 1)), at_top=True)
        return wanted is not None

    def toggle(self, y: int | None = None) -> bool:
        """Open what is folded at the cursor, or at row *y* in sight, or fold it again; False where nothing is."""
        row = self.cursor if y is None else y
        found = None if row is None else self._lines.place(self.above + self.shown - 1 - row)
        if found is None or not self._transcript.toggle(found[0]):
            return False
        block, line = found
        line = min(line, len(self._lines.block(block)) - 1)
        below = self._lines.above(block, line)
        if below is not None and row is not None:
            self._known = 0
            self.above = max(below - (self.shown - 1 - row), 0)
        self._draw()
        if self.cursor is not None and below is not None:
            self.cursor = min(max(self.shown - 1 - (below - self.above), 0), max(self.shown - 1, 0))
        self.refresh()
        return True

    def copied(self, *, answer: bool = False) -> Piece | None:
        """The text under the cursor: its code block where it is in one, else all of its block; or the last answer."""
        place = self.place()
        if answer or place is None:
            return last_answer(self._transcript)
        row = self._lines.block(place.block)[place.row]
        return piece(self._transcript.blocks[place.block], row.code) or last_answer(self._transcript)

    # Finding.

    def find(self, words: str) -> None:
        """Go to the nearest row at or above where the search began that shows *words*; else to the nearest below."""
        if self.search is None:
            here = self._here()
            self._from = Place(here.block, here.row + 1)
        self.search = Search(self._transcript, words) if words else None
        self._aim = None
        self._wanted = self._first if words else None
        self._look_on()

    def find_next(self, *, down: bool = False) -> None:
        """Go to the next row further up, or further down, that shows the words."""
        if (search := self.search) is not None:
            here = self._here()
            self._wanted = (
                (lambda lines: search.below(here, lines)) if down else lambda lines: search.above(here, lines)
            )
            self._look_on()

    def drop_search(self) -> None:
        """Go back to where the search began."""
        was = self.search
        self.search = self._wanted = None
        if was is not None:
            self._go_to(Place(self._from.block, max(self._from.row - 1, 0)))
        self._draw()

    def _first(self, lines: Lines) -> Place | None:
        assert self.search is not None
        found = self.search.above(self._from, lines)
        return found or (self.search.below(self._from, lines) if self.search.is_done else None)

    def _look_on(self) -> None:
        """Look for so long as a frame allows; go there as soon as something is found."""
        until = time.monotonic() + PORTION_S
        search = self.search
        if search is None:
            self._draw()
            return
        search.look(0)
        while not search.is_done and time.monotonic() < until:
            search.look(LOOKED_BLOCKS)
        search.tires = False
        found = self._wanted(self._lines) if self._wanted is not None else None
        here = found is not None or self._wanted is None
        if found is not None:
            self._wanted = None
            self._go_to(found)
        if search.is_done and not search.tires:
            self._wanted = None
        else:
            self._go_on()
        self._draw()
        self.post_message(self.Found(len(search.found), search.is_done, here))

    # Going there.

    def _here(self) -> Place:
        """The place under the cursor, or behind the end of all."""
        return self.place() or Place(len(self._transcript.blocks), 0)

    def _go_to(self, place: Place, *, at_top: bool = False) -> None:
        """Bring *place* into sight and under the cursor, measuring on the way, a portion a frame."""
        self._stop_measuring()
        self._aim = (place, at_top)
        self._approach()

    def _approach(self) -> None:
        assert self._aim is not None
        place, at_top = self._aim
        lines, until = self._lines, time.monotonic() + PORTION_S
        if place.block >= len(self._transcript.blocks):
            self.to_last()
            return
        before = lines.known
        while (above := lines.above(place.block, place.row)) is None and time.monotonic() < until:
            lines.measure(MEASURED_BLOCKS)
        self._known += lines.known - before if self._known else 0  # what was measured did not come at the end
        if above is None:
            self._go_on()
            return
        self._aim = None
        rows = self._screen.size[1]
        if at_top or not self.above <= above < self.above + self.shown:
            self._known = 0
            self._go(max(above - (rows - 1 if at_top else rows - 1 - CONTEXT), 0))
        self.cursor = min(max(self.shown - 1 - (above - self.above), 0), max(self.shown - 1, 0))
        self.refresh()

    def _go_on(self) -> None:
        if self._busy is None:
            self._busy = self.set_timer(FRAME_S, self._on_frame)

    def _on_frame(self) -> None:
        self._busy = None
        if self._aim is not None:
            self._approach()
        search = self.search
        if self._aim is None and search is not None and (self._wanted is not None or not search.is_done):
            self._look_on()

    # Drawing.

    @property
    def _lines(self) -> Lines:
        return self._transcript.lines(self._screen.size[0])

    def _draw(self) -> None:
        """Who came before there was anything to read stands at its end."""
        was_empty = not self.shown
        super()._draw()
        if was_empty and self.cursor is not None:
            self.cursor = max(self.shown - 1, 0)

    def dressed(self, row: Line) -> Line:
        words = self.search.words if self.search is not None else Folded("")
        return marked(row, words) if words else row

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        if y != self.cursor:
            return strip
        ground = self.get_component_rich_style("story--cursor").bgcolor
        style = Style(reverse=True) if self.app.no_color else Style(bgcolor=ground)
        usual = (None, self.rich_style.bgcolor)  # a word that was found keeps its own
        return Strip(
            [Segment(text, own + style if own and own.bgcolor in usual else own) for text, own, _ in strip],
            strip.cell_length,
        )

    def on_resize(self) -> None:
        """The text flows anew, and what was under the cursor still is."""
        place, at_end = self.place(), self.above == 0 and self.cursor is not None and self.cursor >= self.shown - 1
        super().on_resize()
        if at_end:
            self.to_last()
        elif place is not None:
            self._go_to(Place(place.block, min(place.row, len(self._lines.block(place.block)) - 1)))

    def on_click(self, event: events.Click) -> None:
        """On a fold: open it. Elsewhere, while somebody reads: the cursor goes there."""
        if event.y >= self.shown:
            return
        found = self._lines.place(self.above + self.shown - 1 - event.y)
        if found is not None and self._lines.block(found[0])[found[1]].fold:
            event.stop()
            self.toggle(event.y)
        elif self.cursor is not None:
            event.stop()
            self.cursor = event.y
            self.refresh()
