"""The screen to search all sessions: an input, the results so far, and the context of one match."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from textual import events
from textual.app import ComposeResult
from textual.timer import Timer

from kasmon.model.permission import SessionId
from kasmon.model.transcript.search.text import SearchHit
from kasmon.model.transcript.text import Token
from kasmon.supervisor.search.search import SessionHits
from kasmon.tui.action import KeyContext
from kasmon.tui.clock import Clock
from kasmon.tui.keymap import ROWS, KeyMap, Keys
from kasmon.tui.messages import HitOpened, SearchClosed, SearchRequested
from kasmon.tui.search.results_list import SearchResultsList, count_hits, highlight_match
from kasmon.tui.status_bars import KeyBar, KeyHint
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.textual_ext.timers import start_timer
from kasmon.tui.theme.look import StyledSpan, ThemeStyles
from kasmon.tui.widgets.reader import Sentences
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines

if TYPE_CHECKING:
    from textual.widgets import Input

TYPED_S: Final = 0.15
"""The delay between the last key and the search, in seconds."""
AROUND: Final = 2
"""So many lines are shown above and below the chosen match, if there is space."""
ROOMY_ROWS: Final = 18
"""The minimum height for that."""
EMPTY: Final = (
    ("", Token.TEXT),
    ("Type to search.", Token.STRONG),
    ("Searches transcripts, code and terminal output of all sessions, ignoring case.", Token.FAINT),
)
NOTHING: Final = (
    ("", Token.TEXT),
    ("No matches.", Token.STRONG),
    ("Try fewer words. Removed sessions are not searched.", Token.FAINT),
)
LOOKING: Final = (("", Token.TEXT), ("Searching…", Token.FAINT))


class SearchScreen(Overlay):
    """Posts `SearchRequested` for words, `HitOpened` for a match and `SearchClosed`; gets results by `add`."""

    contexts = (KeyContext.SEARCH,)
    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    SearchScreen { layout: vertical; align: left top; background: $background; }
    SearchScreen #search-head, SearchScreen #search-keys { height: 1; }
    SearchScreen #search-words {
        height: 1; width: 1fr; border: none; padding: 0 1; background: $surface; background-tint: $surface 0%;
    }
    SearchScreen #search-list { height: 1fr; width: 1fr; background: $background; scrollbar-background: $background; }
    SearchScreen #search-nothing { width: 1fr; height: 1fr; background: $background; }
    SearchScreen #search-around { height: auto; width: 1fr; border-top: solid $k-line; background: $background; }
    """

    def __init__(
        self, look: ThemeStyles, clock: Clock, keys: KeyMap, query: str = "", results: Sequence[SessionHits] = ()
    ) -> None:
        """*query* and *results*: those of the last search, to continue with."""
        super().__init__()
        self.look, self.clock, self.keys = look, clock, keys
        self.words, self.results = query, [*results]
        self.is_done, self.problem = True, ""
        self.head = TextLines(look, "surface", id="search-head")
        self.box = LineInput(query, "Search transcripts and output", id="search-words")
        self.list = SearchResultsList(look, clock)
        self.nothing = Sentences(look, id="search-nothing")
        self.nothing.ground = "background"
        self.around = TextLines(look, "background", id="search-around")
        self.bar = KeyBar(look, id="search-keys")
        self._timer: Timer | None = None
        self.handlers = {
            Keys.SEARCH_DOWN: lambda: self.list.move(1),
            Keys.SEARCH_UP: lambda: self.list.move(-1),
            Keys.SEARCH_PAGE_DOWN: lambda: self.list.turn_page(1),
            Keys.SEARCH_PAGE_UP: lambda: self.list.turn_page(-1),
            Keys.SEARCH_OPEN: self._open,
            Keys.LEAVE_SEARCH: lambda: self.post_message(SearchClosed()),
        }

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.box
        yield self.list
        yield self.nothing
        yield self.around
        yield self.bar

    def on_mount(self) -> None:
        self.list.show(self.results)
        self.set_focus(self.box)
        self.set_interval(10.0, self.list.refresh)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    # Results.

    def begin(self, query: str) -> None:
        self.words, self.results, self.is_done, self.problem = query, [], not query, ""
        self.list.show(())
        self._draw()

    def add(self, results: SessionHits) -> None:
        if results.problem:
            self.problem = f"{results.session.label} could not be searched"
        else:
            self.results.append(results)
            self.list.add(results)
        self._draw()

    def end(self, problem: str = "") -> None:
        """End the search; *problem* is the reason if it failed."""
        self.is_done, self.problem = True, problem or self.problem
        self._draw()

    def _draw(self) -> None:
        has_hits = bool(self.results)
        self.list.display, self.nothing.display = has_hits, not has_hits
        if not has_hits:
            self.nothing.say(*(EMPTY if not self.words else NOTHING if self.is_done else LOOKING))
        self.head.say(self._summary())
        self._draw_around()
        shown = ["search_open", "search_down", "search_up"] if has_hits else []
        offered = [*shown, "leave_search", "help"]
        self.bar.offered = tuple(KeyHint(each, self._key(each), ROWS[each].label) for each in offered)

    def _key(self, action: str) -> str:
        return self.keys.shown_while_writing(action, self.look.utf8)

    def _summary(self) -> DrawnLine:
        count, more = sum(len(each.hits) for each in self.results), any(each.more for each in self.results)
        left: list[StyledSpan] = [(" search ", "accent.bold"), (" ", "text")]
        if count:
            sessions = len(self.results)
            left.append((count_hits(count, more), "text.bold"))
            left.append((f" in {sessions} {'session' if sessions == 1 else 'sessions'}", "soft"))
        right: list[StyledSpan] = [(f"{self.problem} ", "warn")] if self.problem else []
        if not self.is_done:
            right = [("searching ", "soft")]
        return DrawnLine(tuple(left), tuple(right))

    def _draw_around(self) -> None:
        row = self.list.chosen
        self.around.display = row is not None and self.app.size.height >= ROOMY_ROWS
        if row is None or row.hit is None:
            return
        hit, blank = row.hit, DrawnLine()
        before = [_context_line(line) for line in hit.before[-AROUND:]]
        after = [_context_line(line) for line in hit.after[:AROUND]]
        match_line = DrawnLine(((" ", "text"), *highlight_match(hit, self.app.size.width - 2, self.look)))
        self.around.say(
            *[blank] * (AROUND - len(before)), *before, match_line, *after, *[blank] * (AROUND - len(after))
        )

    # Keys and clicks.

    def takes(self, key: events.Key) -> bool:
        if key.is_printable:
            return False
        row = self.keys.action_of(key.aliases, KeyContext.SEARCH)
        return row is not None and self.do(row)

    def _open(self) -> None:
        if self._timer is not None:  # the search for the current text has not begun
            self._request_search()
        elif (row := self.list.chosen) is not None and row.hit is not None:
            self.post_message(HitOpened(row.hit))

    def on_search_results_list_picked(self, message: SearchResultsList.Picked) -> None:
        message.stop()
        if message.opens:
            self._open()

    def on_search_results_list_moved(self, message: SearchResultsList.Moved) -> None:
        message.stop()
        self._draw_around()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def on_input_changed(self, message: "Input.Changed") -> None:
        message.stop()
        self._stop_timer()
        if message.value != self.words:
            self._timer = start_timer(self, TYPED_S, self._request_search)

    def _request_search(self) -> None:
        self._stop_timer()
        self.begin(self.box.value)
        self.post_message(SearchRequested(self.words))

    @property
    def chosen(self) -> SearchHit | None:
        row = self.list.chosen
        return None if row is None else row.hit

    @property
    def session_here(self) -> SessionId:
        return SessionId("") if self.chosen is None else self.chosen.session


def _context_line(line: str) -> DrawnLine:
    return DrawnLine(((f" {line}", "faint"),))
