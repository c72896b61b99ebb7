"""The small dialogs: a message, a new name, are you sure, a text to read."""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

import msgspec
from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from kasmon.clean import clean_line
from kasmon.errors import KasmonError, PromptBoxError
from kasmon.model.command import Prompt, When
from kasmon.model.session import Session
from kasmon.model.text import Line as TextLine
from kasmon.model.text import Token, fitted
from kasmon.tui.asking import SILENCE_S
from kasmon.tui.boxes import Line
from kasmon.tui.clock import Clock
from kasmon.tui.dialog import Choice, Dialog, Field
from kasmon.tui.keys import Keys
from kasmon.tui.look import Look
from kasmon.tui.prompt import TextBox
from kasmon.tui.reader import Reader, Rows
from kasmon.tui.world import Rename, Tell, Wanted

WHEN: dict[str, When] = {"now": "now", "when idle": "idle", "interrupt first": "interrupt"}
ANYWAY: Final = "now, even unseen"
"""Offered once a prompt was refused because nobody saw the box that takes it."""


class Message(Dialog):
    """A prompt for one session, or for all that the list shows."""

    def __init__(self, look: Look, keys: Keys, sessions: Sequence[Session], draft: str = "") -> None:
        super().__init__(look, keys)
        self.sessions, self.draft = tuple(sessions), draft
        self.title_text = self._title()
        self.names = Reader(look, self._names, margin=1, id="names")
        self.when = Choice(look, tuple(WHEN), id="when")

    def inside(self) -> Iterable[Widget]:
        if len(self.sessions) > 1:
            yield self.names
        yield TextBox(self.keys, "What should be done?", self.draft, id="message")
        yield Field("If busy", self.when)

    def on_mount(self) -> None:
        newline = self.keys.shown("newline", self.look.utf8)
        self.offer(("enter", "send"), (newline, "new line"), ("tab", "when"), ("esc", "close"))
        self.begin(self.query_one("#message", TextBox))

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter" and self.focused is self.when:
            event.stop()
            self._send()

    def on_text_box_submitted(self, event: TextBox.Submitted) -> None:
        event.stop()
        self._send()

    def _send(self) -> None:
        text = self.query_one("#message", TextBox).text
        if not text.strip():
            return
        prompt = Prompt(text=text, when=WHEN.get(self.when.value, "now"), anyway=self.when.value == ANYWAY)
        if len(self.sessions) == 1:
            self.want(Tell(session=self.sessions[0].id, wish=prompt))
            return
        from kasmon.tui.broadcast import Broadcast

        self.app.switch_screen(Broadcast(self.look, self.keys, self.sessions, prompt))

    def refused(self, wanted: Wanted, error: KasmonError) -> None:
        """Where nobody sees the place to type, that it be typed all the same is offered; nobody else chooses it."""
        super().refused(wanted, error)
        if isinstance(error, PromptBoxError) and error.is_unseen and ANYWAY not in self.when.options:
            self.when.put((*self.when.options, ANYWAY), self.when.chosen)
            self.complain(error.message, f'To type it though nobody sees what becomes of it, choose "{ANYWAY}".')

    def _title(self) -> str:
        one = len(self.sessions) == 1
        return f"To {clean_line(self.sessions[0].name)}" if one else f"To {len(self.sessions)} sessions"

    def _names(self, width: int) -> Sequence[TextLine]:
        """Whom it goes to, all of them."""
        names = ", ".join(clean_line(session.name) for session in self.sessions)
        return fitted([(names, Token.OUTPUT)], width)


class NewName(Dialog):
    """Another name for a session."""

    title_text = "Rename"

    def __init__(self, look: Look, keys: Keys, session: Session) -> None:
        super().__init__(look, keys)
        self.session = session

    def inside(self) -> Iterable[Widget]:
        yield Field("New name", Line(self.session.name, id="new-name"))

    def on_mount(self) -> None:
        self.offer(("enter", "rename"), ("esc", "keep the name"))
        self.begin(self.query_one("#new-name", Line))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        name = event.value.strip()
        if name and name != self.session.name:
            self.want(Rename(session=self.session.id, name=name))
        else:
            self.dismiss()


class Reading(Dialog):
    """A text to read."""

    def __init__(self, look: Look, keys: Keys, title: str, rows: Rows) -> None:
        super().__init__(look, keys)
        self.title_text = title
        self.reader = Reader(look, rows, margin=1)

    def inside(self) -> Iterable[Widget]:
        yield self.reader

    def on_mount(self) -> None:
        self.reader.can_focus = True
        self.offer(*self.offered(("up down", "scroll")))
        self.begin(self.reader)

    def offered(self, scroll: tuple[str, str]) -> Iterable[tuple[str, str]]:
        """The keys that are named at its foot, *scroll* among them."""
        return scroll, ("esc", "close")

    def on_key(self, event: events.Key) -> None:
        if (rows := {"j": 1, "k": -1}.get(event.key)) is not None:
            self.reader.scroll_rows(rows)
        elif event.key == "space":
            self.reader.scroll_pages(1)

    def is_read(self) -> bool:
        """Whether its end was in sight; says so if not."""
        if not self.reader.seen_end:
            self.complain("There is more of it below.", "Read it to its end first.")
        return self.reader.seen_end

    def share_room(self) -> None:
        """The text scrolls, not what it stands in."""
        super().share_room()
        self.reader.styles.max_height = self.room


class Question(msgspec.Struct, frozen=True):
    """Something that is asked before it is done."""

    title: str
    lines: tuple[str, ...]
    yes: str
    """What the key `y` does, in a word or two."""
    deaf_s: float = SILENCE_S
    """A yes that comes sooner was typed for something else."""


class Sure(Reading):
    """A question with a yes that has a key of its own; Enter does nothing, and a yes that comes with it is none.

    Nor is one of somebody who did not see all of it: what is too long for the window is scrolled first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "yes", "yes", show=False),
        Binding("n", "leave", "no", show=False),
    ]

    def __init__(
        self, look: Look, keys: Keys, clock: Clock, question: Question, then: Callable[["Sure"], None]
    ) -> None:
        super().__init__(look, keys, question.title, self._rows)
        self.clock, self.question, self.then = clock, question, then
        self._asked_at = clock.ticking()
        self._is_long = False
        """Whether the window takes no more than a part of it."""

    def on_mount(self) -> None:
        self._asked_at = self.clock.ticking()

    def begin(self, first: Widget | None) -> None:
        """What was typed before it was there is no answer to it."""
        super().begin(None)
        self.set_focus(first)

    def offered(self, scroll: tuple[str, str]) -> Iterable[tuple[str, str]]:
        return ("y", self.question.yes), *((scroll,) if self._is_long else ()), ("esc", "no")

    def on_reader_moved(self, message: Reader.Moved) -> None:
        message.stop()
        is_long = self.reader.max_scroll_y > 0
        if is_long != self._is_long:
            self._is_long = is_long
            self.offer(*self.offered(("up down", "scroll")))

    def action_yes(self) -> None:
        heard = self.clock.ticking() - self._asked_at >= self.question.deaf_s
        if heard and (not self.question.deaf_s or self.is_read()):
            self.then(self)

    def _rows(self, width: int) -> Sequence[TextLine]:
        first, *others = (clean_line(line) for line in self.question.lines)
        said = [(first, Token.TEXT), *((line, Token.NOTICE) for line in others)]
        return [row for text, token in said for row in fitted([(text, token)], width)]
