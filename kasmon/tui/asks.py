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

from kasmon.clean import clean_line
from kasmon.model.command import Answer
from kasmon.model.permission import Closed, Decision, Request, SessionId
from kasmon.model.session import Session
from kasmon.tui.ask_text import Unfinished, can_edit, editable, edited_input, sheet
from kasmon.tui.ask_words import CardState, Doing, choice_lines, head_lines, note_lines
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
BORDER: Final = 2
LEAST_ROWS: Final = 3


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """All that a card may need to know, at one moment."""

    waiting: tuple[Request, ...] = ()
    sessions: Mapping[SessionId, Session] = {}
    known: Mapping[SessionId, tuple[str, ...]] = {}
    """Secret values of each session."""


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
        place = place_in(asked.waiting, self.request.id)
        if place is None and self._state.doing is not Doing.OVER:
            self._over()
        elif place is not None and (place, len(asked.waiting)) != (self._state.place, self._state.waiting):
            self._change(place=place, waiting=len(asked.waiting))
        session = asked.sessions.get(self.request.session)
        if session is not self._state.session:
            self._put(session=session)

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
        if self._scrolls(event.key):
            self.arming.press(self.clock.ticking())
            return
        row = self.keys.action(event.key, Where.CARD)
        if row is not None and row.id == "close":
            self._back()
        elif not self.is_armed:
            self.arming.press(self.clock.ticking())
        elif self._state.doing is Doing.SPELLING:
            self._spell(event.character or "")
        else:
            self._do(row.id if row is not None else event.key)

    def on_action_wanted(self, message: ActionWanted) -> None:
        """A click on one of the card's lines: it counts like its key."""
        message.stop()
        if message.action == "close":
            self._back()
        elif self.is_armed and self._writing is None:
            self._do(message.action)
        else:
            self.arming.press(self.clock.ticking())

    def _scrolls(self, key: str) -> bool:
        choosing = bool(self.request.options) and self._state.doing is Doing.READING
        pages = {"pagedown": 1, "pageup": -1, "ctrl+d": 1, "ctrl+u": -1}
        rows = {"j": 1, "k": -1} | ({} if choosing else {"down": 1, "up": -1})
        if key in pages or (key == "space" and not choosing):
            self.body.scroll_pages(pages.get(key, 1))
        elif key in rows:
            self.body.scroll_rows(rows[key])
        elif key in ("home", "end"):
            self.body.scroll_rows(-(10**6) if key == "home" else 10**6)
        else:
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
                self._write_reason()
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
        if self._state.doing in (Doing.SPELLING, Doing.REVIEWING):
            self._edited = None
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
        if decision is Decision.ALWAYS and (self._state.sheet.secrets or not self.request.rule):
            return
        if self._state.sheet.hidden:
            self._spelling_for = offered
            self._change(doing=Doing.SPELLING, spelled="")
        else:
            self._answer(offered)

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
        options = self.request.options
        if not options or Decision.CHOOSE not in self.request.choices:
            return
        cursor, picked = self._state.cursor, self._state.picked
        if key in ("up", "down"):
            cursor = (cursor + (1 if key == "down" else -1)) % len(options)
        elif key.isdecimal() and 0 < int(key) <= len(options):
            cursor = int(key) - 1
        elif key.startswith("option-"):
            cursor = int(key.removeprefix("option-"))
        elif key != "space":
            return
        if key not in ("up", "down"):
            picked = picked ^ {cursor} if self.request.many else frozenset({cursor})
        self._put(cursor=cursor, picked=picked)

    def _choose(self) -> None:
        picked = sorted(self._state.picked)
        if Decision.CHOOSE in self.request.choices and picked and not self.may_approve():
            self._answer(Decision.CHOOSE, labels=tuple(self.request.options[number] for number in picked))

    def _answer(self, decision: Decision, reason: str = "", labels: tuple[str, ...] = ()) -> None:
        edited = self._edited if decision is Decision.EDIT else None
        answer = Answer(
            request=self.request.id,
            digest=self.request.digest,
            decision=decision,
            reason=reason,
            input=edited,
            labels=labels,
        )
        self.post_message(CommandWanted(Tell(session=self.request.session, wish=answer)))
        self._go(1)

    # Writing: a reason, or another input.

    def _write_reason(self) -> None:
        from textual.widgets import Input  # heavy, and seldom needed

        box = Input(placeholder="Why not? The agent is told. Empty is fine.", id="card-reason")
        self._begin_writing(Doing.REASONING, box)

    def on_input_submitted(self, event: Any) -> None:
        event.stop()
        self._end_writing()
        self._answer(Decision.DENY, reason=str(event.value).strip())

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
            self._change(doing=Doing.READING)

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
        self.body.read(self._state.sheet.rows)
        self._put(read=self.body.seen_end, below=self.body.below)

    # From one to the next.

    def _go(self, by: int) -> None:
        """Show the request after or before this one; leave when there is none."""
        waiting = [ask for ask in self.asked.waiting if ask.id != self.request.id]
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
        self.body.read(self._state.sheet.rows)
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
        return CardState(
            sheet=sheet(request, known),
            session=self.asked.sessions.get(request.session),
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
        self.head.say(*head_lines(self._state, self.look, self.clock.now()))
        self.notes.say(*note_lines(self._state, self.look, self.letters()))
        self.choices.say(*choice_lines(self._state, self.look, self.keys))
        self._share_room()

    def _share_room(self) -> None:
        """The request gets the rows that nothing else needs."""
        writing = {Doing.REASONING: 4, Doing.EDITING: 9}.get(self._state.doing, 0)
        around = len(self.head.drawn) + len(self.notes.drawn) + len(self.choices.drawn) + writing
        room = self.app.size.height * 96 // 100 - BORDER - around
        if self.body.styles.max_height is None or self.body.styles.max_height.value != max(LEAST_ROWS, room):
            self.body.styles.max_height = max(LEAST_ROWS, room)

    def _look_at_clock(self) -> None:
        armed = self.arming.look(self.clock.ticking())
        if armed != self._state.armed:
            self._put(armed=armed)
        if armed and self._gauge is not None:
            self._gauge.pause()


def how_it_closed(closed: Closed | None, session: Session | None) -> str:
    """In words: who closed a request that a person was just looking at."""
    if session is None:
        return "The session is not in the list any more."
    if closed is None:
        return "It does not wait any more."
    if closed.decision is None:
        return f"Withdrawn: {clean_line(closed.by) or 'the agent does not wait for it any more'}."
    words = {
        Decision.ALLOW: "Allowed once",
        Decision.ALWAYS: "Always allowed",
        Decision.DENY: "Denied",
        Decision.EDIT: "Allowed with another input",
        Decision.CHOOSE: "Answered",
        Decision.LATER: "Set aside",
    }
    by = {"user": "by you, elsewhere", "policy": "by a rule"}.get(closed.by, f"by {clean_line(closed.by)}")
    return f"{words[closed.decision]} {by}."
