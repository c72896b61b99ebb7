"""A transcript with a cursor row: it moves, jumps to any row, and keeps its row when text is wrapped again."""

from functools import lru_cache
from typing import ClassVar, Final

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip

from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.rows import RowPosition
from kasmon.tui.theme.theme import READABLE, readable
from kasmon.tui.transcript.event_view import EventView
from kasmon.tui.transcript.virtual_screen import StyleOf

CONTEXT: Final = 3
"""So many rows stay visible above the target of a jump."""


class CursorView(EventView):
    """The transcript of one session; `read` shows a cursor."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"cursor-screen--row"}
    DEFAULT_CSS = "CursorView .cursor-screen--row { background: $k-selected; }"

    def __init__(self, transcript: Transcript, style_of: StyleOf) -> None:
        super().__init__(transcript, style_of)
        self.cursor: int | None = None
        """The cursor row, counted from the top of the visible rows; None outside of reading."""
        self.contrast = READABLE
        """The minimum contrast of text under the cursor."""

    def open(self, transcript: Transcript, *, same_place: bool = False) -> None:
        """Show another one. A cursor at the very beginning of a partial transcript moves to the top of the new one."""
        was_at_top = same_place and self.cursor == 0 and self._place_in_row(0) == self._lines.walk(RowPosition(0, 0), 0)
        super().open(transcript, same_place=same_place)
        if was_at_top:
            self.to_top()

    def read(self, on: bool) -> None:
        """Show a cursor, at the last visible row; or hide it."""
        self.holds = on
        self.cursor = max(self.shown - 1, 0) if on else None
        self.cancel_search_move()
        self._draw()
        self.refresh()

    def cancel_search_move(self) -> None:
        """Called before the cursor is moved: cancels a pending search move."""

    def move(self, rows: int) -> None:
        """Move the cursor; scroll if it would leave the screen."""
        if self.cursor is None:
            return
        self.cancel_search_move()
        wanted = self.cursor + rows
        self.cursor = min(max(wanted, 0), max(self.shown - 1, 0))
        if wanted != self.cursor:
            self.back_lines(self.cursor - wanted)
        self.refresh()

    def turn_page(self, pages: int) -> None:
        """Move the cursor and the screen down by so many screens, up if negative."""
        self.cancel_search_move()
        before = self._bottom
        self.back(-pages)
        if self._bottom == before:
            self.move(pages * self.size.height)
        self.refresh()

    def to_top(self) -> None:
        """Go to the first row."""
        self.cancel_search_move()
        self._go_to(RowPosition(0, 0), at_top=True)

    def to_last(self) -> None:
        """Go to the last row."""
        self.cancel_search_move()
        self.to_end()
        self.cursor = max(self.shown - 1, 0)
        self.refresh()

    def place(self) -> RowPosition | None:
        """Return the position under the cursor; None on text that is being written, or without a row."""
        return self._place_in_row(self.cursor) if self.cursor is not None else None

    def jump(self, turns: int) -> bool:
        """Go to the beginning of another turn; False if there is none."""
        starts, here = self._transcript.turns, self._here()
        if turns > 0:
            wanted = next((start for start in starts if start > here.block), None)
        else:
            on_it = here.row <= 1
            wanted = next((start for start in reversed(starts) if start < here.block + (not on_it)), None)
        if wanted is not None:
            self.cancel_search_move()
            self._go_to(RowPosition(wanted, min(1, len(self._lines.block(wanted)) - 1)), at_top=True)
        return wanted is not None

    def toggle(self, y: int | None = None) -> bool:
        """Fold or unfold at the cursor, or at the visible row *y*; False if nothing can be folded."""
        row = self.cursor if y is None else y
        place = None if row is None else self._place_in_row(row)
        if row is None or place is None or not self._transcript.toggle(place.block):
            return False
        place = self._lines.walk(RowPosition(place.block, min(place.row, len(self._lines.block(place.block)) - 1)), 0)
        self._show_to(self._lines.walk(place, self.shown - 1 - row))
        if self.cursor is not None:
            self._place_cursor(place)
        self.refresh()
        return True

    # Positions.

    def _here(self) -> RowPosition:
        """Return the position under the cursor, or after the end."""
        return self.place() or RowPosition(len(self._transcript.blocks), 0)

    def _go_to(self, place: RowPosition, *, at_top: bool = False) -> None:
        """Move the cursor to *place*, scrolling if needed."""
        top = self._lines.walk(self._bottom, 1 - self.shown)
        if at_top or not top <= place <= self._bottom:
            self._show_to(self._lines.walk(place, self._screen.size[1] - 1 - (0 if at_top else CONTEXT)))
        self._place_cursor(place)
        self.refresh()

    def _place_cursor(self, place: RowPosition) -> None:
        """Put the cursor on *place*, which is visible."""
        above = self._lines.above(place) - self._lines.above(self._bottom)
        self.cursor = min(max(self.shown - 1 - above, 0), max(self.shown - 1, 0))

    def _place_in_row(self, row: int) -> RowPosition | None:
        """Return the position in this visible *row*; None for text that is being written, or an empty row."""
        place = self._lines.walk(self._bottom, row - self.shown + 1)
        return place if self.shown and place.block < len(self._transcript.blocks) else None

    # Drawing.

    def _draw(self) -> None:
        """Draw; a cursor in an empty transcript moves to the end of its first rows."""
        was_empty = not self.shown
        super()._draw()
        if was_empty and self.cursor is not None:
            self.cursor = max(self.shown - 1, 0)

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        if y != self.cursor:
            return strip
        ground = self.get_component_rich_style("cursor-screen--row").bgcolor
        usual = (None, self.rich_style.bgcolor)  # a match keeps its own background
        front = None if self.app.no_color else self.rich_style.color
        return Strip(
            [
                Segment(text, _highlight(own, ground, front, self.contrast) if own and own.bgcolor in usual else own)
                for text, own, _ in strip
            ],
            strip.cell_length,
        )

    def rewrap(self) -> None:
        """Wrap again, and keep the cursor on its position."""
        place = self.place()
        at_end = self.above == 0 and self.cursor is not None and self.cursor >= self.shown - 1
        super().rewrap()
        if at_end:
            self.to_last()
        elif place is not None:
            self._go_to(RowPosition(place.block, min(place.row, len(self._lines.block(place.block)) - 1)))

    def on_click(self, event: events.Click) -> None:
        """Toggle a fold that is clicked; elsewhere, while reading, move the cursor there."""
        if event.y >= self.shown:
            return
        place = self._place_in_row(event.y)
        if place is not None and self._lines.block(place.block)[place.row].fold:
            event.stop()
            self.toggle(event.y)
        elif self.cursor is not None:
            event.stop()
            self.cursor = event.y
            self.refresh()


@lru_cache(512)
def _highlight(own: Style, ground: Color | None, usual: Color | None, enough: float) -> Style:
    """Return *own* on the cursor's *ground*, readable there; reversed without colours."""
    front = own.color or usual
    if usual is None or front is None or ground is None:
        return own + Style(reverse=True)
    shown = readable(front.get_truecolor().hex, ground.get_truecolor().hex, enough)
    return own + Style(color=shown, bgcolor=ground)
