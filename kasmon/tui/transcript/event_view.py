"""The view of a structured session: the pyte screen behind one widget, which is fed only with visible rows.

While it is read it has a cursor row, which moves, jumps, and keeps its row when text is wrapped again.
"""

import math
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Final

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from kasmon.model.transcript.clipboard_text import Piece, last_answer, piece
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.markdown.links import link_addresses
from kasmon.model.transcript.rows import RowPosition, TranscriptRows
from kasmon.model.transcript.text import BLANK, TextLine, Token, cells
from kasmon.tui.textual_ext.repaint import ImmediatePainter, runs
from kasmon.tui.textual_ext.strips import LinesOnlyMixin
from kasmon.tui.textual_ext.timers import start_timer
from kasmon.tui.theme.theme import READABLE, readable
from kasmon.tui.transcript.finder import TranscriptFinder
from kasmon.tui.transcript.virtual_screen import StyleOf, VirtualScreen

FRAME_S: Final = 1 / 30
"""The minimum time between two draws of a growing transcript, in seconds."""
SOON_S: Final = 0.001
"""The delay of a draw after a pause, in seconds; merges all that arrives at the same moment."""
WHEEL_LINES: Final = 3
CONTEXT: Final = 3
"""So many rows stay visible above the target of a jump."""


class EventView(LinesOnlyMixin, Widget, can_focus=True):
    """A transcript, opened at its end. It follows the end, and keeps its position once the user scrolled up.

    `read` shows a cursor; `finder` searches.
    """

    class SearchUpdated(Message):
        """The progress of the search: matching blocks so far, whether it is done, whether one is at the cursor."""

        def __init__(self, matches: int, done: bool, at_match: bool) -> None:
            super().__init__()
            self.matches, self.done, self.here = matches, done, at_match

    class CodeClicked(Message):
        """A click on the button of a code block: copy *piece*."""

        def __init__(self, piece: Piece) -> None:
            super().__init__()
            self.piece = piece

    class LinkClicked(Message):
        """A click on a link; *addresses* are those of its paragraph."""

        def __init__(self, addresses: Sequence[str]) -> None:
            super().__init__()
            self.addresses = addresses

    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"event-screen--bar", "event-screen--thumb", "cursor-screen--row"}
    DEFAULT_CSS = """
    EventView { width: 1fr; height: 1fr; background: $background; color: $foreground; }
    EventView .event-screen--bar { color: $scrollbar-background; background: $scrollbar-background; }
    EventView .event-screen--thumb { color: $scrollbar; background: $scrollbar; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "back(1)", "Page up", show=False),
        Binding("pagedown", "back(-1)", "Page down", show=False),
        Binding("up", "back_lines(1)", "Up", show=False),
        Binding("down", "back_lines(-1)", "Down", show=False),
        Binding("home", "to_beginning", "Beginning", show=False),
        Binding("end", "to_end", "End", show=False),
    ]

    def __init__(self, transcript: Transcript, style_of: StyleOf) -> None:
        super().__init__()
        self.above = 0
        """The approximate number of rows below the visible ones; 0 at the end, which is followed."""
        self.holds = False
        """Whether it keeps its position, even at the end."""
        self.shown = 0
        """How many rows are visible."""
        self.cursor: int | None = None
        """The cursor row, counted from the top of the visible rows; None outside of reading."""
        self.contrast = READABLE
        """The minimum contrast of text under the cursor."""
        self.transcript, self._style_of = transcript, style_of
        self.finder = TranscriptFinder(self)
        self._screen = VirtualScreen(1, 1)
        self._at: RowPosition | None = None
        """The bottom row; None follows the end."""
        self._bottom = RowPosition(0, 0)
        """The bottom row at the last draw."""
        self._thumb = range(0)
        self._frame: Timer | None = None
        self._drawn_at = -math.inf
        self._painter = ImmediatePainter()
        self._whole: dict[int, tuple[Strip, Style, Strip]] = {}
        """By id of a screen line: the line, its scrollbar style, and the complete strip."""
        self._fits = False
        """Whether there is space for a line and the scrollbar."""
        self._styles: tuple[Style, Style, Style] | None = None
        """The styles of background, scrollbar and thumb, until the styles change."""

    def open(self, transcript: Transcript, *, same_place: bool = False) -> None:
        """Show another transcript, at its end; or, with *same_place*, as far above it as before.

        A cursor at the very beginning of a partial transcript moves to the top of the new one.
        """
        was_at_top = same_place and self.cursor == 0 and self._place_in_row(0) == self.lines.walk(RowPosition(0, 0), 0)
        self.transcript = transcript
        self._show_to(self.lines.find_position(self.above) if same_place and self.above else None)
        if was_at_top:
            self.go_to_top()

    def draw_soon(self) -> None:
        """Draw with the next frame, because the transcript or its live text grew."""
        if self._frame is not None or not self.is_mounted:
            return
        wait_s = self._drawn_at + FRAME_S - time.monotonic()
        self._frame = start_timer(self, max(wait_s, SOON_S), self._draw_frame)

    def scroll_back_lines(self, lines: int) -> None:
        """Scroll *lines* towards the beginning; towards the end if negative."""
        self._show_to(self.lines.walk(self._bottom, -lines))

    def scroll_back(self, pages: int) -> None:
        """Scroll by screens, with one row in common."""
        self.scroll_back_lines(pages * max(self.size.height - 1, 1))

    def show_end(self) -> None:
        self._show_to(None)

    def action_to_beginning(self) -> None:
        self._show_to(RowPosition(0, 0))

    action_back, action_back_lines, action_to_end = scroll_back, scroll_back_lines, show_end

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_back_lines(WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_back_lines(-WHEEL_LINES)

    def on_resize(self) -> None:
        self.rewrap()

    def rewrap(self) -> None:
        """Wrap to a new size; follow the end as before, or keep the position: the cursor's, else an approximate one."""
        place = self.place()
        at_end = self.above == 0 and self.cursor is not None and self.cursor >= self.shown - 1
        width, height = self.size
        before, self._fits = self._screen.size[0], width > 1
        self._whole.clear()
        self._screen.resize(max(width - 1, 1), max(height, 1))
        if self._at is not None and before > 1:
            self._at = RowPosition(self._at.block, self._at.row * before // max(width - 1, 1))
        self.redraw()
        self.refresh()
        if at_end:
            self.go_to_last()
        elif place is not None:
            self.go_to(RowPosition(place.block, min(place.row, len(self.lines.block(place.block)) - 1)))

    def render_line(self, y: int) -> Strip:
        strip = self._render_row(y)
        if y != self.cursor:
            return strip
        background = self.get_component_rich_style("cursor-screen--row").bgcolor
        usual = (None, self.rich_style.bgcolor)  # a match keeps its own background
        front = None if self.app.no_color else self.rich_style.color
        return Strip(
            [
                Segment(
                    text, _highlight(own, background, front, self.contrast) if own and own.bgcolor in usual else own
                )
                for text, own, _ in strip
            ],
            strip.cell_length,
        )

    def _render_row(self, y: int) -> Strip:
        columns, rows = self._screen.size
        if y >= rows or not self._fits:
            return Strip.blank(self.size.width, self.rich_style)
        background, bar, thumb = self._styles = self._styles or self._find_styles()
        edge = background if not self._thumb else thumb if y in self._thumb else bar
        inner = self._screen.strip(y, background)
        known = self._whole.get(id(inner))
        if known is None or known[0] is not inner or known[1] is not edge:
            if len(self._whole) >= 4 * rows:
                self._whole.clear()
            known = self._whole[id(inner)] = inner, edge, Strip([*inner, Segment(" ", edge)], columns + 1)
        return known[2]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = None

    @property
    def lines(self) -> TranscriptRows:
        return self.transcript.lines(self._screen.size[0])

    def _show_to(self, bottom: RowPosition | None) -> None:
        """Show the rows that end with *bottom*. None follows the end, as does the last row unless it `holds`."""
        self._at = bottom
        self.redraw()

    def _draw_frame(self) -> None:
        self._frame = None
        self.redraw()

    def redraw(self) -> None:
        """Draw the visible rows. New rows at the end do not move a view that is scrolled up.

        A cursor in an empty transcript moves to the end of its first rows.
        """
        was_empty = not self.shown
        rows, lines = self._screen.size[1], self.lines
        last = lines.last
        bottom = last if self._at is None else lines.walk(self._at, 0)
        shown = lines.ending(bottom, rows)
        if len(shown) < rows and bottom != last:
            bottom = lines.walk(RowPosition(0, 0), rows - 1)
            shown = lines.ending(bottom, rows)
        self._bottom, self.shown = bottom, len(shown)
        self._at = bottom if shown and (self.holds or bottom != last) else None
        self.above = lines.above(bottom)
        thumb, self._thumb = self._thumb, self._thumb_rows(lines.estimate)
        changed = self._screen.show([self.finder.style_row(row) for row in shown], self._style_of)
        self._drawn_at = time.monotonic()
        if thumb != self._thumb:
            changed = list(range(rows))
        width, height = self.size
        regions = [Region(0, y, width, rows) for y, rows in runs(y for y in changed if y < height)]
        if regions and self.is_attached:
            self._painter.paint(self, regions)
        if was_empty and self.cursor is not None:
            self.cursor = max(self.shown - 1, 0)

    def _thumb_rows(self, every: int) -> range:
        """Return the rows of the scrollbar's thumb for *every* row in total; empty if all of them are visible."""
        rows = self._screen.size[1]
        if every <= rows:
            return range(0)
        size = max(rows * rows // every, 1)
        top = (rows - size) * max(every - rows - self.above, 0) // (every - rows)
        return range(top, top + size)

    def _find_styles(self) -> tuple[Style, Style, Style]:
        bar, thumb = (self.get_component_rich_style(f"event-screen--{part}") for part in ("bar", "thumb"))
        return self.rich_style, bar, thumb

    # The cursor.

    def read(self, on: bool) -> None:
        """Show a cursor, at the last visible row; or hide it, and end the search."""
        if not on:
            self.finder.search = None
        self.holds = on
        self.cursor = max(self.shown - 1, 0) if on else None
        self.finder.cancel_move()
        self.redraw()
        self.refresh()

    def move(self, rows: int) -> None:
        """Move the cursor; scroll if it would leave the screen."""
        if self.cursor is None:
            return
        self.finder.cancel_move()
        wanted = self.cursor + rows
        self.cursor = min(max(wanted, 0), max(self.shown - 1, 0))
        if wanted != self.cursor:
            self.scroll_back_lines(self.cursor - wanted)
        self.refresh()

    def turn_page(self, pages: int) -> None:
        """Move the cursor and the screen down by so many screens, up if negative."""
        self.finder.cancel_move()
        before = self._bottom
        self.scroll_back(-pages)
        if self._bottom == before:
            self.move(pages * self.size.height)
        self.refresh()

    def go_to_top(self) -> None:
        self.finder.cancel_move()
        self.go_to(RowPosition(0, 0), at_top=True)

    def go_to_last(self) -> None:
        self.finder.cancel_move()
        self.show_end()
        self.cursor = max(self.shown - 1, 0)
        self.refresh()

    def place(self) -> RowPosition | None:
        """Return the position under the cursor; None on text that is being written, or without a row."""
        return self._place_in_row(self.cursor) if self.cursor is not None else None

    def jump(self, turns: int) -> bool:
        """Go to the beginning of another turn; False if there is none."""
        starts, position = self.transcript.turns, self.here()
        if turns > 0:
            wanted = next((start for start in starts if start > position.block), None)
        else:
            on_it = position.row <= 1
            wanted = next((start for start in reversed(starts) if start < position.block + (not on_it)), None)
        if wanted is not None:
            self.finder.cancel_move()
            self.go_to(RowPosition(wanted, min(1, len(self.lines.block(wanted)) - 1)), at_top=True)
        return wanted is not None

    def toggle(self, y: int | None = None) -> bool:
        """Fold or unfold at the cursor, or at the visible row *y*; False if nothing can be folded."""
        row = self.cursor if y is None else y
        place = None if row is None else self._place_in_row(row)
        if row is None or place is None or not self.transcript.toggle(place.block):
            return False
        place = self.lines.walk(RowPosition(place.block, min(place.row, len(self.lines.block(place.block)) - 1)), 0)
        self._show_to(self.lines.walk(place, self.shown - 1 - row))
        if self.cursor is not None:
            self._place_cursor(place)
        self.refresh()
        return True

    def copied(self, *, answer: bool = False) -> Piece | None:
        """Return the text under the cursor: its code block if it is in one, else its block; or the last answer."""
        place = self.place()
        if answer or place is None:
            return last_answer(self.transcript)
        row = self.lines.block(place.block)[place.row]
        return piece(self.transcript.blocks[place.block], row.code) or last_answer(self.transcript)

    def turn(self) -> int:
        """Return which turn is under the cursor, counted from the end: -1 is the last one; 0 if there is none."""
        turns = self.transcript.turns
        before = sum(start <= self.here().block for start in turns)
        return before - 1 - len(turns) if before else 0

    def links(self) -> list[str]:
        """Return the addresses in the paragraph under the cursor; if it has none, those of its block."""
        if (place := self.place()) is None:
            return []
        rows = self.lines.block(place.block)
        return link_addresses(rows[place.row : place.row + 1]) or link_addresses(rows)

    def here(self) -> RowPosition:
        """Return the position under the cursor, or after the end."""
        return self.place() or RowPosition(len(self.transcript.blocks), 0)

    def go_to(self, place: RowPosition, *, at_top: bool = False) -> None:
        """Move the cursor to *place*, scrolling if needed."""
        top = self.lines.walk(self._bottom, 1 - self.shown)
        if at_top or not top <= place <= self._bottom:
            self._show_to(self.lines.walk(place, self._screen.size[1] - 1 - (0 if at_top else CONTEXT)))
        self._place_cursor(place)
        self.refresh()

    def _place_cursor(self, place: RowPosition) -> None:
        above = self.lines.above(place) - self.lines.above(self._bottom)
        self.cursor = min(max(self.shown - 1 - above, 0), max(self.shown - 1, 0))

    def _place_in_row(self, row: int) -> RowPosition | None:
        """Return the position in this visible *row*; None for text that is being written, or an empty row."""
        place = self.lines.walk(self._bottom, row - self.shown + 1)
        return place if self.shown and place.block < len(self.transcript.blocks) else None

    def on_click(self, event: events.Click) -> None:
        """Toggle a fold, copy a code block or offer a link that is clicked; else, while reading, move the cursor."""
        if event.y >= self.shown:
            return
        place = self._place_in_row(event.y)
        row = self.lines.block(place.block)[place.row] if place is not None else BLANK
        code = piece(self.transcript.blocks[place.block], row.code) if place is not None and row.button else None
        if row.fold:
            event.stop()
            self.toggle(event.y)
        elif code is not None:
            event.stop()
            self.post_message(self.CodeClicked(code))
        elif row.links and _token_at(row, event.x) is Token.LINK:
            event.stop()
            self.post_message(self.LinkClicked([*dict.fromkeys(row.links)]))
        elif self.cursor is not None:
            event.stop()
            self.cursor = event.y
            self.refresh()

    def report(self, matches: int, done: bool, at_match: bool) -> None:
        self.post_message(self.SearchUpdated(matches, done, at_match))


def _token_at(row: TextLine, x: int) -> Token | None:
    for text, token in row.spans:
        x -= cells(text)
        if x < 0:
            return token
    return None


@lru_cache(512)
def _highlight(own: Style, background: Color | None, usual: Color | None, enough: float) -> Style:
    """Return *own* on the cursor's *background*, readable there; reversed without colours."""
    front = own.color or usual
    if usual is None or front is None or background is None:
        return own + Style(reverse=True)
    shown = readable(front.get_truecolor().hex, background.get_truecolor().hex, enough)
    return own + Style(color=shown, bgcolor=background)
