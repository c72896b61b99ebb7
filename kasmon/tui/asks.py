"""The card that asks a person: one request at a time, all of it, and keys that count only when they are meant.

The request that is shown never changes under the person. Enter never approves. Nothing is answered by closing the card,
by waiting, or by a key that came within the deaf time after the card appeared or changed.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.timer import Timer
from textual.widget import Widget

from kasmon.model.command import Answer
from kasmon.model.permission import Decision, Request, RequestId, SessionId
from kasmon.model.rule import Scope
from kasmon.model.session import Session
from kasmon.model.text import Line
from kasmon.tui import ask_alike, ask_pick
from kasmon.tui.ask_closed import how_it_closed
from kasmon.tui.ask_edit import Unfinished, can_edit, editable, edited_input
from kasmon.tui.ask_layout import laid_out
from kasmon.tui.ask_reach import following, reaches
from kasmon.tui.ask_text import sheet
from kasmon.tui.ask_words import CHOOSING, CardState, Doing
from kasmon.tui.asking import Arming, place_in
from kasmon.tui.clock import Clock
from kasmon.tui.keys import Keys, Where
from kasmon.tui.lines import Lines
from kasmon.tui.look import Look
from kasmon.tui.messages import ActionWanted, CardLeft, CommandWanted, SessionOpened
from kasmon.tui.overlay import Overlay
from kasmon.tui.reader import Reader
from kasmon.tui.world import Tell

GAUGE_S: Final = 0.1
STANDING: Final = frozenset({Decision.ALWAYS, Decision.NEVER})
"""Answers that make a rule."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """All that a card may need to know, at one moment."""

    waiting: tuple[Request, ...] = ()
    sessions: Mapping[SessionId, Session] = {}
    known: Mapping[SessionId, tuple[str, ...]] = {}
    """Secret values of each session."""
    projects: Mapping[SessionId, str] = {}
    """The folder of each session's project."""


class AskCard(Overlay):
    """Shows the requests that wait, one by one. Gets `Asked` by `learn`; posts `CommandWanted` and `CardLeft`."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, look: Look, clock: Clock, keys: Keys, asked: Asked, first: Request) -> None:
        super().__init__()
        self.look, self.clock, self.keys = look, clock, keys
        self.asked = asked
        self.arming = Arming(clock.ticking())
        self.head = Lines(look, id="card-head")
        self.body = Reader(look, ground="background", margin=1)
        self.notes = Lines(look, id="card-notes")
        self.choices = Lines(look, id="card-choices")
        self._state = self._fresh(first)
        self._writing: Widget | None = None
        self._edited: dict[str, Any] | None = None
        self._draft: str | None = None
        self._spelling_for: Decision = Decision.ALLOW
        self._gauge: Timer | None = None
        self._fits, self._is_whole, self._body_rows = True, True, 0

    def compose(self) -> ComposeResult:
        with Vertical(id="card"):
            yield self.head
            yield self.body
            yield self.notes
            yield self.choices

    def on_mount(self) -> None:
        self._gauge = self.set_interval(GAUGE_S, self._look_at_clock)
        self._open(self._state.sheet.request)

    @property
    def request(self) -> Request:
        """The one that is shown."""
        return self._state.sheet.request

    @property
    def is_armed(self) -> bool:
        """Whether keys count, and the card says so."""
        return self._state.armed

    def dress(self, look: Look) -> None:
        """Draw with *look* from now on."""
        self.look = self.head.look = self.body.look = self.notes.look = self.choices.look = look
        self.body.refresh()
        self._put()

    # What comes from outside.

    def learn(self, asked: Asked) -> None:
        """The requests that wait are these now; the one that is shown stays."""
        self.asked = asked
        state, waiting = self._state, len(asked.waiting)
        left_out = ask_alike.left_out(state.together, asked.waiting)
        place = place_in(asked.waiting, self.request.id)
        is_void = len(left_out) == len(state.together) if state.together else place is None
        if is_void and state.doing is not Doing.OVER:
            self._over()
        elif not is_void:
            now = {"place": place or state.place, "waiting": waiting, "left_out": left_out, "alike": self._alike()}
            if any(getattr(state, name) != value for name, value in now.items()):
                self._change(**now)
        session = asked.sessions.get(self.request.session)
        if session is not self._state.session:
            self._put(session=session)

    def _ready(self) -> list[Request]:
        """What waits and can be shown: it is known what must not stand on the card."""
        return [ask for ask in self.asked.waiting if ask.session in self.asked.known]

    def _alike(self) -> tuple[Request, ...]:
        return ask_alike.alike(self.request, self._ready())

    def on_resize(self, event: events.Resize) -> None:
        self._change()

    def on_reader_moved(self, message: Reader.Moved) -> None:
        message.stop()
        self._put(below=self.body.below, read=self.body.seen_end)

    # Keys.

    def on_key(self, event: events.Key) -> None:
        if self._writing is not None:
            if event.key == "escape":
                event.stop()
                self._stop_writing()
            return
        event.stop()
        event.prevent_default()
        is_letter = self._state.doing is Doing.SPELLING and event.is_printable
        meant = event.key if is_letter else self._meant(event.key)
        if self._scrolls(meant):
            self.arming.press(self.clock.ticking())
        elif meant == "close":
            self._back()
        elif not self.is_armed:
            self.arming.press(self.clock.ticking())
        elif self._state.doing is Doing.SPELLING:
            self._spell(event.character or "")
        else:
            self._do(meant)

    def on_action_wanted(self, message: ActionWanted) -> None:
        """A click on one of the card's lines: it counts like its key."""
        message.stop()
        if message.action == "close":
            self._back()
        elif self.is_armed and self._writing is None:
            self._do(message.action)
        else:
            self.arming.press(self.clock.ticking())

    def _meant(self, key: str) -> str:
        """The action of *key*; the key itself where it means none, or chooses among the answers of a question."""
        row = self.keys.action(key, Where.CARD)
        is_choosing = bool(self.request.options) and self._state.doing is Doing.READING
        return key if row is None or (is_choosing and key in CHOOSING) else row.id

    def _scrolls(self, action: str) -> bool:
        """Whether *action* moved what is shown."""
        match action:
            case "read_on" | "read_back":
                self.body.scroll_pages(1 if action == "read_on" else -1)
            case "line_on" | "line_back":
                self.body.scroll_rows(1 if action == "line_on" else -1)
            case "read_top" | "read_end":
                self.body.scroll_rows(10**6 if action == "read_end" else -(10**6))
            case _:
                return False
        return True

    def _do(self, what: str) -> None:
        """The armed card's answer to a key."""
        if self._state.doing is Doing.OVER:
            self._go(1) if what != "request_back" else self._go(-1)
            return
        match what:
            case "allow_once":
                self._allow(Decision.ALLOW)
            case "allow_always":
                self._allow(Decision.ALWAYS)
            case "deny" if Decision.DENY in self.request.choices:
                self._write_reason(Decision.DENY)
            case "deny_always" if Decision.NEVER in self.request.choices and self._may_rule():
                self._write_reason(Decision.NEVER)
            case "deny_and_end" if Decision.CANCEL in self.request.choices and not self._state.together:
                self._answer(Decision.CANCEL)
            case "reach" if STANDING.intersection(self.request.choices) and self._may_rule():
                self._change(scope=following(self._state.scope, self._state.reaches))
            case "reach-session" | "reach-plan" | "reach-project" if self._may_rule():
                self._reach(what.removeprefix("reach-"))
            case "together" if self._state.doing is Doing.READING and self._state.alike:
                self._list()
            case _ if self._state.together:
                pass
            case "edit":
                self._write_edit()
            case "later":
                self._answer(Decision.LATER)
            case "request_back":
                self._go(-1)
            case "request_on":
                self._go(1)
            case "enter" if not self.request.answerable:
                self.post_message(SessionOpened(self.request.session))
            case "enter":
                self._choose()
            case _:
                self._pick(what)

    def _back(self) -> None:
        """Esc: out of what is being done, else out of the card; nothing is answered."""
        if self._state.together and place_in(self.asked.waiting, self.request.id) is None:
            self._over()
        elif self._state.doing in (Doing.SPELLING, Doing.REVIEWING, Doing.TOGETHER):
            self._edited = None
            self._state = msgspec.structs.replace(self._state, together=(), left_out=())
            self._read_again()
            self._change(doing=Doing.READING, spelled="", wrong="", edited=False)
        else:
            self.post_message(CardLeft(tuple(ask.id for ask in self.asked.waiting)))

    # Answers.

    def may_approve(self) -> str:
        """Why this request cannot be approved right now; empty if it can."""
        return "" if self._state.read else "read to the end first"

    def _allow(self, decision: Decision) -> None:
        edited = self._edited is not None
        offered = Decision.EDIT if edited else decision
        if offered not in self.request.choices or (edited and decision is Decision.ALWAYS) or self.may_approve():
            return
        if decision is Decision.ALWAYS and not self._may_rule():
            return
        if self._state.sheet.hidden:
            self._spelling_for = offered
            self._change(doing=Doing.SPELLING, spelled="")
        else:
            self._answer(offered)

    def _may_rule(self) -> bool:
        """Whether a rule may be made: it holds no secret, and all of it is in sight with how far it reaches."""
        return self._state.may_rule and self._is_whole

    def _reach(self, wanted: str) -> None:
        scope: Scope | None = next((each.scope for each in self._state.reaches if each.scope == wanted), None)
        if scope is not None and scope != self._state.scope:
            self._change(scope=scope)

    def letters(self) -> str:
        """What has to be typed where there are hidden characters."""
        name = self.request.tool.casefold()
        return "".join(each for each in name if each.isascii() and each.isalnum())[:3] or "yes"

    def _spell(self, character: str) -> None:
        spelled = self._state.spelled + character.casefold()
        if spelled == self.letters():
            self._answer(self._spelling_for)
        elif self.letters().startswith(spelled):
            self._put(spelled=spelled)
        else:
            self._put(spelled="")

    def _pick(self, key: str) -> None:
        if self._state.doing is not Doing.READING:
            return
        picks, writes = ask_pick.pressed(self.request, self._state.picks, key)
        self._put(picks=picks)
        if writes:
            self._write_words()

    def _choose(self) -> None:
        labels = ask_pick.labels(self.request, self._state.picks)
        if Decision.CHOOSE in self.request.choices and labels and not self.may_approve():
            self._answer(Decision.CHOOSE, labels=labels)

    def _answer(self, decision: Decision, reason: str = "", labels: tuple[str, ...] = ()) -> None:
        """Answer what is shown: one request, or each of a list that waits as it was read."""
        state = self._state
        listed = [entry.request for entry in state.together if entry not in state.left_out]
        requests = listed if state.together else [self.request]
        for request in requests:
            answer = Answer(
                request=request.id,
                digest=request.digest,
                decision=decision,
                reason=reason,
                input=self._edited if decision is Decision.EDIT else None,
                labels=labels,
                scope=state.scope if decision in STANDING else "session",
            )
            self.post_message(CommandWanted(Tell(session=request.session, wish=answer)))
        self._go(1, answered=frozenset(request.id for request in requests))

    # Several at once.

    def _list(self) -> None:
        """Show all of the requests that are alike; what is said then is said to each of them."""
        listed = ask_alike.entries(self._alike(), self.asked.sessions, self.asked.known)
        self._state = msgspec.structs.replace(self._state, together=listed, left_out=())
        self._read_again()
        self._change(doing=Doing.TOGETHER)

    # Writing: a reason, an answer, or another input.

    def _write_reason(self, decision: Decision) -> None:
        from textual.widgets import Input  # heavy, and seldom needed

        box = Input(placeholder="Why not? The agent is told. Empty is fine.", id="card-reason")
        self._state = msgspec.structs.replace(self._state, saying=decision)
        self._begin_writing(Doing.REASONING, box)

    def _write_words(self) -> None:
        from textual.widgets import Input  # heavy, and seldom needed

        box = Input(self._state.picks.own, placeholder="Your own words. Empty for none.", id="card-words")
        self._begin_writing(Doing.WORDING, box)

    def on_input_submitted(self, event: Any) -> None:
        event.stop()
        if not self._fits:
            return
        said = str(event.value).strip()
        is_reason = self._state.doing is Doing.REASONING
        self._end_writing()
        if is_reason:
            self._answer(self._state.saying, reason=said)
        else:
            picks = ask_pick.worded(self.request, self._state.picks, said)
            self._change(doing=Doing.READING, picks=picks)

    def _write_edit(self) -> None:
        if Decision.EDIT not in self.request.choices or not can_edit(self.request) or self.may_approve():
            return
        from textual.widgets import TextArea  # heavy, and seldom needed

        text = editable(self.request, self._known()) if self._draft is None else self._draft
        box = TextArea(text, id="card-edit", soft_wrap=True)
        self._begin_writing(Doing.EDITING, box)

    def _begin_writing(self, doing: Doing, box: Widget) -> None:
        box.cursor_blink = False  # type: ignore[attr-defined]
        self._writing = box
        self.query_one("#card").mount(box, before=self.choices)
        self.set_focus(box)  # now: the next key may be there already
        self._put(doing=doing, wrong="")

    def _stop_writing(self) -> None:
        """Esc in a box: a reason is dropped, an edit is looked at before it counts."""
        box = self._writing
        if self._state.doing is Doing.EDITING and box is not None:
            text = str(box.text)  # type: ignore[attr-defined]
            try:
                self._edited = edited_input(self.request, text, self._known())
            except Unfinished as unfinished:
                self._put(wrong=str(unfinished))
                return
            self._draft = text
            self._end_writing()
            self._review()
        else:
            self._end_writing()
            before = Doing.TOGETHER if self._state.together else Doing.REVIEWING if self._edited else Doing.READING
            self._change(doing=before)

    def _end_writing(self) -> None:
        if self._writing is not None:
            self._writing.remove()
            self._writing = None
            self.set_focus(None)

    def _review(self) -> None:
        if self._edited == self.request.input:
            self._edited = None
            self._change(doing=Doing.READING, wrong="", edited=False)
            return
        changed = msgspec.structs.replace(self.request, input=self._edited or {}, shown="", is_diff=False)
        edited = sheet(changed, self._known())
        self.body.read(edited.rows)
        self._change(doing=Doing.REVIEWING, wrong="", edited=True, read=self.body.seen_end, below=self.body.below)

    def _read_again(self) -> None:
        self.body.read(self._rows)
        self._put(read=self.body.seen_end, below=self.body.below)

    def _rows(self, width: int) -> list[Line]:
        """What there is to read: the request, with its answers where they stand nowhere else, or the whole list."""
        if self._state.together:
            return ask_alike.rows(self._state.together, width)
        return self._state.sheet.rows(width, with_options=not self._is_whole)

    # From one to the next.

    def _go(self, by: int, answered: frozenset[RequestId] = frozenset()) -> None:
        """Show the request after or before this one; leave when there is none but those just *answered*."""
        waiting = [ask for ask in self._ready() if ask.id != self.request.id and ask.id not in answered]
        if not waiting:
            self.post_message(CardLeft(()))
            return
        later = [ask for ask in waiting if (ask.asked_at, ask.id) > (self.request.asked_at, self.request.id)]
        earlier = [ask for ask in waiting if ask not in later]
        following = (later or earlier)[0] if by > 0 else (earlier or later)[-1]
        self._open(following)

    def _open(self, request: Request) -> None:
        self._edited = self._draft = None
        self._state = self._fresh(request)
        self.body.dim(False)
        self.body.read(self._rows)
        self._change(read=self.body.seen_end, below=self.body.below)

    def _over(self) -> None:
        """The shown request was answered elsewhere, or withdrawn."""
        self._end_writing()
        self._edited = None
        session = self.asked.sessions.get(self.request.session)
        closed = next((one for one in session.closed if one.id == self.request.id), None) if session else None
        self.body.dim(True)
        self._change(doing=Doing.OVER, over=how_it_closed(closed, session))

    # Drawing.

    def _fresh(self, request: Request) -> CardState:
        known = self.asked.known.get(request.session, ())
        session = self.asked.sessions.get(request.session)
        return CardState(
            sheet=sheet(request, known),
            session=session,
            reaches=reaches(session, self.asked.projects.get(request.session, "")),
            alike=ask_alike.alike(request, self._ready()),
            place=place_in(self.asked.waiting, request.id) or 1,
            waiting=max(1, len(self.asked.waiting)),
        )

    def _known(self) -> tuple[str, ...]:
        return self._state.sheet.known

    def _change(self, **changes: Any) -> None:
        """What is shown is another now: deaf again."""
        self.arming.change(self.clock.ticking())
        if self._gauge is not None:
            self._gauge.resume()
        self._put(armed=False, **changes)

    def _put(self, **changes: Any) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)
        size = self.app.size.width, self.app.size.height
        laid = laid_out(self._state, self.look, self.keys, self.letters(), self.clock.now(), size)
        moved = laid.is_whole != self._is_whole and bool(self.request.options) and not self._edited
        self._fits, self._is_whole = laid.fits, laid.is_whole
        self.head.say(*laid.head)
        self.notes.say(*laid.notes)
        self.choices.say(*laid.choices)
        if laid.body_rows != self._body_rows:
            self._body_rows = self.body.styles.max_height = laid.body_rows
        if moved:
            self._read_again()

    def _look_at_clock(self) -> None:
        armed = self.arming.look(self.clock.ticking()) and self._fits
        if armed != self._state.armed:
            self._put(armed=armed)
        if armed and self._gauge is not None:
            self._gauge.pause()
