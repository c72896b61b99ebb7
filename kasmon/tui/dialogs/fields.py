"""The fields of dialogs: a label with widgets, a choice of a few words, and the line that folds other fields."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from textual import events
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from kasmon.tui.theme.look import StyledSpan, ThemeStyles


class DialogField(Horizontal):
    """A label, and at its right the widgets to fill in."""

    def __init__(self, label: str, *content: Widget) -> None:
        super().__init__(Static(Content(label), markup=False, classes="label"), *content, classes="field")


class ChoiceChanged(Message):
    """Another option was chosen."""

    def __init__(self, choice: "ChoiceField") -> None:
        super().__init__()
        self.choice = choice


class ChoiceField(Widget, can_focus=True):
    """A choice of one of a few words, on as many lines as they need; left and right change it, a click selects."""

    ALLOW_SELECT = False

    def __init__(self, look: ThemeStyles, options: Sequence[str], chosen: int = 0, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes="choice")
        self.look = look
        self.options, self.chosen = tuple(options), chosen
        self.off: frozenset[str] = frozenset()
        """Unavailable options: they can be chosen, and the dialog then shows why they are unavailable."""

    def put(self, options: Sequence[str], chosen: int = 0, off: Iterable[str] = ()) -> None:
        """Replace the options; those in *off* are unavailable."""
        self.options, self.chosen, self.off = tuple(options), chosen, frozenset(off)
        self.refresh(layout=True)

    @property
    def value(self) -> str:
        """The chosen option; empty if there are no options."""
        return self.options[self.chosen] if self.options else ""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1 + max((row for row, _, _ in self._locate_options(width)), default=0)

    def _locate_options(self, width: int) -> list[tuple[int, int, int]]:
        """Row, first cell and cells of each option."""
        placed: list[tuple[int, int, int]] = []
        row = x = 0
        for option in self.options:
            size = cell_len(option) + 2
            if x and x + size > width:
                row, x = row + 1, 0
            placed.append((row, x, size))
            x += size + 1
        return placed

    def render_line(self, y: int) -> Strip:
        spans: list[StyledSpan] = []
        for number, (row, _, _) in enumerate(self._locate_options(self.size.width)):
            if row == y:
                is_selected = number == self.chosen
                is_off = self.options[number] in self.off
                role = ("accent.solid.bold" if self.has_focus else "accent.bold") if is_selected else "soft"
                role = "faint" if is_off and not is_selected else role
                mark = self.look.mark("cursor") if is_selected and not self.has_focus else " "
                spans += [(f"{mark}{self.options[number]} ", role), (" ", "text")]
        return self.look.strip(spans, self.size.width, "background")

    def on_key(self, event: events.Key) -> None:
        if self.takes(event):
            event.stop()

    def takes(self, key: events.Key) -> bool:
        """Choose the next option by *key*, or the one before; return whether it is such a key."""
        step = {"left": -1, "h": -1, "right": 1, "l": 1, "space": 1}.get(key.key)
        if step is None or not self.options:
            return False
        self.choose((self.chosen + step) % len(self.options))
        return True

    def on_click(self, event: events.Click) -> None:
        for number, (row, x, size) in enumerate(self._locate_options(self.size.width)):
            if row == event.y and x <= event.x < x + size:
                self.choose(number)

    def choose(self, number: int) -> None:
        """Choose option *number*, counted from 0, and post `ChoiceChanged`."""
        self.chosen = number
        self.refresh()
        self.post_message(ChoiceChanged(self))

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()


class MoreToggle(Widget, can_focus=True):
    """The line that folds the rarely used fields, and summarises them."""

    ALLOW_SELECT = False

    class Toggled(Message):
        """It was unfolded, or folded."""

    def __init__(self, look: ThemeStyles) -> None:
        super().__init__(id="more", classes="choice")
        self.look = look
        self.is_open = False
        self.summary = ""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1

    def render_line(self, y: int) -> Strip:
        mark = self.look.mark("open" if self.is_open else "shut")
        role = "accent.solid.bold" if self.has_focus else "accent.bold"
        spans: list[StyledSpan] = [(f" {mark} ", role), (" ", "text"), ("" if self.is_open else self.summary, "faint")]
        return self.look.strip(spans, self.size.width, "background")

    def summarize(self, summary: str) -> None:
        self.summary = summary
        self.refresh()

    def toggle(self) -> None:
        self.is_open = not self.is_open
        self.refresh()
        self.post_message(self.Toggled())

    def on_key(self, event: events.Key) -> None:
        if event.key in ("enter", "space", "left", "right"):
            event.stop()
            self.toggle()

    def on_click(self) -> None:
        self.toggle()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()
