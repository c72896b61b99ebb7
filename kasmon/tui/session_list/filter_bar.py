"""The lines above the list: the saved filters as tabs, and the filter that is shown and edited."""

import asyncio
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Horizontal

from kasmon.sanitize import clean_line
from kasmon.tui.action import KeyContext
from kasmon.tui.keymap import KeyMap, Keys
from kasmon.tui.messages import ActionRequested, FilterChanged, FilterClosed
from kasmon.tui.status_bars import LineWidget
from kasmon.tui.theme.look import StyledSpan, ThemeStyles

if TYPE_CHECKING:
    from textual import events
    from textual.strip import Strip

    from kasmon.tui.widgets.search_input import SearchInput


NAME_CELLS: Final = 24
"""The widest name of a tab, in cells."""


class FilterQuery(LineWidget):
    """The filter text; while it is being edited, only the prefix."""

    text = ""
    is_written = False
    """Whether it is being edited in its own input."""
    shown = (0, 0)
    """How many sessions match, and how many there are."""
    clear_key = ""
    """The key that clears the filter; empty if there is none."""

    def line(self, width: int) -> "Strip":
        if self.is_written:
            return self.look.strip([(" /", "accent.bold")], width, "surface")
        left: list[StyledSpan] = [(" / ", "accent.bold"), (clean_line(self.text), "text.bold")]
        left += [(f"   {self.shown[0]} of {self.shown[1]}", "soft"), ("   ", "text")]
        left += [(self.clear_key, "accent.bold"), (" clear" if self.clear_key else "", "faint")]
        return self.look.strip(left, width, "surface")

    def write(self, is_written: bool) -> None:
        """Make space for the input, or take it back."""
        self.is_written = is_written
        self.set_class(is_written, "-written")
        self.refresh()

    def on_click(self) -> None:
        self.post_message(ActionRequested("filter"))


class TabBar(LineWidget):
    """A tab for all sessions and for each saved filter, with the number of its sessions; hidden without any."""

    tabs: tuple[tuple[str, str, int], ...] = ()
    text = ""

    def show(self, tabs: tuple[tuple[str, str, int], ...], text: str) -> None:
        """Show *tabs*; that of the filter *text* is marked."""
        if (tabs, text) != (self.tabs, self.text):
            self.tabs, self.text = tabs, text
            self.set_class(len(tabs) > 1, "-shown")
            self.refresh()

    def line(self, width: int) -> "Strip":
        spans: list[StyledSpan] = []
        for name, text, count in self._fitted(width):
            is_here = text == self.text
            spans += [(f" {name}", "accent.solid.bold" if is_here else "soft")]
            spans += [(f" {count} ", "accent.solid" if is_here else "faint"), (" ", "text")]
        return self.look.strip(spans, width, "surface")

    def _fitted(self, width: int) -> list[tuple[str, str, int]]:
        """Return the tabs that fit, as drawn: as many as possible up to the one in force, then those after it."""
        drawn = [(self.look.cut(clean_line(name), NAME_CELLS), text, count) for name, text, count in self.tabs]
        at = next((index for index, tab in enumerate(drawn) if tab[1] == self.text), 0)
        while at and sum(map(_cells, drawn[: at + 1])) > width:
            drawn, at = drawn[1:], at - 1
        return drawn

    def on_click(self, event: "events.Click") -> None:
        left = 0
        for tab in self._fitted(self.size.width):
            left += _cells(tab)
            if event.x < left:
                self.post_message(FilterChanged(tab[1]))
                return


def _cells(tab: tuple[str, str, int]) -> int:
    name, _, count = tab
    return cell_len(name) + len(str(count)) + 4


class FilterBar(Horizontal):
    """The filter bar: hidden without a filter; an input while it is edited."""

    def __init__(self, look: ThemeStyles) -> None:
        super().__init__(id="filter")
        self.words = FilterQuery(look)
        self.box: SearchInput | None = None
        self._keys = KeyMap()
        self._left = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield self.words

    def show_count(self, text: str, shown: int, sessions: int) -> None:
        """Show the filter *text*, and how many of how many sessions match."""
        if (text, (shown, sessions)) != (self.words.text, self.words.shown):
            self.words.text, self.words.shown = text, (shown, sessions)
            self.words.refresh()
        self.set_class(bool(text) or self.box is not None, "-shown")

    def begin(self, keys: KeyMap) -> None:
        if self.box is None:
            self._keys, self._left = keys, asyncio.Event()
            self.box = _box(self.words.text, keys)
            self.mount(self.box)
            self.words.write(True)
            self.add_class("-shown")
        self.screen.set_focus(self.box)  # now: the next key may be there already

    def left_by(self, key: "events.Key") -> asyncio.Event | None:
        """Return the event that is set once *key* has closed the input; None for a key that does not close it."""
        return self._left if any(self._keys.action(alias, KeyContext.FILTER) for alias in key.aliases) else None

    def end(self) -> None:
        self._left.set()
        if self.box is not None:
            self.box.remove()
            self.box = None
        self.words.write(False)
        self.set_class(bool(self.words.text), "-shown")


def _box(text: str, keys: KeyMap) -> "SearchInput":
    from kasmon.tui.widgets.search_input import SearchInput  # heavy, and not needed for the first frame

    return SearchInput(
        keys,
        KeyContext.FILTER,
        lambda action: FilterClosed(kept=action is Keys.FILTER_KEEP),
        FilterChanged,
        text,
        "text, state:asking, wave:2, agent:claude",
    )
