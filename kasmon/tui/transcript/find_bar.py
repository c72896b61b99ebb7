"""The line below a transcript that takes what to search for, and says where it was found."""

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
from kasmon.tui.theme.look import Span, ThemeStyles

if TYPE_CHECKING:
    from textual.strip import Strip

    from kasmon.tui.widgets.search_input import SearchInput


class FindChanged(Message):
    """What is searched for is this now."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class FindQuery(LineWidget):
    """What is searched for, when nobody is writing it, and how far the search came."""

    words = ""
    writing = False
    """Whether they are being written now, in a box of its own."""
    told: Span = ("", "soft")
    """How far the search came."""

    def line(self, width: int) -> "Strip":
        left: list[Span] = [] if self.writing else [(" / ", "accent.bold"), (clean_line(self.words), "text.bold")]
        return self.look.between(left, [self.told, (" ", "text")], width, "surface")

    def on_click(self) -> None:
        self.post_message(ActionRequested("find"))


class FindBar(Horizontal):
    """Hidden without a search; a box while its words are written."""

    def __init__(self, look: ThemeStyles, keys: KeyMap) -> None:
        super().__init__(id="find")
        self.words, self.keys = FindQuery(look), keys
        self.box: SearchInput | None = None
        self.is_open = False
        """Whether something is searched for, or may be as soon as its words have come."""

    def compose(self) -> ComposeResult:
        yield self.words

    @property
    def written(self) -> str:
        """What stands in the box."""
        return "" if self.box is None else self.box.value

    def begin(self) -> None:
        """Take the keyboard, for other words."""
        if self.box is None:
            self.box = _box(self.keys)
            self.mount(self.box, before=self.words)
        self.box.value = self.words.words = ""
        self.box.display = self.words.writing = self.is_open = True
        self.words.told = ("", "soft")
        self.add_class("-shown")
        self.screen.set_focus(self.box)  # now: the next key may be there already

    def heard(self, words: str, search: Callable[[str], None]) -> None:
        """Have *search* look for *words*, which stand in the box now; not if other keys were faster."""
        if self.is_open and words == self.written:
            search(words)
            if not self.words.writing:
                self.keep()

    def keep(self) -> None:
        """Show the words, and no box any more."""
        self.words.writing = False
        if self.box is not None:
            self.box.display = False
        self.words.refresh()
        self.set_class(bool(self.words.words), "-shown")

    def drop(self) -> None:
        """Search for nothing any more."""
        self.words.words, self.is_open = "", False
        self.keep()

    def tell(self, places: int, done: bool, here: bool) -> None:
        """So many blocks hold the words so far; *here*: what was looked for is under the cursor."""
        if done and not places:
            self.words.told = ("not found", "warn.bold")
        else:
            more = "" if done else " so far"
            no_more = "no more matches; " if done and not here else ""
            self.words.told = (f"{no_more}{places} {'match' if places == 1 else 'matches'}{more}", "soft")
        self.words.refresh()

    def dress(self, look: ThemeStyles) -> None:
        self.words.look = look
        self.words.refresh()


def _box(keys: KeyMap) -> "SearchInput":
    from kasmon.tui.widgets.search_input import SearchInput  # heavy: only when somebody searches

    return SearchInput(keys, KeyContext.FIND, ActionRequested, FindChanged)
