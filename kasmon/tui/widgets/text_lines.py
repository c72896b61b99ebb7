"""A few lines drawn from spans; each may have a click action."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from textual import events
from textual.app import App
from textual.geometry import Size
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from kasmon.tui.messages import ActionRequested
from kasmon.tui.theme.look import Background, StyledSpan, ThemeStyles, width_of

PRESSES: Final = "press "
"""Prefix of an action that presses a key; followed by Textual's name of the key."""
PICKS: Final = "pick "
"""Prefix of an action that chooses an entry of a list; followed by the entry's number."""
GAP: Final = 3
"""Cells between two keys in the bottom line."""


class DrawnLine(msgspec.Struct, frozen=True):
    """One line: its left and right text, and its click action."""

    left: tuple[StyledSpan, ...] = ()
    right: tuple[StyledSpan, ...] = ()
    action: str = ""
    spots: tuple[tuple[int, int, str], ...] = ()
    """Areas with another click action: first cell, cells, action."""
    chosen: bool = False
    """Whether the cursor is on it, which gives it the cursor's background."""

    def action_at(self, x: int) -> str:
        """Return the click action at cell *x*; empty for none."""
        return next((action for first, size, action in self.spots if first <= x < first + size), self.action)


def pad_first(line: DrawnLine, cells: int) -> DrawnLine:
    """Return *line* with its first span padded to at least *cells*."""
    if not line.left:
        return line
    (text, role), *others = line.left
    padded = text + " " * (cells - width_of(line.left[:1]))
    return msgspec.structs.replace(line, left=((padded, role), *others))


def side_by_side(lines: Sequence[DrawnLine], width: int, gap: int = 4, first: int = 0) -> list[DrawnLine]:
    """Arrange the lines in rows of *width*, with their click actions; a row's first span has *first* cells at least."""
    rows: list[DrawnLine] = []
    left: list[StyledSpan] = []
    spots: list[tuple[int, int, str]] = []
    for line in lines:
        size = width_of(line.left)
        if left and width_of(left) + gap + size > width:
            rows.append(DrawnLine(tuple(left), spots=tuple(spots)))
            left, spots = [], []
        if not left:
            line = pad_first(line, first)
            size = width_of(line.left)
        left += [(" " * gap, "text")] if left else []
        spots.append((width_of(left), size, line.action))
        left += line.left
    return [*rows, DrawnLine(tuple(left), spots=tuple(spots))]


def pressing(key: str) -> str:
    """Return the action that presses *key*, given by Textual's name or `esc`; empty for a combination of keys."""
    return "" if " " in key else f"{PRESSES}{'escape' if key == 'esc' else key}"


def press(app: App[Any], action: str) -> bool:
    """Press the key of *action* from *app*, as real keys arrive; False if *action* is not a key press.

    A message from a widget would only reach that widget's parents.
    """
    if action.startswith(PRESSES):
        app.call_later(app.simulate_key, action.removeprefix(PRESSES))
    return action.startswith(PRESSES)


def key_line(offers: Iterable[tuple[str, str, str]], *lead: StyledSpan) -> DrawnLine:
    """Return *lead* followed by each key, its description, and the click action of both."""
    left, spots = list(lead), list[tuple[int, int, str]]()
    for key, label, action in offers:
        left += [(" " * GAP, "text")] if spots else []
        spots.append((width_of(left), width_of([(f"{key} {label}", "")]), action))
        left += [(f"{key} ", "accent.bold"), (label, "soft")]
    return DrawnLine(tuple(left), spots=tuple(spots))


def fitting_keys(offers: Iterable[tuple[str, str, str]], width: int, place: str, *lead: StyledSpan) -> DrawnLine:
    """Return a `key_line` of *width* cells with *place* at its right.

    Keys that do not fit are left out, the last but one first; never the last, which leads back.
    """
    kept = list(offers)
    while len(kept) > 1 and width_of(key_line(kept, *lead).left) + width_of([(place, "")]) + 1 > width:
        kept.pop(-2)
    return msgspec.structs.replace(key_line(kept, *lead), right=((place, "soft"),))


class TextLines(Widget):
    """A widget with as many lines as it is given."""

    DEFAULT_CSS = "TextLines { height: auto; width: 1fr; }"
    ALLOW_SELECT = False
    drawn: reactive[tuple[DrawnLine, ...]] = reactive(())

    def __init__(self, look: ThemeStyles, background: Background = "raised", *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.look, self.ground = look, background

    def say(self, *lines: DrawnLine | Sequence[StyledSpan]) -> None:
        self.drawn = tuple(line if isinstance(line, DrawnLine) else DrawnLine(tuple(line)) for line in lines)

    def watch_drawn(self, before: tuple[DrawnLine, ...], drawn: tuple[DrawnLine, ...]) -> None:
        if len(before) != len(drawn):
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.drawn)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self.drawn):
            return Strip.blank(width, self.look.style("text", self.ground))
        line = self.drawn[y]
        return self.look.between(line.left, line.right, width, "selected" if line.chosen else self.ground)

    def on_click(self, event: events.Click) -> None:
        if event.y < len(self.drawn) and (action := self.drawn[event.y].action_at(event.x)):
            event.stop()
            self.post_message(ActionRequested(action))
