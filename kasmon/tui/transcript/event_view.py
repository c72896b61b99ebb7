"""The view of a structured session: the pyte screen behind one widget, which is fed only with visible rows."""

import math
import time
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.rows import RowPosition, TranscriptRows
from kasmon.model.transcript.text import TextLine
from kasmon.tui.textual_ext.repaint import ImmediatePainter, runs
from kasmon.tui.textual_ext.strips import LinesOnlyMixin
from kasmon.tui.transcript.virtual_screen import StyleOf, VirtualScreen

FRAME_S: Final = 1 / 30
"""The minimum time between two draws of a growing transcript, in seconds."""
SOON_S: Final = 0.001
"""The delay of a draw after a pause, in seconds; merges all that arrives at the same moment."""
WHEEL_LINES: Final = 3


class EventView(LinesOnlyMixin, Widget, can_focus=True):
    """A transcript, opened at its end. It follows the end, and keeps its position once the user scrolled up."""

    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"event-screen--bar", "event-screen--thumb"}
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
        self._transcript, self._style_of = transcript, style_of
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
        """Show another transcript, at its end; or, with *same_place*, as far above it as before."""
        self._transcript = transcript
        self._show_to(self._lines.place(self.above) if same_place and self.above else None)

    def dress(self, style_of: StyleOf) -> None:
        """Draw with other styles from now on."""
        self._style_of = style_of
        self._draw()

    def changed(self) -> None:
        """Draw with the next frame, because the transcript or its live text grew."""
        if self._frame is not None or not self.is_mounted:
            return
        wait_s = self._drawn_at + FRAME_S - time.monotonic()
        self._frame = self.set_timer(max(wait_s, SOON_S), self._draw_frame)

    def back_lines(self, lines: int) -> None:
        """Scroll *lines* towards the beginning; towards the end if negative."""
        self._show_to(self._lines.walk(self._bottom, -lines))

    def back(self, pages: int) -> None:
        """Scroll by screens, with one row in common."""
        self.back_lines(pages * max(self.size.height - 1, 1))

    def to_end(self) -> None:
        self._show_to(None)

    def to_beginning(self) -> None:
        self._show_to(RowPosition(0, 0))

    def action_back(self, pages: int) -> None:
        self.back(pages)

    def action_back_lines(self, lines: int) -> None:
        self.back_lines(lines)

    def action_to_beginning(self) -> None:
        self.to_beginning()

    def action_to_end(self) -> None:
        self.to_end()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.back_lines(WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.back_lines(-WHEEL_LINES)

    def on_resize(self) -> None:
        self.rewrap()

    def rewrap(self) -> None:
        """Wrap to a new size; follow the end as before, or keep the approximate position.

        Override this instead of `on_resize`, which Textual calls for every class.
        """
        width, height = self.size
        before, self._fits = self._screen.size[0], width > 1
        self._whole.clear()
        self._screen.resize(max(width - 1, 1), max(height, 1))
        if self._at is not None and before > 1:
            self._at = RowPosition(self._at.block, self._at.row * before // max(width - 1, 1))
        self._draw()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        columns, rows = self._screen.size
        if y >= rows or not self._fits:
            return Strip.blank(self.size.width, self.rich_style)
        ground, bar, thumb = self._styles = self._styles or self._look_up_styles()
        edge = ground if not self._thumb else thumb if y in self._thumb else bar
        inner = self._screen.strip(y, ground)
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
    def _lines(self) -> TranscriptRows:
        return self._transcript.lines(self._screen.size[0])

    def _show_to(self, bottom: RowPosition | None) -> None:
        """Show the rows that end with *bottom*. None follows the end, as does the last row unless it `holds`."""
        self._at = bottom
        self._draw()

    def _draw_frame(self) -> None:
        self._frame = None
        self._draw()

    def _draw(self) -> None:
        """Draw the visible rows. New rows at the end do not move a view that is scrolled up."""
        rows, lines = self._screen.size[1], self._lines
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
        changed = self._screen.show([self.style_row(row) for row in shown], self._style_of)
        self._drawn_at = time.monotonic()
        if thumb != self._thumb:
            changed = list(range(rows))
        width, height = self.size
        regions = [Region(0, y, width, rows) for y, rows in runs(y for y in changed if y < height)]
        if regions and self.is_attached:
            self._painter.paint(self, regions)

    def style_row(self, row: TextLine) -> TextLine:
        """Return *row* as it is shown."""
        return row

    def _thumb_rows(self, every: int) -> range:
        """Return the rows of the scrollbar's thumb for *every* row in total; empty if all of them are visible."""
        rows = self._screen.size[1]
        if every <= rows:
            return range(0)
        size = max(rows * rows // every, 1)
        top = (rows - size) * max(every - rows - self.above, 0) // (every - rows)
        return range(top, top + size)

    def _look_up_styles(self) -> tuple[Style, Style, Style]:
        bar, thumb = (self.get_component_rich_style(f"event-screen--{part}") for part in ("bar", "thumb"))
        return self.rich_style, bar, thumb
