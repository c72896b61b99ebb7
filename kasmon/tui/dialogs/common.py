"""The small dialogs: a new name, a confirmation, a text to read."""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

import msgspec
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from kasmon.model.session import Session
from kasmon.model.transcript.text import TextLine, Token, wrap
from kasmon.sanitize import clean_line
from kasmon.tui.clock import Clock
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.fields import DialogField
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions.queue import SILENCE_S
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Reader, Rows

TOO_EARLY: Final = "This key came before the question could be read.", "Press it again to confirm."
"""The error and the hint for a yes that does not count yet."""


class RenameDialog(Dialog):
    """Asks for a session's new name."""

    title_text = "Rename"

    def __init__(self, look: ThemeStyles, keys: KeyMap, session: Session) -> None:
        super().__init__(look, keys)
        self.session = session

    def inside(self) -> Iterable[Widget]:
        yield DialogField("New name", LineInput(self.session.name, id="new-name"))

    def on_mount(self) -> None:
        self.offer(("enter", "rename"), ("esc", "cancel"))
        self.begin(self.query_one("#new-name", LineInput))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        name = event.value.strip()
        if name and name != self.session.name:
            self.run_operation(lambda operations: operations.rename(self.session.id, name))
        else:
            self.dismiss()


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
    deaf_s: float = SILENCE_S
    """A yes within this many seconds was typed for something else, and does not count."""


class ConfirmDialog(Dialog):
    """A question that only `y` confirms; Enter does nothing, and a `y` typed too early does not count and says so.

    The user must have seen all of it: a text too long for the window must be scrolled to its end first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "yes", "yes", show=False),
        Binding("n", "leave", "no", show=False),
    ]

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        clock: Clock,
        question: Confirmation,
        then: Callable[["ConfirmDialog"], None],
    ) -> None:
        super().__init__(look, keys, self._rows)
        self.title_text = question.title
        self.clock, self.question, self.then = clock, question, then
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
        return ("y", self.question.yes), *((scroll,) if self._is_long else ()), ("esc", "cancel")

    def on_reader_moved(self, message: Reader.Moved) -> None:
        message.stop()
        is_long = self.text.max_scroll_y > 0
        if is_long != self._is_long:
            self._is_long = is_long
            self.offer(*self.offered(("up down", "scroll")))

    def action_yes(self) -> None:
        if self.clock.ticking() - self._shown_at < self.question.deaf_s:
            self.complain(*TOO_EARLY)
        elif not self.question.deaf_s or self.is_read():
            self.then(self)

    def _rows(self, width: int) -> Sequence[TextLine]:
        first, *others = (clean_line(line) for line in self.question.lines)
        said = [(first, Token.TEXT), *((line, Token.NOTICE) for line in others)]
        return [row for text, token in said for row in wrap([(text, token)], width)]
