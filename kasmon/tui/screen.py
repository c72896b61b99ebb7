"""The screen of a structured session: the pyte screen behind one widget, fed with the rows in sight and no others."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from kasmon.model.text import Line, Token
from kasmon.model.transcript import Transcript
from kasmon.tui.page import Page, Piece

StyleOf = Callable[[Token], Style]
FRAME_S: Final = 1 / 30
MEASURE_S: Final = 1 / 60
MEASURING_S: Final = 0.008
"""How much of a frame goes into measuring on the way to the beginning, in seconds."""
MEASURED_BLOCKS: Final = 20
WHEEL_LINES: Final = 3

_log = logging.getLogger(__name__)


class VirtualScreen:
    """Rows of a fixed size that remember what they show, so that only changed ones are drawn again.

    Whatever goes wrong while drawing costs at most a row's colours: it is logged, the screen starts anew.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self._page = Page(max(columns, 1), max(rows, 1))
        self._shown: list[tuple[Piece, ...]] = []
        self._strips: list[Strip | None] = []
        self._start_anew()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._page.columns, self._page.lines

    def resize(self, columns: int, rows: int) -> None:
        """Become empty, of another size; the next `show` draws everything."""
        self._page = Page(max(columns, 1), max(rows, 1))
        self._start_anew()

    def show(self, lines: Sequence[Line], style_of: StyleOf) -> list[int]:
        """Show *lines* from the top, nothing below them; return the rows that look different now."""
        rows = [tuple((text, style_of(token)) for text, token in line.spans) for line in lines[: self.size[1]]]
        rows += [()] * (self.size[1] - len(rows))
        changed = [y for y, row in enumerate(rows) if row != self._shown[y]]
        try:
            for y in changed:
                self._draw(y, rows[y])
        except Exception:  # noqa: BLE001 - pyte's mistakes must not end the dashboard
            _log.exception("drawing failed; the screen starts anew, without colours")
            self._draw_plainly(rows)
            changed = list(range(len(rows)))
        return changed

    def strip(self, y: int) -> Strip:
        """Row *y*, exactly as wide as the screen."""
        strip = self._strips[y]
        if strip is None:
            strip = self._strips[y] = self._page.strip(y)
        return strip

    def _start_anew(self) -> None:
        columns, rows = self.size
        self._page = Page(columns, rows)
        self._shown = [()] * rows
        self._strips = [None] * rows

    def _draw(self, y: int, row: tuple[Piece, ...]) -> None:
        self._strips[y] = None
        self._page.write(y, row)
        self._shown[y] = row

    def _draw_plainly(self, rows: Sequence[tuple[Piece, ...]]) -> None:
        self._start_anew()
        for y, row in enumerate(rows):
            text = "".join(text for text, _ in row)
            self._shown[y] = row
            self._strips[y] = Strip([Segment(text)]).adjust_cell_length(self.size[0])


class EventScreen(Widget, can_focus=True):
    """A transcript, opened at its end. It follows the end, and stays where it is once somebody scrolled up."""

    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"event-screen--bar", "event-screen--thumb"}
    DEFAULT_CSS = """
    EventScreen { width: 1fr; height: 1fr; background: $background; color: $foreground; }
    EventScreen .event-screen--bar { color: $scrollbar-background; background: $scrollbar-background; }
    EventScreen .event-screen--thumb { color: $scrollbar; background: $scrollbar; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "back(1)", "Page up", show=False),
        Binding("pagedown", "back(-1)", "Page down", show=False),
        Binding("up", "back_lines(1)", "Up", show=False),
        Binding("down", "back_lines(-1)", "Down", show=False),
        Binding("home", "to_beginning", "Beginning", show=False),
        Binding("end", "to_end", "End", show=False),
    ]

    class Scrolled(Message):
        """Another part of the transcript is shown: *above* rows are hidden below it, and `measuring` is under way."""

        def __init__(self, above: int, measuring: bool) -> None:
            self.above, self.measuring = above, measuring
            super().__init__()

    def __init__(self, transcript: Transcript, style_of: StyleOf) -> None:
        super().__init__()
        self.above = 0
        """How many rows lie below what is shown; 0 follows the end."""
        self.holds = False
        """Whether it stays where it is, even at the end."""
        self.shown = 0
        """How many rows are in sight."""
        self._transcript, self._style_of = transcript, style_of
        self._screen = VirtualScreen(1, 1)
        self._known = 0
        """How many rows were measured when `above` was counted; 0 where it is counted anew."""
        self._thumb = range(0)
        self._frame: Timer | None = None
        self._measuring: Timer | None = None

    def open(self, transcript: Transcript, *, same_place: bool = False) -> None:
        """Show another transcript, at its end; or as far above it as before, where it ends as the one before."""
        self._transcript = transcript
        self._known = 0
        self._go(self.above if same_place else 0)

    def dress(self, style_of: StyleOf) -> None:
        """Draw with other styles from now on."""
        self._style_of = style_of
        self._draw()

    def changed(self) -> None:
        """The transcript grew, or its live text did; shown with the next frame."""
        if self._frame is None and self.is_mounted:
            self._frame = self.set_timer(FRAME_S, self._draw_frame)

    def back_lines(self, lines: int) -> None:
        """Scroll *lines* towards the beginning; towards the end where negative."""
        self._go(self.above + lines)

    def back(self, pages: int) -> None:
        """Scroll by screens, with one row in common."""
        self.back_lines(pages * max(self.size.height - 1, 1))

    def to_end(self) -> None:
        self._go(0)

    def to_beginning(self) -> None:
        """Scroll up as far as it goes; a long transcript is measured on the way, a portion a frame."""
        self._stop_measuring()
        self._measuring = self.set_interval(MEASURE_S, self._measure_on)
        self._measure_on()

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
        """The text flows anew; who follows the end still does, others stay about where they were."""
        width, height = self.size
        before = self._screen.size[0]
        self._screen.resize(max(width - 1, 1), max(height, 1))
        if self.above and before > 1:
            self.above = self.above * before // max(width - 1, 1)
        self._known = 0
        self._draw()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= self._screen.size[1] or width < 2:
            return Strip.blank(width, self.rich_style)
        row = self._screen.strip(y).apply_style(self.rich_style).adjust_cell_length(width - 1, self.rich_style)
        return Strip.join([row, Strip([Segment(" ", self._bar_style(y))], 1)])

    def _go(self, above: int) -> None:
        self._stop_measuring()
        self.above = max(above, 0)
        self._draw()
        self.post_message(self.Scrolled(self.above, measuring=False))

    def _measure_on(self) -> None:
        lines = self._transcript.lines(self._screen.size[0])
        until = time.monotonic() + MEASURING_S
        while not (done := lines.measure(MEASURED_BLOCKS)) and time.monotonic() < until:
            pass
        self._known = lines.known
        self.above = max(lines.known - self._screen.size[1], 0)
        if done:
            self._stop_measuring()
        self._draw()
        self.post_message(self.Scrolled(self.above, measuring=not done))

    def _stop_measuring(self) -> None:
        if self._measuring is not None:
            self._measuring.stop()
            self._measuring = None

    def _draw_frame(self) -> None:
        self._frame = None
        self._draw()

    def _draw(self) -> None:
        """Feed the rows in sight to the screen. What came at the end does not move somebody who looks further up."""
        columns, rows = self._screen.size
        lines = self._transcript.lines(columns)
        if (self.above or self.holds) and self._known:
            self.above = max(self.above + lines.known - self._known, 0)
        shown = lines.above_bottom(self.above, rows)
        if len(shown) < rows and self.above:
            self.above = max(lines.known - rows, 0)
            shown = lines.above_bottom(self.above, rows)
        self.shown = len(shown)
        self._known = lines.known
        self._thumb = self._thumb_rows(lines.estimate)
        changed = self._screen.show([self.dressed(row) for row in shown], self._style_of)
        width, height = self.size
        self.refresh(*[Region(0, y, max(width - 1, 0), 1) for y in changed], Region(max(width - 1, 0), 0, 1, height))

    def dressed(self, row: Line) -> Line:
        """*row* as it is shown."""
        return row

    def _thumb_rows(self, every: int) -> range:
        """Where the bar's thumb stands for *every* row that there is; empty while all of them are in sight."""
        rows = self._screen.size[1]
        if every <= rows:
            return range(0)
        size = max(rows * rows // every, 1)
        top = (rows - size) * max(every - rows - self.above, 0) // (every - rows)
        return range(top, top + size)

    def _bar_style(self, y: int) -> Style:
        if not self._thumb:
            return self.rich_style
        return self.get_component_rich_style(f"event-screen--{'thumb' if y in self._thumb else 'bar'}")
