"""Rows to read: a text that is wrapped to the width there is, and knows whether its end was seen."""

from collections.abc import Callable, Sequence

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kasmon.model.transcript.text import TextLine, Token, fitted
from kasmon.tui.theme.look import Ground, ThemeStyles

Rows = Callable[[int], Sequence[TextLine]]
"""Makes the rows for a width in cells."""


class Reader(ScrollView, can_focus=False):
    """Shows rows and scrolls. `seen_end` is false until the last row was in sight at this width."""

    DEFAULT_CSS = """
    Reader { height: auto; max-height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """
    ALLOW_SELECT = False

    class Moved(Message):
        """It was scrolled, or shows something else."""

    def __init__(
        self,
        look: ThemeStyles,
        rows: Rows = lambda width: (),
        ground: Ground = "raised",
        margin: int = 0,
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(id=id)
        self.look, self.ground, self.margin = look, ground, margin
        self.seen_end = False
        self.faint = False
        self._rows = rows
        self._drawn: Sequence[TextLine] = ()
        self._width = -1
        self._expected = Size(0, 0)

    def expect(self, room: Size) -> None:
        """It is about to be given so many cells and rows: until a layout says it, it is drawn for those."""
        self._expected = room

    def read(self, rows: Rows) -> None:
        """Show other rows, from their beginning."""
        self._rows, self._width, self.seen_end = rows, -1, False
        self._wrap()
        self.scroll_to(y=0, animate=False, immediate=True)
        self._look_at_end()
        self.refresh(layout=True)

    def dim(self, faint: bool) -> None:
        """Draw without colours: what is shown does not count any more."""
        self.faint = faint
        self.refresh()

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self._drawn)

    @property
    def ahead(self) -> int:
        """How many there are from the first in sight on."""
        return max(0, self.rows - self.scroll_offset.y)

    @property
    def below(self) -> int:
        """How many rows are below what is in sight."""
        return max(0, self.ahead - (self.size.height or self._expected.height))

    def scroll_rows(self, by: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + by, animate=False, immediate=True)

    def scroll_pages(self, by: int) -> None:
        self.scroll_rows(by * max(1, self.size.height - 1))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows(max(1, width - 1 - self.margin)))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._look_at_end()
        self.post_message(self.Moved())

    def on_resize(self, event: events.Resize) -> None:
        self._wrap()
        self._look_at_end()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        row, width = y + self.scroll_offset.y, self.size.width
        if row >= len(self._drawn):
            return Strip.blank(width, self.look.style("text", self.ground))
        return self.look.strip_of(self._drawn[row], width, self.ground, " " * self.margin, self.faint)

    def _wrap(self) -> None:
        width = max(1, (self.container_size.width or self._expected.width) - 1 - self.margin)
        if width != self._width:
            if self._width != -1:
                self.seen_end = False
            self._width = width
            self._drawn = self._rows(width)
            self.virtual_size = Size(width, len(self._drawn))

    def _look_at_end(self) -> None:
        if self.size.height > 0 and self.below == 0:
            self.seen_end = True


class Sentences(Reader):
    """A few sentences, each on as many rows as it needs; an empty one is a blank row."""

    def __init__(self, look: ThemeStyles, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(look, margin=1, id=id)

    def say(self, *said: tuple[str, Token]) -> None:
        """Show these instead, in what each is."""
        self.read(lambda width: [row for text, token in said for row in fitted([(text, token)], width)])
