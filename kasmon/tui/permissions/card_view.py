"""The card's widget: draws its state in the available space, and tracks whether its keys count."""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.timer import Timer

from kasmon.model.permission import Request
from kasmon.model.transcript.text import TextLine
from kasmon.tui.clock import Clock
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions import request_groups
from kasmon.tui.permissions.card_layout import CardLayout, lay_out
from kasmon.tui.permissions.card_text import CardState
from kasmon.tui.permissions.queue import InputGuard
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Reader
from kasmon.tui.widgets.text_lines import TextLines

GAUGE_S = 0.1
AvailableSize: TypeAlias = Callable[[CardState, bool], tuple[int, int]]
"""Returns cells of a row and rows within the card's border, for a card in this state; True asks for the most possible.
"""


class PermissionCardView(Vertical):
    """Shows a `CardState`: the request's origin, all of it, warnings, and which key does what."""

    def __init__(self, look: ThemeStyles, clock: Clock, keys: KeyMap, room: AvailableSize, state: CardState) -> None:
        super().__init__()
        self.look, self.clock, self.keys = look, clock, keys
        self.arming = InputGuard(clock.ticking())
        self.head = TextLines(look, id="card-head")
        self.body = Reader(look, ground="background", margin=1)
        self.notes = TextLines(look, id="card-notes")
        self.choices = TextLines(look, id="card-choices")
        self._room, self._state = room, state
        self._edited: dict[str, Any] | None = None
        self._gauge: Timer | None = None
        self._fits, self._is_whole, self._body_rows = True, True, 0

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.body
        yield self.notes
        yield self.choices

    def on_mount(self) -> None:
        self._gauge = self.set_interval(GAUGE_S, self._look_at_clock)

    @property
    def request(self) -> Request:
        """The shown request."""
        return self._state.sheet.request

    @property
    def is_armed(self) -> bool:
        """Whether keys count, which the card shows."""
        return self._state.armed

    def dress(self, look: ThemeStyles) -> None:
        """Draw with *look* from now on."""
        self.look = self.head.look = self.body.look = self.notes.look = self.choices.look = look
        self.body.refresh()
        self._put()

    def resized(self) -> None:
        """The available space changed, and with it what is visible: keys are ignored for a while."""
        self._change()

    def tick(self) -> None:
        """Redraw ages."""
        self._put()

    def letters(self) -> str:
        """The letters to type where there are hidden characters."""
        name = self.request.tool.casefold()
        return "".join(each for each in name if each.isascii() and each.isalnum())[:3] or "yes"

    def on_reader_moved(self, message: Reader.Moved) -> None:
        message.stop()
        self._put(read=self.body.seen_end)

    def tell(self, message: Message) -> None:
        """Post *message* directly to the screen, so that an answer is sent before the next key is handled."""
        self.screen.post_message(message)

    def _change(self, **changes: Any) -> None:
        """Change what is shown: keys are ignored for a while."""
        self.arming.change(self.clock.ticking())
        if self._gauge is not None:
            self._gauge.resume()
        self._put(armed=False, **{"ignored": "", **changes})

    def ignore(self, why: str) -> None:
        """Show *why* a key did nothing, until the next one."""
        if why != self._state.ignored:
            self._put(ignored=why)

    def _put(self, **changes: Any) -> None:
        there = {"rows": self.body.rows, "ahead": self.body.ahead}
        self._state = msgspec.structs.replace(self._state, **there, **changes)
        laid = self._lay_out()
        moved = laid.is_whole != self._is_whole and bool(self.request.options) and not self._edited
        self._fits, self._is_whole = laid.fits, laid.is_whole
        self.head.say(*laid.head)
        self.notes.say(*laid.notes)
        self.choices.say(*laid.choices)
        if laid.body_rows != self._body_rows:
            self._body_rows = self.body.styles.max_height = laid.body_rows
        if moved:
            self._read_again()

    def _lay_out(self) -> CardLayout:
        state, now = self._state, self.clock.now()
        for roomy in (False, True):
            laid = lay_out(state, self.look, self.keys, self.letters(), now, self._room(state, roomy))
            if laid.fits:
                break
        return laid

    def _expect_room(self) -> None:
        """Before the first layout, prepare the text for its expected space, so that the first frame is right."""
        if not self.body.size:
            self.body.expect(Size(self._room(self._state, False)[0], self._lay_out().body_rows))

    def _read_again(self) -> None:
        self.body.read(self._rows)
        self._put(read=self.body.seen_end)

    def _rows(self, width: int) -> list[TextLine]:
        """The text to read: the request, with its options if they are not shown elsewhere, or the whole list."""
        if self._state.together:
            return request_groups.rows(self._state.together, width)
        return self._state.sheet.rows(width, with_options=not self._is_whole)

    def _look_at_clock(self) -> None:
        armed = self.arming.look(self.clock.ticking()) and self._fits
        if armed != self._state.armed:
            self._put(armed=armed)
        if armed and self._gauge is not None:
            self._gauge.pause()
