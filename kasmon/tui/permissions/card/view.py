"""The view of a card: it draws its state in the available space, and tracks whether keys count."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
from textual.geometry import Size
from textual.timer import Timer
from textual.widget import Widget

from kasmon.model.permission import Request
from kasmon.model.transcript.text import TextLine
from kasmon.tui.clock import Clock
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions import request_groups
from kasmon.tui.permissions.card.layout import CardLayout, lay_out
from kasmon.tui.permissions.card.text import CardState
from kasmon.tui.permissions.queue import InputGuard
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Reader
from kasmon.tui.widgets.text_lines import TextLines

GAUGE_S: Final = 0.1
AvailableSize: TypeAlias = Callable[[CardState, bool], tuple[int, int]]
"""Returns cells of a row and rows within the card's border, for a card in this state; True asks for the most possible.
"""


class CardView:
    """Shows a `CardState` in a card's widgets: the request's origin, all of it, warnings, and which key does what."""

    def __init__(
        self, look: ThemeStyles, clock: Clock, keys: KeyMap, available: AvailableSize, state: CardState
    ) -> None:
        self.look, self.clock, self.keys, self.state = look, clock, keys, state
        self.arming = InputGuard(clock.ticking())
        self.head = TextLines(look, id="card-head")
        self.body = Reader(look, background="background")
        self.notes = TextLines(look, id="card-notes")
        self.choices = TextLines(look, id="card-choices")
        self.gauge: Timer | None = None
        """Calls `update_armed` every `GAUGE_S` seconds until keys count."""
        self.fits = True
        """Whether the card is shown; if not, only Esc may work."""
        self.is_whole = True
        """Whether the rule with its scope, or each option of a question, is shown in full."""
        self._room, self._body_rows = available, 0

    @property
    def widgets(self) -> tuple[Widget, ...]:
        return self.head, self.body, self.notes, self.choices

    @property
    def request(self) -> Request:
        return self.state.sheet.request

    def open(self, state: CardState) -> None:
        """Show another request, from its beginning."""
        self.state = state
        self.body.dim(False)
        self._expect_room()
        self.body.read(self._rows)
        self.change(read=self.body.seen_end)
        self._expect_room()
        self.put()

    def change(self, **changes: Any) -> None:
        """Change what is shown: keys are ignored for a while."""
        self.arming.change(self.clock.ticking())
        if self.gauge is not None:
            self.gauge.resume()
        self.put(armed=False, **{"ignored": "", **changes})

    def ignore(self, why: str) -> None:
        """Show *why* a key did nothing, until the next one."""
        if why != self.state.ignored:
            self.put(ignored=why)

    def put(self, **changes: Any) -> None:
        """Change what is shown, in a way that a key pressed just then still means the same; draw it."""
        scroll_state = {"rows": self.body.rows, "ahead": self.body.ahead}
        self.state = msgspec.structs.replace(self.state, **scroll_state, **changes)
        laid = self._lay_out()
        moved = laid.is_whole != self.is_whole and bool(self.request.options) and not self.state.edited
        self.fits, self.is_whole = laid.fits, laid.is_whole
        self.head.say(*laid.head)
        self.notes.say(*laid.notes)
        self.choices.say(*laid.choices)
        if laid.body_rows != self._body_rows:
            self._body_rows = self.body.styles.max_height = laid.body_rows
        if moved:
            self.read_again()

    def read_again(self) -> None:
        """Show the request, or the list of requests, from its beginning."""
        self.body.read(self._rows)
        self.put(read=self.body.seen_end)

    def update_armed(self) -> None:
        armed = self.arming.update(self.clock.ticking()) and self.fits
        if armed != self.state.armed:
            self.put(armed=armed)
        if armed and self.gauge is not None:
            self.gauge.pause()

    def _lay_out(self) -> CardLayout:
        for roomy in (False, True):
            laid = lay_out(self.state, self.look, self.keys, self.clock.now(), self._room(self.state, roomy))
            if laid.fits:
                break
        return laid

    def _expect_room(self) -> None:
        """Before the first layout, prepare the text for its expected space, so that the first frame is right."""
        if not self.body.size:
            self.body.expect(Size(self._room(self.state, False)[0], self._lay_out().body_rows))

    def _rows(self, width: int) -> list[TextLine]:
        """The text to read: the request, with its options if they are not shown elsewhere, or the whole list."""
        if self.state.group:
            return request_groups.rows(self.state.group, width)
        return self.state.sheet.rows(width, with_options=not self.is_whole)
