"""A few lines that draw themselves from spans; each may do something when clicked."""

from collections.abc import Sequence

import msgspec
from textual import events
from textual.geometry import Size
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from kasmon.tui.look import Ground, Look, Span, width_of
from kasmon.tui.messages import ActionWanted


class DrawnLine(msgspec.Struct, frozen=True):
    """One line: what stands at its left and at its right, and the action that a click on it means."""

    left: tuple[Span, ...] = ()
    right: tuple[Span, ...] = ()
    action: str = ""
    spots: tuple[tuple[int, int, str], ...] = ()
    """Where a click means something else: first cell, cells, action."""

    def action_at(self, x: int) -> str:
        """What a click on cell *x* means; empty for nothing."""
        return next((action for first, size, action in self.spots if first <= x < first + size), self.action)


def side_by_side(lines: Sequence[DrawnLine], width: int, gap: int = 4) -> list[DrawnLine]:
    """These lines beside each other, as many as *width* takes in each row; a click on one means what it meant."""
    rows: list[DrawnLine] = []
    left: list[Span] = []
    spots: list[tuple[int, int, str]] = []
    for line in lines:
        size = width_of(line.left)
        if left and width_of(left) + gap + size > width:
            rows.append(DrawnLine(tuple(left), spots=tuple(spots)))
            left, spots = [], []
        left += [(" " * gap, "text")] if left else []
        spots.append((width_of(left), size, line.action))
        left += line.left
    return [*rows, DrawnLine(tuple(left), spots=tuple(spots))]


class Lines(Widget):
    """As many lines as it is given."""

    DEFAULT_CSS = "Lines { height: auto; width: 1fr; }"
    ALLOW_SELECT = False
    drawn: reactive[tuple[DrawnLine, ...]] = reactive((), layout=True)

    def __init__(self, look: Look, ground: Ground = "raised", *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.look, self.ground = look, ground

    def say(self, *lines: DrawnLine | Sequence[Span]) -> None:
        """Show these lines."""
        self.drawn = tuple(line if isinstance(line, DrawnLine) else DrawnLine(tuple(line)) for line in lines)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.drawn)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self.drawn):
            return Strip.blank(width, self.look.style("text", self.ground))
        line = self.drawn[y]
        return self.look.between(line.left, line.right, width, self.ground)

    def on_click(self, event: events.Click) -> None:
        if event.y < len(self.drawn) and (action := self.drawn[event.y].action_at(event.x)):
            event.stop()
            self.post_message(ActionWanted(action))
