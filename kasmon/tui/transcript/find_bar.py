"""The line below a transcript that takes a search text and shows the number of matches."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message

from kasmon.sanitize import clean_line
from kasmon.tui.action import KeyContext
from kasmon.tui.keymap import KeyMap
from kasmon.tui.messages import ActionRequested
from kasmon.tui.status_bars import LineWidget
from kasmon.tui.theme.look import StyledSpan, ThemeStyles

if TYPE_CHECKING:
    from textual.strip import Strip

    from kasmon.tui.widgets.search_input import SearchInput


class FindChanged(Message):
    """The search text has changed."""

    def __init__(self, query: str) -> None:
        super().__init__()
        self.words = query


class FindQuery(LineWidget):
    """The search text, while it is not being edited, and the state of the search."""

    words = ""
    writing = False
    """Whether it is being edited in its own input."""
    result: StyledSpan = ("", "soft")

    def line(self, width: int) -> "Strip":
        left: list[StyledSpan] = [] if self.writing else [(" / ", "accent.bold"), (clean_line(self.words), "text.bold")]
        return self.look.between(left, [self.result, (" ", "text")], width, "surface")

    def on_click(self) -> None:
        self.post_message(ActionRequested("find"))


class FindBar(Horizontal):
    """The search bar: hidden without a search; an input while its text is edited."""

    def __init__(self, look: ThemeStyles, keys: KeyMap) -> None:
        super().__init__(id="find")
        self.words, self.keys = FindQuery(look), keys
        self.box: SearchInput | None = None
        self.is_open = False
        """Whether there is a search, or its text is being entered."""

    def compose(self) -> ComposeResult:
        yield self.words

    @property
    def written(self) -> str:
        return "" if self.box is None else self.box.value

    def begin(self) -> None:
        """Open the input for a new search, and focus it."""
        if self.box is None:
            self.box = _box(self.keys)
            self.mount(self.box, before=self.words)
        self.box.value = self.words.words = ""
        self.box.display = self.words.writing = self.is_open = True
        self.words.result = ("", "soft")
        self.add_class("-shown")
        self.screen.set_focus(self.box)  # now: the next key may be there already

    def search_if_current(self, query: str, search: Callable[[str], None]) -> None:
        """Call *search* with *query* if it is the input's current text, which later keys may have changed."""
        if self.is_open and query == self.written:
            search(query)
            if not self.words.writing:
                self.close_input()

    def accept(self, search: Callable[[str], None]) -> None:
        """Call *search* with the written text, unless it is searched already, and close the input."""
        if self.written != self.words.words:
            search(self.written)
        self.close_input()

    def close_input(self) -> None:
        self.words.writing = False
        if self.box is not None:
            self.box.display = False
        self.words.refresh()
        self.set_class(bool(self.words.words), "-shown")

    def drop(self) -> None:
        self.words.words, self.is_open = "", False
        self.close_input()

    def show_count(self, matches: int, done: bool, at_match: bool) -> None:
        """Show the number of matches so far; *at_match*: the cursor is on one."""
        if done and not matches:
            self.words.result = ("not found", "warn.bold")
        else:
            more = "" if done else " so far"
            no_more = "no more matches; " if done and not at_match else ""
            self.words.result = (f"{no_more}{matches} {'match' if matches == 1 else 'matches'}{more}", "soft")
        self.words.refresh()


def _box(keys: KeyMap) -> "SearchInput":
    from kasmon.tui.widgets.search_input import SearchInput  # heavy: only for a search

    return SearchInput(keys, KeyContext.FIND, lambda action: ActionRequested(action.id), FindChanged)
