"""A scrolling reader: text wrapped to the available width, which records whether its end was seen."""

from collections.abc import Callable, Sequence
from typing import Final

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kasmon.model.transcript.text import TextLine, Token, wrap
from kasmon.tui.theme.look import TOKENS, Background, ThemeStyles

MARGIN: Final = 1
"""Cells before the text."""
Rows = Callable[[int], Sequence[TextLine]]
"""Creates the rows for a width in cells."""


class Reader(ScrollView, can_focus=False):
    """Shows rows and scrolls. `seen_end` is false until the last row was visible at this width."""

    DEFAULT_CSS = """
    Reader { height: auto; max-height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """
    ALLOW_SELECT = False

    class Moved(Message):
        """It was scrolled, or its content changed."""

    def __init__(
        self,
        look: ThemeStyles,
        rows: Rows = lambda width: (),
        background: Background = "raised",
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(id=id)
        self.look, self.ground = look, background
        self.seen_end = False
        self.faint = False
        self._rows = rows
        self._drawn: Sequence[TextLine] = ()
        self._width = -1
        self._expected = Size(0, 0)

    def expect(self, size: Size) -> None:
        """Assume *size*, in cells and rows, until the layout sets one."""
        self._expected = size

    def read(self, rows: Rows) -> None:
        """Show other rows, from their beginning."""
        self._rows, self._width, self.seen_end = rows, -1, False
        self._wrap()
        self.scroll_to(y=0, animate=False, immediate=True)
        self._note_end()
        self.refresh(layout=True)

    def dim(self, faint: bool) -> None:
        """Draw without colours, for outdated content."""
        self.faint = faint
        self.refresh()

    @property
    def rows(self) -> int:
        return len(self._drawn)

    @property
    def ahead(self) -> int:
        """The number of rows from the first visible one on."""
        return max(0, self.rows - self.scroll_offset.y)

    @property
    def below(self) -> int:
        """The number of rows below the visible ones."""
        return max(0, self.ahead - (self.size.height or self._expected.height))

    def scroll_rows(self, by: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + by, animate=False, immediate=True)

    def scroll_pages(self, by: int) -> None:
        self.scroll_rows(by * max(1, self.size.height - 1))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows(max(1, width - 1 - MARGIN)))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._note_end()
        self.post_message(self.Moved())

    def on_resize(self, event: events.Resize) -> None:
        self._wrap()
        self._note_end()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        row, width = y + self.scroll_offset.y, self.size.width
        if row >= len(self._drawn):
            return Strip.blank(width, self.look.style("text", self.ground))
        text = ((text, "faint" if self.faint else TOKENS[token]) for text, token in self._drawn[row].spans)
        return self.look.strip([(" " * MARGIN, "text"), *text], width, self.ground)

    def _wrap(self) -> None:
        width = max(1, (self.container_size.width or self._expected.width) - 1 - MARGIN)
        if width != self._width:
            if self._width != -1:
                self.seen_end = False
            self._width = width
            self._drawn = self._rows(width)
            self.virtual_size = Size(width, len(self._drawn))

    def _note_end(self) -> None:
        if self.size.height > 0 and self.below == 0:
            self.seen_end = True


class Sentences(Reader):
    """A few sentences, each wrapped to as many rows as it needs; an empty one is a blank row."""

    def __init__(self, look: ThemeStyles, *sentences: tuple[str, Token], id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(look, id=id)
        if sentences:
            self.say(*sentences)

    def say(self, *sentences: tuple[str, Token]) -> None:
        """Show these sentences, each in the style of its token."""
        self.read(lambda width: [row for text, token in sentences for row in wrap([(text, token)], width)])
