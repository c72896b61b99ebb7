"""The permission card: one request at a time, in full, with keys that count only when the user can mean them.

The shown request never changes unnoticed. Enter never approves. Closing the card, waiting, or a key within the delay
after the card appeared or changed answers nothing.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from kasmon.model.commands import Answer
from kasmon.model.permission import Decision, Request, RequestId, SessionId
from kasmon.model.request_groups import find_group
from kasmon.model.transcript.request_text import sheet
from kasmon.tui.action import Action, Handlers, KeyContext
from kasmon.tui.clock import Clock
from kasmon.tui.keymap import ROWS, KeyMap, Keys
from kasmon.tui.messages import ActionRequested, CardClosed, SessionOpened
from kasmon.tui.permissions import question_picks, request_groups
from kasmon.tui.permissions.card.decision import CardDecision
from kasmon.tui.permissions.card.editor import CardEditor
from kasmon.tui.permissions.card.text import CHOOSING, CardMode, CardState, find_next_scope, reaches
from kasmon.tui.permissions.card.view import GAUGE_S, AvailableSize, CardView
from kasmon.tui.permissions.inbox.state import describe_outcome
from kasmon.tui.permissions.queue import PermissionSnapshot, place_in, turn
from kasmon.tui.permissions.similar_requests import find_most_similar
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Reader
from kasmon.tui.widgets.text_lines import press

if TYPE_CHECKING:
    from textual.widgets import Input

SendAnswer: TypeAlias = Callable[[SessionId, Answer], None]
CHANGED: Final = "The request changed and nothing was sent. This is the current request."
FOR_A_GROUP: Final = frozenset(
    {Keys.ALLOW_ONCE, Keys.ALLOW_ALWAYS, Keys.DENY, Keys.DENY_ALWAYS, Keys.DENY_AND_END, Keys.REACH, Keys.TOGETHER}
)
"""Actions that also count while several requests are shown as one list."""


class PermissionCard(Vertical):
    """Shows the pending requests one by one. Gets `PermissionSnapshot` by `update_requests` and keys by `press`.

    Calls *send* with each answer. Posts `CardClosed` when it is closed, and `SessionOpened` for a request that can only
    be answered in the agent's terminal.
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
        available: AvailableSize,
        send: SendAnswer,
        *,
        in_list: bool = False,
    ) -> None:
        super().__init__()
        self.asked = asked
        self._in_list, self._send = in_list, send
        self.view = CardView(look, clock, keys, available, self._build_state(first))
        self.editor = CardEditor(self, self.view)
        self._spelled_decision = Decision.ALLOW
        """What is answered once the letters are typed."""
        body = self.view.body
        self.scrolling: Handlers = {
            Keys.READ_ON: lambda: body.scroll_pages(1),
            Keys.READ_BACK: lambda: body.scroll_pages(-1),
            Keys.LINE_ON: lambda: body.scroll_rows(1),
            Keys.LINE_BACK: lambda: body.scroll_rows(-1),
            Keys.READ_TOP: lambda: body.scroll_rows(-(10**6)),
            Keys.READ_END: lambda: body.scroll_rows(10**6),
        }
        """They scroll the text, also before other keys count."""
        self.handlers: Handlers = {
            Keys.ALLOW_ONCE: lambda: self._allow(Decision.ALLOW),
            Keys.ALLOW_ALWAYS: lambda: self._allow(Decision.ALWAYS),
            Keys.DENY: lambda: self._deny(Decision.DENY),
            Keys.DENY_ALWAYS: lambda: self._deny(Decision.NEVER),
            Keys.DENY_AND_END: lambda: self._deny(Decision.CANCEL),
            Keys.REACH: self._reach,
            Keys.OWN_WORDS: lambda: self._pick("own_words"),
            Keys.TOGETHER: self._gather_similar,
            Keys.EDIT: self._edit,
            Keys.LATER: self._snooze,
            Keys.REQUEST_BACK: lambda: self.go(-1),
            Keys.REQUEST_ON: lambda: self.go(1),
            **self.scrolling,
            Keys.CLOSE: self._go_back,
        }

    def compose(self) -> ComposeResult:
        yield from self.view.widgets

    def on_mount(self) -> None:
        self.view.gauge = self.set_interval(GAUGE_S, self.view.update_armed)
        self.view.open(self._build_state(self.request))
        self.post_to_screen(self.Turned())

    @property
    def request(self) -> Request:
        return self.view.request

    @property
    def is_armed(self) -> bool:
        """Whether keys count, which the card shows."""
        return self.view.state.armed

    @property
    def decision(self) -> CardDecision:
        view = self.view
        return CardDecision(view.state, view.is_whole, view.keys, view.look.utf8)

    @property
    def is_busy(self) -> bool:
        """Whether the user is typing on it, or in the middle of an answer: then it gets every key."""
        return self.view.state.is_busy

    def handle_resize(self) -> None:
        """The available space changed, and with it what is visible: keys are ignored for a while."""
        self.view.change()

    def on_reader_moved(self, message: Reader.Moved) -> None:
        message.stop()
        self.view.put(read=self.view.body.seen_end)

    def post_to_screen(self, message: Message) -> None:
        """Post *message* directly to the screen, so that it is handled before the next key."""
        self.screen.post_message(message)

    @property
    def group(self) -> tuple[RequestId, ...]:
        """The requests shown as one list; empty while one is shown."""
        return tuple(entry.request.id for entry in self.view.state.group)

    def show(self, request: Request) -> None:
        if request.id != self.request.id or self.view.state.group:
            self.editor.end()
            self._open(request)

    def gather(self, requests: Sequence[Request]) -> None:
        """Show all of *requests*, which are alike; one answer then goes to each of them."""
        self.editor.end()
        if self.request not in requests:
            self.view.state = self._build_state(requests[0])
        listed = tuple(request_groups.build_entry(request, self.asked) for request in requests)
        self.view.state = msgspec.structs.replace(self.view.state, group=listed, left_out=())
        self.view.read_again()
        self.view.change(doing=CardMode.TOGETHER)
        self.post_to_screen(self.Turned())

    # Updates from outside.

    def update_requests(self, asked: PermissionSnapshot) -> None:
        """Update the pending requests; the shown one stays."""
        self.asked = asked
        state, waiting = self.view.state, len(asked.waiting)
        left_out = request_groups.find_left_out(state.group, asked.waiting)
        place = place_in(asked.waiting, self.request.id)
        is_void = len(left_out) == len(state.group) if state.group else place is None
        if is_void and state.doing is not CardMode.OVER:
            self._show_closed()
        elif not is_void:
            now = {
                "place": place or state.place,
                "waiting": waiting,
                "left_out": left_out,
                "alike": self._list_similar(),
                "similar": find_most_similar(self.request, asked),
            }
            if any(getattr(state, name) != value for name, value in now.items()):
                self.view.change(**now)
        newest = next((each for each in asked.waiting if each.id == self.request.id), self.request)
        if newest.asked_at != self.request.asked_at:  # the clock of its machine was measured again
            request = msgspec.structs.replace(self.request, asked_at=newest.asked_at)
            self.view.put(sheet=msgspec.structs.replace(self.view.state.sheet, request=request))
        session = asked.sessions.get(self.request.session)
        if session is not self.view.state.session:
            self.view.put(session=session)

    def _list_showable(self) -> list[Request]:
        """The pending requests that can be shown: the secrets to hide on their card are known."""
        return [ask for ask in self.asked.waiting if ask.session in self.asked.cards]

    def _list_similar(self) -> tuple[Request, ...]:
        return find_group(self.request, self._list_showable())

    # Keys.

    def press(self, event: events.Key) -> None:
        view = self.view
        if self.editor.box is not None:
            if event.key == "escape":
                event.stop()
                self.editor.stop()
            return
        event.stop()
        event.prevent_default()
        is_letter = view.state.doing is CardMode.SPELLING and event.is_printable
        meant = event.key if is_letter else self._resolve_key(event.key)
        if isinstance(meant, Action) and (scroll := self.scrolling.get(meant)) is not None:
            scroll()
            self.press_early()
        elif meant is Keys.QUIT:
            self.post_to_screen(ActionRequested(Keys.QUIT.id))
        elif meant is Keys.CLOSE:
            self._go_back()
        elif not self.is_armed:
            self._ignore_early_key()
        elif view.state.doing is CardMode.SPELLING:
            self._spell(event.character or "")
        else:
            view.ignore("")
            self._do(meant)

    def on_action_requested(self, message: ActionRequested) -> None:
        """A click on one of the card's lines: it counts like its key."""
        message.stop()
        if press(self.app, message.action):
            return
        what = ROWS.get(message.action, message.action)
        if what is Keys.CLOSE:
            self._go_back()
        elif self.is_armed and self.editor.box is None:
            self.view.ignore("")
            self._do(what)
        else:
            self._ignore_early_key()

    def press_early(self) -> None:
        """Note a key that counts for nothing: others count once none was pressed for a while."""
        self.view.arming.press(self.view.clock.ticking())

    def _ignore_early_key(self) -> None:
        """Handle a key during the delay: show why it is ignored, and wait until no key was pressed for a while."""
        self.press_early()
        if self.view.fits and self.editor.box is None:
            self.view.ignore("Wait: the card just changed. Keys work once it shows ready.")

    def _resolve_key(self, key: str) -> Action | str:
        """The action of *key*; the key itself if it has none, or moves among the options of a question."""
        keys = self.view.keys
        row = keys.action(key, KeyContext.CARD) or keys.action(key, KeyContext.EVERYWHERE)
        if row is None and key in keys.of("quit"):
            return Keys.QUIT  # a card that opened by itself must not prevent quitting
        is_choosing = bool(self.request.options) and self.view.state.doing is CardMode.READING
        return key if row is None or (is_choosing and key in CHOOSING) else row

    def _do(self, what: Action | str) -> None:
        """Run what a key or a click means: a row of the key table; else a key, or the name of a scope or an option."""
        state = self.view.state
        scopes = {each.action: each.scope for each in state.reaches}
        name, handler = (what.id, self.handlers.get(what)) if isinstance(what, Action) else (what, None)
        if state.doing is CardMode.OVER:
            self.go(1 if what is not Keys.REQUEST_BACK else -1)
        elif what is Keys.ALL_REQUESTS:
            self.post_to_screen(self.ListWanted())
        elif name in scopes:
            self._reach(scopes[name])
        elif state.group and what not in FOR_A_GROUP:
            self.view.ignore(self.decision.why_unused(name))
        elif name == "enter" and (not self.request.answerable or state.is_elsewhere):
            self.post_to_screen(SessionOpened(self.request.session))
        elif name == "enter":
            self._choose()
        elif handler is not None:
            handler()
        else:
            self._pick(name)

    def _gather_similar(self) -> None:
        if self.view.state.doing is CardMode.READING and self.view.state.alike:
            self.gather(self._list_similar())
        else:
            self.view.ignore("No similar pending requests.")

    def _go_back(self) -> None:
        """Esc: cancel the current step, else close the card; nothing is answered."""
        view, state = self.view, self.view.state
        if state.group and place_in(self.asked.waiting, self.request.id) is None:
            self._show_closed()
        elif state.doing in (CardMode.SPELLING, CardMode.REVIEWING, CardMode.TOGETHER):
            view.state = msgspec.structs.replace(state, group=(), left_out=(), edited_input=None)
            view.read_again()
            view.change(doing=CardMode.READING, spelled="", wrong="")
            self.post_to_screen(self.Turned())
        else:
            self.post_to_screen(CardClosed(tuple(ask.id for ask in self.asked.waiting)))

    # Answers.

    def _allow(self, decision: Decision) -> None:
        if why := self.decision.why_not_allow(decision):
            self.view.ignore(why)
        elif self.view.state.sheet.hidden:
            self._spelled_decision = self.decision.offered(decision)
            self.view.change(doing=CardMode.SPELLING, spelled="")
        else:
            self._answer(self.decision.offered(decision))

    def _deny(self, decision: Decision) -> None:
        """Deny once or always; first ask for a reason if the agent accepts one."""
        state = self.view.state
        if why := self.decision.why_not_deny(decision):
            self.view.ignore(why)
        elif decision is not Decision.CANCEL and (state.reads_reasons or state.group):
            self.editor.write_reason(decision)
        elif not state.group:
            self._answer(decision)

    def _edit(self) -> None:
        if why := self.decision.why_not_edit():
            self.view.ignore(why)
        else:
            self.editor.write_edit()

    def _reach(self, wanted: str = "") -> None:
        """Set the rule's scope to *wanted*; to the next scope if empty."""
        state = self.view.state
        if why := self.decision.why_no_scope():
            self.view.ignore(why)
        elif not wanted:
            self.view.change(scope=find_next_scope(state.scope, state.reaches))
        elif wanted != state.scope:
            self.view.change(scope=wanted)

    def _spell(self, character: str) -> None:
        letters, spelled = self.view.state.sheet.letters, self.view.state.spelled + character.casefold()
        if spelled == letters:
            self._answer(self._spelled_decision)
        else:
            self.view.put(spelled=spelled if letters.startswith(spelled) else "")

    def _pick(self, key: str) -> None:
        if self.view.state.doing is not CardMode.READING:
            return
        before = self.view.state.picks
        picks, writes = question_picks.press_key(self.request, before, key)
        if picks == before and not writes:
            self.view.ignore(self.decision.why_unused(key))
            return
        self.view.put(picks=picks)
        if writes:
            self.editor.write_words()

    def _choose(self) -> None:
        labels = question_picks.labels(self.request, self.view.state.picks)
        text = question_picks.words(self.request, self.view.state.picks)
        if why := self.decision.why_not_choose(bool(labels or text)):
            self.view.ignore(why)
        else:
            self._answer(Decision.CHOOSE, labels=labels, text=text)

    def on_input_submitted(self, event: "Input.Submitted") -> None:
        event.stop()
        state, text = self.view.state, event.value.strip()
        if not self.view.fits:
            return
        self.editor.end()
        if state.doing is CardMode.REASONING:
            self._answer(state.saying, text)
        else:
            picks = question_picks.write_answer(self.request, state.picks, text)
            self.view.change(doing=CardMode.READING, picks=picks)

    def _snooze(self) -> None:
        """Snooze the request; if it is snoozed already, go to the next."""
        if self.request.later:
            self.go(1)
        else:
            self._answer(Decision.LATER)

    def _answer(self, decision: Decision, reason: str = "", labels: tuple[str, ...] = (), text: str = "") -> None:
        """Show the next request, and send the answer."""
        answers = [*self.decision.answers(decision, reason, labels, text)]
        self.go(1, answered=frozenset(answer.request for _, answer in answers))
        for session, answer in answers:
            self._send(session, answer)

    # From one request to the next.

    def go(self, by: int, answered: frozenset[RequestId] = frozenset()) -> None:
        """Show the next or previous request; close the card if only those just *answered* are left."""
        waiting = [ask for ask in self._list_showable() if ask.id != self.request.id and ask.id not in answered]
        if not waiting:
            self.post_to_screen(CardClosed(()))
            return
        if answered and (own := [ask for ask in waiting if ask.session == self.request.session and not ask.later]):
            waiting = own  # after an answer, never show another session's request to a user who may still be typing
        behind = [ask for ask in waiting if turn(ask) > turn(self.request)]
        before = [ask for ask in waiting if ask not in behind]
        self._open((behind or before)[0] if by > 0 else (before or behind)[-1])

    def _open(self, request: Request) -> None:
        self.editor.forget()
        self.view.open(self._build_state(request))
        self.post_to_screen(self.Turned())

    def _show_closed(self) -> None:
        """The shown request was answered elsewhere, or withdrawn."""
        self.editor.end()
        session = self.asked.sessions.get(self.request.session)
        closed = next((one for one in session.closed if one.id == self.request.id), None) if session else None
        self.view.body.dim(True)
        self.view.change(doing=CardMode.OVER, over=describe_outcome(closed, session), edited_input=None)

    def _build_state(self, request: Request) -> CardState:
        context = self.asked.card_of(request)
        session = self.asked.sessions.get(request.session)
        before = self.asked.changed.get(request.session, request.id)
        return CardState(
            sheet=sheet(request, context.secrets),
            session=session,
            reaches=reaches(session, context.project),
            alike=find_group(request, self._list_showable()),
            place=place_in(self.asked.waiting, request.id) or 1,
            waiting=max(1, len(self.asked.waiting)),
            in_list=self._in_list,
            here=None if self.asked.here is None else self.asked.sessions.get(self.asked.here),
            is_other=self.asked.here != request.session,
            is_listed=request.session in self.asked.listed,
            similar=find_most_similar(request, self.asked),
            wrong="" if before == request.id else CHANGED,
        )
