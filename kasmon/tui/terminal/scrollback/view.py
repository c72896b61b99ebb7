"""A view of a terminal's text: rows of a buffer, a cursor, matches, a selection, links."""

from typing import ClassVar, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.transcript.markdown.links import LinkAddress
from kasmon.model.transcript.text import Token
from kasmon.tui.terminal.scrollback.buffer import BufferMatch, BufferPosition, ScrollbackBuffer
from kasmon.tui.theme.look import ThemeStyles

WHEEL_ROWS: Final = 3
LINKED: Final = Style(underline=True)
CURSOR: Final = Style(reverse=True)


class ScrollbackView(Widget, can_focus=True):
    """The rows of a buffer from `top` on; at first the last ones, or those *up* rows above them."""

    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = "ScrollbackView { width: 1fr; height: 1fr; background: $background; color: $foreground; }"

    class Moved(Message):
        """The cursor, the selection or the matches changed."""

    class Dragged(Message):
        """The user selected text with the mouse."""

    class LinkClicked(Message):
        def __init__(self, link: LinkAddress) -> None:
            super().__init__()
            self.link = link

    def __init__(
        self, buffer: ScrollbackBuffer, look: ThemeStyles, up: int = 0, at: BufferPosition | None = None
    ) -> None:
        super().__init__()
        self._begins = at
        """The initial cursor position, centred; None: at the end."""
        self.buffer, self.look = buffer, look
        self.cursor = self.begun_at = BufferPosition(max(len(buffer.lines) - 1, 0), 0)
        self.selects = False
        self.matches: list[BufferMatch] = []
        self.top = 0
        self._is_dragging = False
        self._at_end, self._up = True, up

    # Position.

    def on_resize(self) -> None:
        self.buffer.wrap(self.size.width)
        if self._begins is not None:
            self.cursor, self._begins, self._at_end = self._begins, None, False
            self.top = max(self._row - self.size.height // 2, 0)
        if self._at_end:
            self.top = max(len(self.buffer.rows) - self.size.height - self._up, 0)
            if self._up:
                self.cursor = self.buffer.spot(self.top + self.size.height - 1, 0)
            self._at_end = False
        self._show_cursor()

    def move(self, rows: int) -> None:
        """Move the cursor by so many rows, up if negative."""
        row = self._row + rows
        self.go(self.buffer.spot(row, self.buffer.cell_of(self.cursor)))

    def step(self, characters: int) -> None:
        """Move the cursor within its line."""
        text = self.buffer.texts[self.cursor.line] if self.buffer.texts else ""
        self.go(BufferPosition(self.cursor.line, min(max(self.cursor.at + characters, 0), len(text))))

    def go(self, spot: BufferPosition) -> None:
        """Move the cursor to *spot*, scrolling if needed."""
        if self.buffer.rows:
            self.cursor = spot
            self._show_cursor()

    def go_to_row(self, row: int) -> None:
        self.go(self.buffer.spot(row, 0))

    def scroll(self, rows: int) -> None:
        """Scroll by *rows*, and keep the cursor visible."""
        height = max(self.size.height, 1)
        self.top = min(max(self.top + rows, 0), max(len(self.buffer.rows) - height, 0))
        row = min(max(self._row, self.top), self.top + height - 1)
        if row != self._row:
            self.cursor = self.buffer.spot(row, 0)
        self._report_move()

    @property
    def _row(self) -> int:
        return self.buffer.row_of(self.cursor) if self.buffer.rows else 0

    def _show_cursor(self) -> None:
        height = max(self.size.height, 1)
        self.top = min(max(self.top, self._row - height + 1), self._row)
        self.top = min(self.top, max(len(self.buffer.rows) - height, 0))
        self._report_move()

    def _report_move(self) -> None:
        self.refresh()
        self.post_message(self.Moved())

    # Matches and selection.

    def find_next(self, *, down: bool) -> bool:
        """Go to the next match, up unless *down*; return whether there is one."""
        if down:
            match = next((matches for matches in self.matches if matches[:2] > self.cursor), None)
        else:
            match = next((matches for matches in reversed(self.matches) if matches[:2] < self.cursor), None)
        if match is not None:
            self.go(BufferPosition(match.line, match.start))
        return match is not None

    def select(self) -> None:
        """Begin a selection at the cursor, or drop it."""
        self.selects, self.begun_at = not self.selects, self.cursor
        self._report_move()

    def drop_selection(self) -> None:
        self.selects = False
        self._report_move()

    def selected(self) -> tuple[BufferPosition, BufferPosition]:
        """Return the selected range; by keys with the character under the cursor. Without a selection, its line."""
        if not self.selects:
            text = self.buffer.texts[self.cursor.line] if self.buffer.texts else ""
            return BufferPosition(self.cursor.line, 0), BufferPosition(self.cursor.line, len(text))
        first, last = min(self.begun_at, self.cursor), max(self.begun_at, self.cursor)
        return first, last if self._is_dragging else BufferPosition(last.line, last.at + 1)

    def screenful(self) -> tuple[BufferPosition, BufferPosition]:
        """Return the range of the visible text."""
        rows = self.buffer.rows[self.top : self.top + self.size.height]
        return BufferPosition(rows[0].line, rows[0].start), BufferPosition(rows[-1].line, rows[-1].end)

    def link(self) -> LinkAddress | None:
        """Return the link under the cursor, else the first one of its row, else of its line."""
        if not self.buffer.rows:
            return None
        row = self.buffer.rows[self._row]
        links = self.buffer.links(self.cursor.line)
        under = (link for link in links if link.start <= self.cursor.at < link.end)
        in_row = (link for link in links if link.start < row.end and link.end > row.start)
        return next(under, None) or next(in_row, None) or next(iter(links), None)

    # Drawing.

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        number = self.top + y
        if not self.buffer.rows or number >= len(self.buffer.rows):
            return Strip.blank(width, base)
        row = self.buffer.rows[number]
        shown = self.buffer.strip(number)
        strip = Strip([Segment(text, base + style if style else base) for text, style, _ in shown])
        strip = strip.adjust_cell_length(width, base)
        text = self.buffer.texts[row.line]

        def paint_cells(start: int, end: int, style: Style) -> None:
            nonlocal strip
            first, last = max(start, row.start), min(end, row.end)
            if first < last:
                left = len(text[row.start : first]) if text.isascii() else cell_len(text[row.start : first])
                strip = _apply_style(strip, left, left + cell_len(text[first:last]), style)

        for link in self.buffer.links(row.line):
            paint_cells(link.start, link.end, LINKED)
        for matches in self.matches:
            if matches.line == row.line:
                paint_cells(matches.start, matches.end, self.look.token(Token.FOUND))
        if self.selects:
            first, last = self.selected()
            start = 0 if first.line < row.line else first.at
            end = len(text) if last.line > row.line else last.at
            if first.line <= row.line <= last.line:
                paint_cells(start, end, CURSOR)
        if number == self._row:
            left = self.buffer.cell_of(self.cursor)
            strip = _apply_style(strip, min(left, width - 1), min(left, width - 1) + 1, CURSOR)
        return strip

    # The mouse.

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.button == 1 and self.buffer.rows:
            self.capture_mouse()
            self._is_dragging, self.selects = True, False
            self.cursor = self.begun_at = self.buffer.spot(self.top + event.y, event.x)
            self._report_move()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._is_dragging:
            self.cursor = self.buffer.spot(self.top + event.y, event.x)
            self.selects = self.cursor != self.begun_at
            self._show_cursor()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if not self._is_dragging:
            return
        self.release_mouse()
        if self.selects:
            self.post_message(self.Dragged())
            return
        self._is_dragging = False
        links = self.buffer.links(self.cursor.line)
        link = next((link for link in links if link.start <= self.cursor.at < link.end), None)
        if link is not None:
            self.post_message(self.LinkClicked(link))

    def end_drag(self) -> None:
        self._is_dragging = False

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.scroll(-WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.scroll(WHEEL_ROWS)


def _apply_style(strip: Strip, start: int, end: int, style: Style) -> Strip:
    """Return *strip* with *style* over its cells from *start* to before *end*."""
    width = strip.cell_length
    parts = [strip.crop(0, start), strip.crop(start, end).apply_style(Style.null()), strip.crop(end, width)]
    parts[1] = Strip([Segment(text, (own or Style.null()) + style) for text, own, _ in parts[1]])
    return Strip.join(parts)
