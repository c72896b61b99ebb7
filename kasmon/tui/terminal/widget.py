"""The rows of a live terminal: updates in, cells out; only new rows are parsed, not those that scrolled."""

from typing import ClassVar, Final

from rich.cells import split_graphemes
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Offset, Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from kasmon.host.rpc.frames import TerminalCursor, TerminalModes, TerminalRows
from kasmon.tui.terminal.sgr import strip_of
from kasmon.tui.textual_ext.repaint import ImmediatePainter
from kasmon.tui.textual_ext.strips import LinesOnlyMixin

SCREENS: Final = 4
"""The rows of so many screens are kept as drawn."""
_CURSORS = {"underline": Style(underline=True, bold=True), "bar": Style(reverse=True), "block": Style(reverse=True)}


class TerminalWidget(LinesOnlyMixin, Widget):
    """Shows the newest `TerminalRows` of one session; paints changes at once. `live` means focused: draws the cursor.

    A pane that is larger than the widget is cropped: its left edge and, from the last row with text upwards, as many
    rows as fit, moved up if the cursor would be hidden. Each row of an update starts in the default style.
    """

    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = """
    TerminalWidget { width: 1fr; height: 1fr; background: $background; color: $foreground; }
    """

    live: reactive[bool] = reactive(False)

    class Moved(Message):
        """The visible part of the pane moved, or the program changed its modes."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = self.rows = 0
        """The pane's size in cells."""
        self.cursor, self.modes = TerminalCursor(), TerminalModes()
        self.scrolled = self.history = 0
        self.corner = Offset(0, 0)
        """The pane's column and row in the widget's top left cell."""
        self._text: list[str] = []
        self._drawn: dict[str, Strip] = {}
        """Rows as drawn, by their text, for `_drawn_for`: a row that scrolls is parsed and drawn once."""
        self._drawn_for = (0, 0)
        """The pane's first visible column, and the widget's width."""
        self._painter = ImmediatePainter()
        self._base: Style | None = None
        """The widget's own colours, which are the program's defaults; None until they are looked up again."""

    def show(self, rows: TerminalRows) -> None:
        """Apply one update. Rows that it omits are unchanged, unless it is full or of another size."""
        before = (self.cursor, self.scrolled, self.history, self.modes, self.corner)
        everything = self._fit(rows)
        changed = set()
        for y, text in rows.changed:
            if 0 <= y < self.rows and (everything or self._text[y] != text):
                self._text[y] = text
                changed.add(y)
        if rows.cursor != self.cursor:
            changed |= {self.cursor.y, rows.cursor.y}
        self.cursor, self.modes = rows.cursor, rows.modes
        self.scrolled, self.history = rows.scrolled, rows.history
        self.corner = self._best_corner()
        after = (self.cursor, self.scrolled, self.history, self.modes, self.corner)
        if after[1:] != before[1:]:
            changed.add(self.corner.y)
            self.post_message(self.Moved())
        if everything or self.corner != before[-1]:
            self.refresh()
        elif changed:
            width, height = self.size
            top = self.corner.y
            regions = [Region(0, y - top, width, 1) for y in sorted(changed) if 0 <= y - top < height]
            if regions:
                self._painter.paint(self, regions)

    def _fit(self, rows: TerminalRows) -> bool:
        """Adapt to a pane of this size; return whether all earlier rows are void."""
        if not rows.full and (rows.columns, rows.height) == (self.columns, self.rows):
            return False
        self.columns, self.rows = rows.columns, rows.height
        self._text = [""] * self.rows
        return True

    def _best_corner(self) -> Offset:
        width, height = self.size
        left = max(self.cursor.x - width + 1, 0) if self.live and self.cursor.visible and width else 0
        if self.rows <= height or not height:
            return Offset(left, 0)
        last = next((y for y in range(self.rows - 1, -1, -1) if self._text[y].strip()), 0)
        if self.cursor.visible:
            last = max(last, min(self.cursor.y, self.rows - 1))
        top = max(last - height + 1, 0)
        if self.cursor.visible and self.cursor.y < top:
            top = max(self.cursor.y - height // 2, 0)
        return Offset(left, top)

    def watch_live(self) -> None:
        self._recrop()

    def on_resize(self) -> None:
        self._recrop()

    def _recrop(self) -> None:
        self.corner = self._best_corner()
        self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if self._base is None:
            self._base = self.rich_style
            self._drawn.clear()
        base = self._base
        row = y + self.corner.y
        if not 0 <= row < self.rows:
            return Strip.blank(width, base)
        if self._drawn_for != (self.corner.x, width) or len(self._drawn) >= SCREENS * self.rows:
            self._drawn_for = self.corner.x, width
            self._drawn.clear()
        text = self._text[row]
        strip = self._drawn.get(text)
        if strip is None:
            strip = self._drawn[text] = _fit_strip(strip_of(text), self.corner.x, width, base)
        if self.live and self.cursor.visible and row == self.cursor.y and not self.scrolled:
            strip = _with_cursor(strip, self.cursor.x - self.corner.x, width, _CURSORS.get(self.cursor.shape))
        if y == 0 and (marker := self._marker()):
            strip = strip.crop(0, max(width - len(marker), 0))
            strip = Strip.join([strip, Strip([Segment(marker[:width], base + Style(reverse=True))])])
        return strip

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._base = None

    def _marker(self) -> str:
        if self.scrolled:
            return f" {self.scrolled} of {self.history} lines up "
        return " copy mode " if self.modes.copy_mode else ""


def _fit_strip(strip: Strip, left: int, width: int, base: Style) -> Strip:
    if left or strip.cell_length > width:
        strip = strip.crop(left, left + width)
    segments = [Segment(text, base + style if style else base) for text, style, _ in strip]
    if (rest := width - strip.cell_length) > 0:
        segments.append(Segment(" " * rest, base))
    return Strip(segments, width)


def _with_cursor(strip: Strip, x: int, width: int, style: Style | None) -> Strip:
    """Return *strip* with the character at cell *x*, however wide, drawn as the cursor."""
    if not 0 <= x < width:
        return strip
    start, end = _cells_at(strip.text, x)
    *before, under, after = strip.divide([start, end, width] if start else [end, width])
    drawn = under.apply_style(style or _CURSORS["block"])
    return Strip([segment for part in (*before, drawn, after) for segment in part], width)


def _cells_at(text: str, x: int) -> tuple[int, int]:
    """Return the first cell of the character that covers cell *x* of *text*, and the first one after it."""
    if not text.isascii():
        start = 0
        for _, _, width in split_graphemes(text)[0]:
            if start + width > x:
                return start, start + width
            start += width
    return x, x + 1
