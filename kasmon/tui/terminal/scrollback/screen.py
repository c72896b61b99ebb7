"""Read a terminal's scrollback: a fixed copy of its output, with a cursor, search and copying.

The program keeps running and gets none of these keys, which are those for reading a transcript.
"""

from collections.abc import Callable
from typing import Final

from textual import events
from textual.app import ComposeResult

from kasmon.tui.action import KeyContext
from kasmon.tui.keymap import KeyMap, Keys
from kasmon.tui.terminal.scrollback.buffer import BufferPosition, ScrollbackBuffer
from kasmon.tui.terminal.scrollback.view import ScrollbackView
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import StyledSpan, ThemeStyles
from kasmon.tui.transcript.find_bar import FindBar, FindChanged
from kasmon.tui.widgets.text_lines import TextLines, fitting_keys

ROOMY_WIDTH: Final = 100
"""The minimum width to show an explanation."""


class ScrollbackScreen(Overlay):
    """The scrollback of one terminal, above everything else. *copied* gets a text, *looked* a link to open."""

    contexts = (KeyContext.READING, KeyContext.TEXT, KeyContext.FIND)
    DEFAULT_CSS = """
    ScrollbackScreen { align: left top; background: $background; }
    """

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        name: str,
        buffer: ScrollbackBuffer,
        copied: Callable[[str], object],
        looked: Callable[[str], object],
        *,
        up: int = 0,
        at: BufferPosition | None = None,
        query: str = "",
    ) -> None:
        """*up*: how many rows above the end to begin, unless *at* is set; *query*: the initial search."""
        super().__init__()
        self.look, self.keys, self.session_name = look, keys, name
        self.view = ScrollbackView(buffer, look, up, at)
        self._words = query
        self.find_bar = FindBar(look, keys)
        self.foot = TextLines(look, "surface")
        self._copied, self._looked = copied, looked
        self._search_start = self.view.cursor
        self.handlers = {
            Keys.READ_LINE_DOWN: lambda: self.view.move(1),
            Keys.READ_LINE_UP: lambda: self.view.move(-1),
            Keys.READ_PAGE_DOWN: lambda: self.view.scroll(self.view.size.height),
            Keys.READ_PAGE_UP: lambda: self.view.scroll(-self.view.size.height),
            Keys.READ_TO_TOP: lambda: self.view.go_to_row(0),
            Keys.READ_TO_END: lambda: self.view.go_to_row(len(self.view.buffer.rows) - 1),
            Keys.TEXT_LEFT: lambda: self.view.step(-1),
            Keys.TEXT_RIGHT: lambda: self.view.step(1),
            Keys.TEXT_SELECT: self.view.select,
            Keys.FIND: self._begin_find,
            Keys.FIND_ON: lambda: self._find(down=False),
            Keys.FIND_BACK: lambda: self._find(down=True),
            Keys.FIND_KEEP: self._accept_find,
            Keys.FIND_DROP: self._drop_find,
            Keys.TOGGLE: self._open_link,
            Keys.COPY: self._copy_selection,
            Keys.COPY_ANSWER: self._copy_screen,
            Keys.STOP_READING: self._leave,
        }

    def compose(self) -> ComposeResult:
        yield self.view
        yield self.find_bar
        yield self.foot

    def on_mount(self) -> None:
        self.set_focus(self.view)
        if self._words:
            self.view.matches = self.view.buffer.find(self._words)
            self._show_matches(self._words, has_match=True)
            self.find_bar.is_open = True
            self.find_bar.close_input()
        self._update_foot()

    def takes(self, key: events.Key) -> bool:
        if self.focused is self.view:
            contexts: tuple[KeyContext, ...] = (KeyContext.TEXT, KeyContext.READING)
        elif self.focused is not None and self.focused is self.find_bar.box:
            contexts = (KeyContext.FIND,)
        else:
            return False
        row = self.keys.action_of(key.aliases, *contexts)
        return row is not None and self.do(row)

    def on_find_changed(self, message: FindChanged) -> None:
        message.stop()
        self.find_bar.search_if_current(message.words, self._search)

    def _search(self, query: str) -> None:
        self.view.matches = self.view.buffer.find(query)
        self.view.go(self._search_start)
        has_match = self.view.find_next(down=False) or self.view.find_next(down=True)
        self._show_matches(query, has_match)

    def on_scrollback_view_moved(self) -> None:
        self._update_foot()

    def on_scrollback_view_dragged(self) -> None:
        self._copy_selection()
        self.view.end_drag()

    def on_scrollback_view_link_clicked(self, message: ScrollbackView.LinkClicked) -> None:
        self._looked(message.link.address)

    def _begin_find(self) -> None:
        self._search_start, self._words = self.view.cursor, ""
        self.find_bar.begin()

    def _find(self, *, down: bool) -> None:
        if self.view.matches:
            self._show_matches(self.find_bar.words.words, self.view.find_next(down=down))
        else:
            self._begin_find()

    def _accept_find(self) -> None:
        self.find_bar.accept(self._search)
        self.set_focus(self.view)

    def _drop_find(self) -> None:
        self.view.matches = []
        self.find_bar.drop()
        self.view.go(self._search_start)
        self.set_focus(self.view)

    def _show_matches(self, query: str, has_match: bool) -> None:
        self.find_bar.words.words = query
        self.find_bar.show_count(len(self.view.matches), done=True, at_match=has_match)

    def _open_link(self) -> None:
        if (link := self.view.link()) is not None:
            self._looked(link.address)

    def _copy_selection(self) -> None:
        self._copied(self.view.buffer.between(*self.view.selected()))
        self.view.drop_selection()

    def _copy_screen(self) -> None:
        if self.view.buffer.rows:
            self._copied(self.view.buffer.between(*self.view.screenful()))

    def _leave(self) -> None:
        if self.view.selects:
            self.view.drop_selection()
        elif self.view.matches and not self._words:  # with an initial search, the key leaves at once
            self.view.matches = []
            self.find_bar.drop()
            self.view.refresh()
        else:
            self.dismiss()

    def _update_foot(self) -> None:
        keys, utf8 = self.keys, self.look.utf8
        labels = [("find", "search"), ("text_select", "select"), ("copy", "copy"), ("copy_answer", "copy screen")]
        labels += [("toggle", "link")] if self.view.link() is not None else []
        labels += [
            ("stop_reading", "clear" if self.view.selects or (self.view.matches and not self._words) else "back")
        ]
        left: list[StyledSpan] = [(f" {self.session_name}", "text.bold")]
        left += [(" (paused, scrollback)", "soft")] if self.size.width >= ROOMY_WIDTH else []
        offers = ((keys.shown(action, utf8), label, action) for action, label in labels)
        rows = len(self.view.buffer.rows)
        place = f"line {self.view.cursor.line + 1} of {len(self.view.buffer.lines)} " if rows else "no output "
        self.foot.say(fitting_keys(offers, self.size.width, place, *left, ("   ", "text")))
