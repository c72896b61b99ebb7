"""The small dialogs: a new name, tags, a move, a choice of links, a confirmation, a text to read."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

import msgspec
from textual.binding import Binding, BindingType
from textual.widget import Widget

from kasmon.model.session import Session
from kasmon.model.transcript.text import TextLine, Token, wrap
from kasmon.sanitize import clean_line, visible
from kasmon.tui.clock import Clock
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.fields import ChoiceChanged, ChoiceField, DialogField
from kasmon.tui.gateway.protocol import Operation
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions.queue import SILENCE_S
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Reader, Rows, Sentences

TOO_EARLY: Final = "This key came before the question could be read.", "Press it again to confirm."
"""The error and the hint for a yes that does not count yet."""


class RenameDialog(Dialog):
    """Asks for a session's new name."""

    title_text = "Rename"

    def __init__(self, look: ThemeStyles, keys: KeyMap, session: Session) -> None:
        super().__init__(look, keys)
        self.session = session

        self.box = LineInput(session.name, id="new-name")

    def inside(self) -> Iterable[Widget]:
        yield DialogField("New name", self.box)

    def on_mount(self) -> None:
        self.offer(("enter", "rename"), ("esc", "cancel"))
        self.begin(self.box)

    def submit(self) -> None:
        name = self.box.value.strip()
        if name and name != self.session.name:
            self.run_operation(lambda operations: operations.rename(self.session.id, name))
        else:
            self.dismiss()


class MoveDialog(Dialog):
    """Asks where a session moves: to the other mode, or to another account of its agent."""

    title_text = "Move"

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        session: Session,
        mode: str,
        lines: Sequence[str],
        to_mode: Operation,
        accounts: Sequence[str],
    ) -> None:
        """*mode* names the other mode, of which *lines* say what the move by *to_mode* does; *accounts* as they are."""
        super().__init__(look, keys)
        self.session, self.lines, self.to_mode, self.accounts = session, lines, to_mode, accounts
        labels = [f"account {clean_line(name)}" if name else "its own log-in" for name in accounts]
        self.choice = ChoiceField(look, (mode, *labels), id="move-to")

    def inside(self) -> Iterable[Widget]:
        yield DialogField("Move to", self.choice)
        yield Sentences(self.look, id="move-says")

    def on_mount(self) -> None:
        self.offer(("enter", "move"), ("esc", "cancel"))
        self.begin(self.choice)
        self._explain()

    def on_choice_changed(self, message: ChoiceChanged) -> None:
        message.stop()
        self._explain()

    def _explain(self) -> None:
        of_account = ("The agent ends, and its conversation is resumed with that log-in.", self.lines[1])
        lines = of_account if self.choice.chosen else self.lines
        self.query_one("#move-says", Sentences).say(*((line, Token.FAINT) for line in lines))

    def submit(self) -> None:
        if not self.choice.chosen:
            self.run_operation(self.to_mode)
            return
        session, account = self.session, self.accounts[self.choice.chosen - 1]
        self.run_operation(lambda operations: operations.move(session.id, session.mode, account=account))


class TagsDialog(Dialog):
    """Edits a session's tags as words on a line."""

    title_text = "Tags"

    def __init__(self, look: ThemeStyles, keys: KeyMap, session: Session, used: Sequence[str]) -> None:
        """*used* are the tags of all sessions."""
        super().__init__(look, keys)
        self.session, self.used = session, used
        self.box = LineInput(" ".join(map(clean_line, session.tags)), id="tags")

    def inside(self) -> Iterable[Widget]:
        yield DialogField("Tags", self.box)
        hint = f"Words with a space between them. In use: {clean_line(', '.join(self.used)) or 'none'}."
        yield Sentences(self.look, (hint, Token.FAINT), id="used-tags")

    def on_mount(self) -> None:
        self.offer(("enter", "save"), ("esc", "cancel"))
        self.begin(self.box)

    def submit(self) -> None:
        tags = [each for each in re.split(r"[\s,]+", self.box.value) if each]
        self.run_operation(lambda operations: operations.set_tags(self.session.id, self.session.tags, tags))


class LinkDialog(Dialog):
    """Asks which of several links is meant; it opens none itself."""

    title_text = "Links"

    def __init__(self, look: ThemeStyles, keys: KeyMap, addresses: Sequence[str], then: Callable[[str], None]) -> None:
        """Call *then* with the chosen one of *addresses*."""
        super().__init__(look, keys)
        self.addresses, self.then = addresses, then
        self.choice = ChoiceField(look, tuple(look.cut(visible(each), 60) for each in addresses), id="link")

    def inside(self) -> Iterable[Widget]:
        yield DialogField("Link", self.choice)

    def on_mount(self) -> None:
        self.offer(("left right", "choose"), ("enter", "show"), ("esc", "cancel"))
        self.begin(self.choice)

    def submit(self) -> None:
        self.dismiss()
        self.then(self.addresses[self.choice.chosen])


class TextDialog(Dialog):
    """Shows a text to read."""

    def __init__(self, look: ThemeStyles, keys: KeyMap, title: str, rows: Rows) -> None:
        super().__init__(look, keys, rows)
        self.title_text = title


class Confirmation(msgspec.Struct, frozen=True):
    """A question that must be confirmed before an action."""

    title: str
    lines: tuple[str, ...]
    yes: str
    """What the key `y` does, in a word or two."""
    all: str = ""
    """What the key `a` does besides that, in a word or two; empty without such a key."""
    deaf_s: float = SILENCE_S
    """A yes within this many seconds was typed for something else, and does not count."""


class ConfirmDialog(Dialog):
    """A question that only `y` confirms; Enter does nothing, and a `y` typed too early does not count and says so.

    The user must have seen all of it: a text too long for the window must be scrolled to its end first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "yes", "yes", show=False),
        Binding("a", "all", "all", show=False),
        Binding("n", "leave", "no", show=False),
    ]

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        clock: Clock,
        question: Confirmation,
        then: Callable[["ConfirmDialog"], None],
        then_all: Callable[["ConfirmDialog"], None] | None = None,
    ) -> None:
        super().__init__(look, keys, self._rows)
        self.title_text = question.title
        self.clock, self.question, self.then, self._then_all = clock, question, then, then_all
        self._shown_at = clock.ticking()
        self._is_long = False
        """Whether the window shows only a part of it."""

    def on_mount(self) -> None:
        self._shown_at = self.clock.ticking()

    def begin(self, first: Widget | None) -> None:
        """Discard the buffered keys: they are no answer to this question."""
        super().begin(None)
        self.set_focus(first)

    def offered(self, scroll: tuple[str, str]) -> Iterable[tuple[str, str]]:
        both = (("a", self.question.all),) if self._then_all is not None else ()
        return ("y", self.question.yes), *both, *((scroll,) if self._is_long else ()), ("esc", "cancel")

    def on_reader_moved(self, message: Reader.Moved) -> None:
        message.stop()
        is_long = self.text.max_scroll_y > 0
        if is_long != self._is_long:
            self._is_long = is_long
            self.offer(*self.offered(("up down", "scroll")))

    def action_yes(self) -> None:
        self._confirm(self.then)

    def action_all(self) -> None:
        if self._then_all is not None:
            self._confirm(self._then_all)

    def _confirm(self, then: Callable[["ConfirmDialog"], None]) -> None:
        if self.clock.ticking() - self._shown_at < self.question.deaf_s:
            self.complain(*TOO_EARLY)
        elif not self.question.deaf_s or self.is_read():
            then(self)

    def _rows(self, width: int) -> Sequence[TextLine]:
        first, *others = (clean_line(line) for line in self.question.lines)
        lines = [(first, Token.TEXT), *((line, Token.NOTICE) for line in others)]
        return [row for text, token in lines for row in wrap([(text, token)], width)]
