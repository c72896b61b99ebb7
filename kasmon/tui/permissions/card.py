"""The permission card: one request at a time, in full, with keys that count only when the user can mean them.

The shown request never changes unnoticed. Enter never approves. Closing the card, waiting, or a key within the delay
after the card appeared or changed answers nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from textual import events
from textual.message import Message

from kasmon.model.permission import Decision, Request, RequestId
from kasmon.model.request_groups import alike
from kasmon.tui.action import KeyContext
from kasmon.tui.clock import Clock
from kasmon.tui.keymap import KeyMap
from kasmon.tui.messages import ActionRequested, CardClosed, SessionOpened
from kasmon.tui.permissions import request_groups
from kasmon.tui.permissions.card_answer import AnswerableCard
from kasmon.tui.permissions.card_text import CHOOSING, CardMode, CardState
from kasmon.tui.permissions.card_view import AvailableSize
from kasmon.tui.permissions.inbox_state import how_it_closed
from kasmon.tui.permissions.queue import PermissionSnapshot, place_in, turn
from kasmon.tui.permissions.request_text import sheet
from kasmon.tui.permissions.rule_scopes import reaches
from kasmon.tui.permissions.similar_requests import most_similar
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.text_lines import press

CHANGED: Final = "The request changed and nothing was sent. This is the current request."
SCROLLING: Final = frozenset({"read_on", "read_back", "line_on", "line_back", "read_top", "read_end"})
"""Actions that scroll the text, also before other keys count."""
FOR_A_GROUP: Final = frozenset(
    {"allow_once", "allow_always", "deny", "deny_always", "deny_and_end", "reach", "together"}
)
"""Actions that also count while several requests are shown as one list."""


class PermissionCard(AnswerableCard):
    """Shows the pending requests one by one. Gets `PermissionSnapshot` by `learn` and keys by `press`.

    Posts `CommandRequested` for each answer, `CardClosed` when it is closed, and `SessionOpened` for a request that can
    only be answered in the agent's terminal.
    """

    class Turned(Message):
        """The card shows another request, or another group of requests."""

    class ListWanted(Message):
        """The user asks for the list of all pending requests."""

    def __init__(
        self,
        look: ThemeStyles,
        clock: Clock,
        keys: KeyMap,
        asked: PermissionSnapshot,
        first: Request,
        room: AvailableSize,
        *,
        in_list: bool = False,
    ) -> None:
        self.asked = asked
        self._in_list = in_list
        super().__init__(look, clock, keys, room, self._build_state(first))
        self.handlers: Mapping[str, Callable[[], object]] = {
            "allow_once": lambda: self._allow(Decision.ALLOW),
            "allow_always": lambda: self._allow(Decision.ALWAYS),
            "deny": lambda: self._deny(Decision.DENY),
            "deny_always": lambda: self._deny(Decision.NEVER),
            "deny_and_end": lambda: self._deny(Decision.CANCEL),
            "reach": self._reach,
            "own_words": lambda: self._pick("own_words"),
            "together": self._gather_similar,
            "edit": self._write_edit,
            "later": self._snooze,
            "request_back": lambda: self.go(-1),
            "request_on": lambda: self.go(1),
            "read_on": lambda: self.body.scroll_pages(1),
            "read_back": lambda: self.body.scroll_pages(-1),
            "line_on": lambda: self.body.scroll_rows(1),
            "line_back": lambda: self.body.scroll_rows(-1),
            "read_top": lambda: self.body.scroll_rows(-(10**6)),
            "read_end": lambda: self.body.scroll_rows(10**6),
            "close": self._go_back,
        }
        """The handler of each row of the key table, by the action's id."""

    def on_mount(self) -> None:
        self._open(self.request)

    @property
    def is_busy(self) -> bool:
        """Whether the user is typing on it, or in the middle of an answer: then it gets every key."""
        return self._state.is_busy

    @property
    def together(self) -> tuple[RequestId, ...]:
        """The requests shown as one list; empty while one is shown."""
        return tuple(entry.request.id for entry in self._state.together)

    def show(self, request: Request) -> None:
        """Show *request* alone."""
        if request.id != self.request.id or self._state.together:
            self._end_writing()
            self._open(request)

    def gather(self, requests: Sequence[Request]) -> None:
        """Show all of *requests*, which are alike; one answer then goes to each of them."""
        self._end_writing()
        if self.request not in requests:
            self._state = self._build_state(requests[0])
        listed = request_groups.entries(requests, self.asked.sessions, self.asked.known)
        self._state = msgspec.structs.replace(self._state, together=listed, left_out=())
        self._read_again()
        self._change(doing=CardMode.TOGETHER)
        self.tell(self.Turned())

    # Updates from outside.

    def learn(self, asked: PermissionSnapshot) -> None:
        """Update the pending requests; the shown one stays."""
        self.asked = asked
        state, waiting = self._state, len(asked.waiting)
        left_out = request_groups.left_out(state.together, asked.waiting)
        place = place_in(asked.waiting, self.request.id)
        is_void = len(left_out) == len(state.together) if state.together else place is None
        if is_void and state.doing is not CardMode.OVER:
            self._show_closed()
        elif not is_void:
            now = {
                "place": place or state.place,
                "waiting": waiting,
                "left_out": left_out,
                "alike": self._list_similar(),
                "similar": most_similar(self.request, asked),
            }
            if any(getattr(state, name) != value for name, value in now.items()):
                self._change(**now)
        session = asked.sessions.get(self.request.session)
        if session is not self._state.session:
            self._put(session=session)

    def _list_showable(self) -> list[Request]:
        """The pending requests that can be shown: the secrets to hide on their card are known."""
        return [ask for ask in self.asked.waiting if ask.session in self.asked.known]

    def _list_similar(self) -> tuple[Request, ...]:
        return alike(self.request, self._list_showable())

    # Keys.

    def press(self, event: events.Key) -> None:
        """Handle a key pressed on the card's screen."""
        if self._writing is not None:
            if event.key == "escape":
                event.stop()
                self._stop_writing()
            return
        event.stop()
        event.prevent_default()
        is_letter = self._state.doing is CardMode.SPELLING and event.is_printable
        meant = event.key if is_letter else self._resolve_key(event.key)
        if self._scrolls(meant):
            self.arming.press(self.clock.ticking())
        elif meant == "quit":
            self.tell(ActionRequested("quit"))
        elif meant == "close":
            self._go_back()
        elif not self.is_armed:
            self._ignore_early_key()
        elif self._state.doing is CardMode.SPELLING:
            self._spell(event.character or "")
        else:
            self.ignore("")
            self._do(meant)

    def on_action_requested(self, message: ActionRequested) -> None:
        """A click on one of the card's lines: it counts like its key."""
        message.stop()
        if press(self.app, message.action):
            return
        if message.action == "close":
            self._go_back()
        elif self.is_armed and self._writing is None:
            self.ignore("")
            self._do(message.action)
        else:
            self._ignore_early_key()

    def _ignore_early_key(self) -> None:
        """Handle a key during the delay: show why it is ignored, and wait until no key was pressed for a while."""
        self.arming.press(self.clock.ticking())
        if self._fits and self._writing is None:
            self.ignore("Wait: the card just changed. Keys work once it shows ready.")

    def _resolve_key(self, key: str) -> str:
        """The action of *key*; the key itself if it has none, or moves among the options of a question."""
        row = self.keys.action(key, KeyContext.CARD) or self.keys.action(key, KeyContext.EVERYWHERE)
        if row is None and key in self.keys.of("quit"):
            return "quit"  # a card that opened by itself must not prevent quitting
        is_choosing = bool(self.request.options) and self._state.doing is CardMode.READING
        return key if row is None or (is_choosing and key in CHOOSING) else row.id

    def _scrolls(self, action: str) -> bool:
        """Whether *action* scrolled the text."""
        if action in SCROLLING:
            self.handlers[action]()
        return action in SCROLLING

    def _do(self, what: str) -> None:
        """Handle a key on the armed card."""
        if self._state.doing is CardMode.OVER:
            self.go(1) if what != "request_back" else self.go(-1)
            return
        if what == "all_requests":
            self.tell(self.ListWanted())
        elif what.startswith("reach-"):
            self._reach(what.removeprefix("reach-"))
        elif self._state.together and what not in FOR_A_GROUP:
            self.ignore(self._describe_unused_key(what))
        elif what == "enter" and (not self.request.answerable or self._state.is_elsewhere):
            self.tell(SessionOpened(self.request.session))
        elif what == "enter":
            self._choose()
        elif what in self.handlers and what not in SCROLLING:
            self.handlers[what]()
        else:
            self._pick(what)

    def _gather_similar(self) -> None:
        if self._state.doing is CardMode.READING and self._state.alike:
            self.gather(self._list_similar())
        else:
            self.ignore("No similar pending requests.")

    def _go_back(self) -> None:
        """Esc: cancel the current step, else close the card; nothing is answered."""
        if self._state.together and place_in(self.asked.waiting, self.request.id) is None:
            self._show_closed()
        elif self._state.doing in (CardMode.SPELLING, CardMode.REVIEWING, CardMode.TOGETHER):
            self._edited = None
            self._state = msgspec.structs.replace(self._state, together=(), left_out=())
            self._read_again()
            self._change(doing=CardMode.READING, spelled="", wrong="", edited=False)
            self.tell(self.Turned())
        else:
            self.tell(CardClosed(tuple(ask.id for ask in self.asked.waiting)))

    # From one request to the next.

    def go(self, by: int, answered: frozenset[RequestId] = frozenset()) -> None:
        """Show the next or previous request; close the card if only those just *answered* are left."""
        waiting = [ask for ask in self._list_showable() if ask.id != self.request.id and ask.id not in answered]
        if not waiting:
            self.tell(CardClosed(()))
            return
        if answered and (own := [ask for ask in waiting if ask.session == self.request.session and not ask.later]):
            waiting = own  # after an answer, never show another session's request to a user who may still be typing
        behind = [ask for ask in waiting if turn(ask) > turn(self.request)]
        before = [ask for ask in waiting if ask not in behind]
        self._open((behind or before)[0] if by > 0 else (before or behind)[-1])

    def _open(self, request: Request) -> None:
        self._edited = self._draft = None
        self._state = self._build_state(request)
        self.body.dim(False)
        self._expect_room()
        self.body.read(self._rows)
        self._change(read=self.body.seen_end)
        self._expect_room()
        self._put()
        self.tell(self.Turned())

    def _show_closed(self) -> None:
        """The shown request was answered elsewhere, or withdrawn."""
        self._end_writing()
        self._edited = None
        session = self.asked.sessions.get(self.request.session)
        closed = next((one for one in session.closed if one.id == self.request.id), None) if session else None
        self.body.dim(True)
        self._change(doing=CardMode.OVER, over=how_it_closed(closed, session))

    def _build_state(self, request: Request) -> CardState:
        known = self.asked.known.get(request.session, ())
        session = self.asked.sessions.get(request.session)
        before = self.asked.changed.get(request.session, request.id)
        return CardState(
            sheet=sheet(request, known),
            session=session,
            reaches=reaches(session, self.asked.projects.get(request.session, "")),
            alike=alike(request, self._list_showable()),
            place=place_in(self.asked.waiting, request.id) or 1,
            waiting=max(1, len(self.asked.waiting)),
            in_list=self._in_list,
            here=None if self.asked.here is None else self.asked.sessions.get(self.asked.here),
            is_other=self.asked.here != request.session,
            is_listed=request.session in self.asked.listed,
            similar=most_similar(request, self.asked),
            wrong="" if before == request.id else CHANGED,
        )
