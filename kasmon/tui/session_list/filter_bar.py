"""The line above the list that says, and takes, what the list is narrowed to."""

import asyncio
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal

from kasmon.sanitize import clean_line
from kasmon.tui.action import KeyContext
from kasmon.tui.keymap import KeyMap
from kasmon.tui.messages import ActionRequested, FilterChanged, FilterClosed
from kasmon.tui.status_bars import LineWidget
from kasmon.tui.theme.look import Span, ThemeStyles

if TYPE_CHECKING:
    from textual import events
    from textual.strip import Strip

    from kasmon.tui.widgets.search_input import SearchInput


class FilterQuery(LineWidget):
    """What is being filtered by; while that is written, only what stands before it."""

    text = ""
    is_written = False
    """Whether it is being written now, in a box of its own."""
    shown = (0, 0)
    """How many sessions fit, and how many there are."""
    way_out = ""
    """The key that shows all again; empty where there is none."""

    def line(self, width: int) -> "Strip":
        if self.is_written:
            return self.look.strip([(" /", "accent.bold")], width, "surface")
        left: list[Span] = [(" / ", "accent.bold"), (clean_line(self.text), "text.bold")]
        left += [(f"   {self.shown[0]} of {self.shown[1]}", "soft"), ("   ", "text")]
        left += [(self.way_out, "accent.bold"), (" clear" if self.way_out else "", "faint")]
        return self.look.strip(left, width, "surface")

    def write(self, is_written: bool) -> None:
        """Leave the room to the box, or take it again."""
        self.is_written = is_written
        self.set_class(is_written, "-written")
        self.refresh()

    def on_click(self) -> None:
        self.post_message(ActionRequested("filter"))


class FilterBar(Horizontal):
    """Hidden without a filter; a box while it is written."""

    def __init__(self, look: ThemeStyles) -> None:
        super().__init__(id="filter")
        self.words = FilterQuery(look)
        self.box: SearchInput | None = None
        self._keys = KeyMap()
        self._left = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield self.words

    def tell(self, text: str, shown: int, sessions: int) -> None:
        """The list is narrowed by *text* to so many of so many sessions."""
        if (text, (shown, sessions)) != (self.words.text, self.words.shown):
            self.words.text, self.words.shown = text, (shown, sessions)
            self.words.refresh()
        self.set_class(bool(text) or self.box is not None, "-shown")

    def begin(self, keys: KeyMap) -> None:
        """Take the keyboard."""
        if self.box is None:
            self._keys, self._left = keys, asyncio.Event()
            self.box = _box(self.words.text, keys)
            self.mount(self.box)
            self.words.write(True)
            self.add_class("-shown")
        self.screen.set_focus(self.box)  # now: the next key may be there already

    def left_by(self, key: "events.Key") -> asyncio.Event | None:
        """What is set once *key*, which goes to the box, has given the keyboard back; None for a key that does not."""
        return self._left if any(self._keys.action(alias, KeyContext.FILTER) for alias in key.aliases) else None

    def end(self) -> None:
        """Give it back."""
        self._left.set()
        if self.box is not None:
            self.box.remove()
            self.box = None
        self.words.write(False)
        self.set_class(bool(self.words.text), "-shown")


def _box(text: str, keys: KeyMap) -> "SearchInput":
    from kasmon.tui.widgets.search_input import SearchInput  # heavy, and not on the way to the first frame

    return SearchInput(
        keys,
        KeyContext.FILTER,
        lambda action: FilterClosed(kept=action == "filter_keep"),
        FilterChanged,
        text,
        "text, state:asking, wave:2, agent:claude",
    )
