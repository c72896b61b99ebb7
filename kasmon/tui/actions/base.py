"""What all deeds of the app share: the session that is meant, where a person is, and the dialogs that several open."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kasmon.model.session import Session
from kasmon.model.transcript.text import TextLine
from kasmon.tui.gateway.protocol import Wanted

if TYPE_CHECKING:
    from kasmon.tui.app import Kasmon
    from kasmon.tui.dialogs.common import Confirmation, ConfirmDialog


class ActionGroup:
    """The base of all deeds."""

    app: "Kasmon"

    def _selected(self) -> Session | None:
        """The session that the list's cursor is on."""
        table = self.app.main_view.table
        return table.session(table.selected) if table.selected is not None else None

    def _here(self) -> tuple[object, bool]:
        """Where the person is: what lies on top, and whether they are inside a session.

        What takes a while to be found out is shown where it was asked for and nowhere else: over anything else it would
        take keys that are meant for that.
        """
        return self.app.screen, self.app.main_view.focused_inside

    def _ask(self, title: str, lines: tuple[str, ...], yes: str, wanted: Wanted) -> None:
        """Have *wanted* done once a person says so; *yes* is the word of that key."""
        from kasmon.tui.dialogs.common import Confirmation

        self._sure(Confirmation(title, lines, yes), lambda dialog: dialog.want(wanted))

    def _sure(self, question: "Confirmation", then: "Callable[[ConfirmDialog], None]") -> None:
        from kasmon.tui.dialogs.common import ConfirmDialog

        self.app.push_screen(ConfirmDialog(self.app.look, self.app.keys, self.app.clock, question, then))

    def _read(self, title: str, rows: Callable[[int], Sequence[TextLine]]) -> None:
        """Show these *rows*, made for a width in cells."""
        from kasmon.tui.dialogs.common import TextDialog

        self.app.push_screen(TextDialog(self.app.look, self.app.keys, title, rows))
