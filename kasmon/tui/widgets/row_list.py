"""A list with one value on each row: up, down and a click move its cursor."""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from kasmon.tui.theme.look import ThemeStyles

Value = TypeVar("Value")
STEPS: Final = {"up": -1, "k": -1, "down": 1, "j": 1}


class RowList(Widget, Generic[Value], can_focus=True):
    """Shows *values*; *draw* returns the strip of one for a width in cells, and whether the cursor is on it."""

    DEFAULT_CSS = "RowList { height: auto; width: 1fr; }"
    ALLOW_SELECT = False

    class Moved(Message):
        """The cursor is on another row; *row* is its place among the visible ones."""

        def __init__(self, row_list: "RowList[Value]", row: int) -> None:
            super().__init__()
            self.row_list, self.row = row_list, row

    def __init__(
        self,
        look: ThemeStyles,
        draw: Callable[[Value, bool, int], Strip],
        values: Sequence[Value] = (),
        index: int = 0,
        *,
        most_rows: int,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(id=id)
        self.look, self._draw, self._most_rows = look, draw, most_rows
        self.values, self.index = tuple(values), index

    def put(self, values: Sequence[Value]) -> None:
        """Show other *values*; the cursor stays on its row if that exists."""
        self.values = tuple(values)
        self.index = max(0, min(self.index, len(self.values) - 1))
        self.refresh(layout=True)

    @property
    def chosen(self) -> Value | None:
        """The value under the cursor; None if there are none."""
        return self.values[self.index] if self.values else None

    def go_to(self, index: int) -> None:
        """Move the cursor to the value with this index, or to the nearest one."""
        self.index = max(0, min(index, len(self.values) - 1))
        self.refresh()
        self.post_message(self.Moved(self, self.index - self._top))

    @property
    def _top(self) -> int:
        return max(0, min(self.index - self._most_rows // 2, len(self.values) - self._most_rows))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return min(len(self.values), self._most_rows)

    def render_line(self, y: int) -> Strip:
        at, width = self._top + y, self.size.width
        if at >= len(self.values):
            return Strip.blank(width, self.look.style("text", "raised"))
        return self._draw(self.values[at], at == self.index, width)

    def on_key(self, event: events.Key) -> None:
        step = STEPS.get(event.key)
        if step is not None and self.values:
            event.stop()
            self.go_to((self.index + step) % len(self.values))

    def on_click(self, event: events.Click) -> None:
        if event.y < len(self.values):
            self.go_to(self._top + event.y)
