"""The inbox: every pending request, one line each, and beside the list the selected one on its card.

The card is the same as the one over the list of sessions, with the same arming and answers.
"""

from collections.abc import Collection
from typing import Final, TypeAlias

from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from kasmon.model.permission import Request, RequestId, SessionId
from kasmon.tui.action import Action, KeyContext
from kasmon.tui.clock import Clock
from kasmon.tui.keymap import KeyMap, Keys
from kasmon.tui.messages import ActionRequested, CardClosed
from kasmon.tui.permissions.card.card import PermissionCard, SendAnswer
from kasmon.tui.permissions.card.layout import BORDER, SIDES
from kasmon.tui.permissions.card.text import CardState
from kasmon.tui.permissions.inbox.list import InboxList
from kasmon.tui.permissions.inbox.state import (
    NOT_YET,
    NOTHING,
    InboxRows,
    Marks,
    bar,
    drop_closed,
    find_markable,
    head_line,
    settle_cursor,
    step_cursor,
    toggle_mark,
)
from kasmon.tui.permissions.queue import PermissionSnapshot
from kasmon.tui.status_bars import KeyBar
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences
from kasmon.tui.widgets.text_lines import TextLines

ScreenSize: TypeAlias = tuple[int, int]
BESIDE_COLUMNS: Final = 140
"""From this width on the card is beside the list, else below it."""
LIST_SHARE: Final = 44
"""Percent of the width that the list takes beside a card."""
LOW_ROWS: Final = 30
"""In a lower window the list shrinks for a card with a text box or with the focus."""
BARS: Final = 2
"""Rows of the line above and the line below."""
FEW: Final = 4
"""Rows of the list in a low window, and its minimum in others where it needs them."""


def is_beside(window: ScreenSize) -> bool:
    return window[0] >= BESIDE_COLUMNS


def list_columns(window: ScreenSize) -> int:
    """Return the list's cells beside a card."""
    return window[0] * LIST_SHARE // 100


def list_rows(window: ScreenSize, needed: int, *, tight: bool) -> int:
    """Return the list's rows above a card; *tight* if the card needs all space."""
    rows = window[1]
    if tight and rows < LOW_ROWS:
        return 1
    most = FEW if rows < LOW_ROWS else max(FEW, (rows - BARS) // 3)
    return max(1, min(needed, most))


def room(window: ScreenSize, listed: int) -> ScreenSize:
    """Return cells of a row and rows within the card's border; a list above the card takes *listed* rows."""
    columns, rows = window
    if is_beside(window):
        return columns - list_columns(window) - SIDES, rows - BARS - BORDER
    return columns - SIDES, rows - BARS - BORDER - listed


TICK_S = 0.5
HERE = frozenset({Keys.HELP, Keys.PALETTE, Keys.QUIT})
"""Actions of other contexts that also work here."""


class InboxScreen(Overlay):
    """Gets `PermissionSnapshot` by `update_requests`; its card calls *send* with answers, and it posts `CardClosed`."""

    contexts = (KeyContext.INBOX, KeyContext.CARD)
    AUTO_FOCUS = ""

    def __init__(
        self,
        look: ThemeStyles,
        clock: Clock,
        keys: KeyMap,
        asked: PermissionSnapshot,
        send: SendAnswer,
        first: RequestId | None = None,
    ) -> None:
        super().__init__()
        self._send = send
        self.look, self.clock, self.keys, self.asked = look, clock, keys, asked
        self.rows = InboxRows()
        self.cursor = first
        self.marks: Marks = frozenset()
        self.card: PermissionCard | None = None
        self.in_request = False
        """Whether the request gets the keys that are otherwise the list's."""
        self.message = ""
        """The message about the last key."""
        self.head = TextLines(look, "surface", id="inbox-head")
        self.list = InboxList(look, clock)
        self.middle = Container(self.list, id="inbox-middle")
        self.nothing = Sentences(look, id="inbox-nothing")
        self.nothing.ground = "background"
        self.bar = KeyBar(look, id="inbox-keys")
        self.handlers = {
            Keys.INBOX_DOWN: lambda: self._point(step_cursor(self.rows, self.cursor, 1)),
            Keys.INBOX_UP: lambda: self._point(step_cursor(self.rows, self.cursor, -1)),
            Keys.INBOX_TOP: lambda: self._point(step_cursor(self.rows, self.cursor, -len(self.rows.shown))),
            Keys.INBOX_BOTTOM: lambda: self._point(step_cursor(self.rows, self.cursor, len(self.rows.shown))),
            Keys.MARK: lambda: self._mark(self.cursor),
            Keys.TO_REQUEST: lambda: self._set_in_request(not self.in_request),
            Keys.LEAVE_INBOX: self._leave,
        }

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.middle
        yield self.bar

    def on_mount(self) -> None:
        self.middle.mount(self.nothing)
        self.set_interval(TICK_S, self._tick)
        self._lay_out()
        self.update_requests(self.asked)

    @property
    def concerned(self) -> Collection[SessionId]:
        """The sessions that it needs updates of, whether they have requests or not."""
        return self.rows.sessions | ({self.card.request.session} if self.card is not None else frozenset())

    def update_requests(self, asked: PermissionSnapshot) -> None:
        self.asked = asked
        if not self.middle.is_attached:
            return  # `on_mount` shows them
        self.rows.update(asked, self.clock.ticking())
        self.marks = drop_closed(self.rows, self.marks)
        if self.card is not None:
            self.card.update_requests(asked)
        self._follow()

    # The card.

    def _follow(self) -> None:
        self.cursor = settle_cursor(self.rows, self.cursor, on_waiting=self.card is None)
        row = self.rows.row(self.cursor)
        if row is not None and row.waits and row.request.session in self.asked.cards:
            if self.card is None:
                self._open_card(row.request)
            elif not self.card.group and not self.card.is_busy:
                self.card.show(row.request)
        self._draw()

    def _open_card(self, request: Request) -> None:
        self.card = PermissionCard(
            self.look, self.clock, self.keys, self.asked, request, self._room, self._send, in_list=True
        )
        self.middle.mount(self.card)

    def _remove_card(self) -> None:
        """Remove the card, as nothing is left to answer; requests answered just now may still be listed as pending."""
        if self.card is not None:
            self.card.remove()
        self.card, self.cursor, self.marks, self.in_request = None, None, frozenset(), False
        self._draw()

    def _draw(self) -> None:
        self.list.show(self.rows.shown, self.cursor, self.marks, self._like())
        self.head.say(head_line(self.rows.shown, len(self.marks), self.message))
        self.nothing.display = self.card is None
        self.list.display = bool(self.rows.shown)
        self.nothing.say(*(NOT_YET if self.rows.waiting else NOTHING))
        self.bar.offered = bar(self.keys, self.look, has_card=self.card is not None, in_request=self.in_request)

    def _like(self) -> Marks:
        ready = [ask for ask in self.asked.waiting if ask.session in self.asked.cards]
        return find_markable(self.rows, self.cursor, self.marks, ready)

    def _tick(self) -> None:
        if self.rows.sweep(self.clock.ticking(), self.cursor if self.card is not None else None):
            self._draw()
        self.list.refresh()
        if self.card is not None:
            self.card.view.put()

    # Layout.

    def on_resize(self) -> None:
        self._lay_out()
        if self.card is not None:
            self.card.handle_resize()

    def _lay_out(self) -> None:
        beside = is_beside(self.app.size)
        self.set_class(beside, "-beside")
        self.list.styles.width = list_columns(self.app.size) if beside else "1fr"
        self.list.styles.height = "1fr" if beside else list_rows(self.app.size, len(self.rows.shown), tight=False)

    def _room(self, state: CardState, tight: bool) -> tuple[int, int]:
        """The card's space; a list above it gets what a card in this state leaves."""
        tight = tight or self.in_request or state.is_busy
        rows = list_rows(self.app.size, len(self.rows.shown), tight=tight)
        if not is_beside(self.app.size):
            self.list.styles.height = rows
        return room(self.app.size, rows)

    # Keys and clicks.

    def on_key(self, event: events.Key) -> None:
        action = None if self.card is not None and self.card.is_busy else self._find_action(event.key)
        if action is not None:
            event.stop()
            event.prevent_default()
            self._do(action)
        elif self.card is not None:
            self.card.press(event)

    def _find_action(self, key: str) -> Action | None:
        own = self.keys.action(key, KeyContext.INBOX)
        if own is not None and (not self.in_request or own in (Keys.TO_REQUEST, Keys.LEAVE_INBOX)):
            return own
        anywhere = self.keys.action(key, KeyContext.EVERYWHERE, KeyContext.LIST)
        return anywhere if anywhere is not None and anywhere in HERE else None

    def _do(self, action: Action) -> None:
        self.message = ""
        if self.card is not None and not self.card.is_armed:
            self.card.press_early()
        if not super().do(action):
            self.post_message(ActionRequested(action.id))
        self._draw()

    def do(self, action: Action) -> bool:
        if action in self.handlers:
            self._do(action)
        return action in self.handlers

    def _leave(self) -> None:
        """Go back to the list, else unmark all, else close; nothing is answered."""
        if self.in_request:
            self._set_in_request(False)
        elif self.marks:
            self._set_marks(frozenset())
        else:
            self.app.post_message(CardClosed(tuple(ask.id for ask in self.asked.waiting)))

    def _point(self, request: RequestId | None) -> None:
        self.cursor = request
        self._follow()

    def _set_in_request(self, in_request: bool) -> None:
        self.in_request = in_request and self.card is not None
        if self.card is not None:
            self.card.handle_resize()

    def _mark(self, request: RequestId | None) -> None:
        marks, self.message = toggle_mark(self.rows, request, self.marks, self._like())
        if marks != self.marks:
            self._set_marks(marks)

    def _set_marks(self, marks: Marks) -> None:
        """Show all marked requests on the card if there are two or more; else the request at the cursor."""
        self.marks = marks
        if self.card is None:
            return
        if len(marks) > 1:
            self.card.gather([row.request for row in self.rows.shown if row.request.id in marks])
        elif self.card.group:
            current = self.rows.row(self.cursor)
            self.card.show(current.request if current is not None and current.waits else self.card.request)

    def on_inbox_list_picked(self, message: InboxList.Picked) -> None:
        message.stop()
        self.message = ""
        if self.card is not None and self.card.is_busy:
            return
        if message.marks:
            self._mark(message.request)
        self._point(message.request)

    # Messages of the card.

    def on_permission_card_turned(self, message: PermissionCard.Turned) -> None:
        """The card moved to another request after an answer, or grouped similar ones."""
        message.stop()
        if self.card is None:
            return
        if self.card.group:
            self.marks = frozenset(self.card.group)
        else:
            self.cursor = self.card.request.id
            self.marks = self.marks if len(self.marks) == 1 else frozenset()
        self._draw()

    def on_permission_card_list_wanted(self, message: PermissionCard.ListWanted) -> None:
        message.stop()
        self._set_in_request(False)

    def on_card_closed(self, message: CardClosed) -> None:
        """Nothing is left to answer; or the user clicked "not now", which closes the inbox too."""
        if not message.put_off:
            message.stop()
            self._remove_card()
