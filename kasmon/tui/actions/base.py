"""What all groups of actions share: the selected session, the current screen, and common dialogs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kasmon.model.session import Session
from kasmon.model.transcript.text import TextLine
from kasmon.tui.gateway.protocol import UserCommand

if TYPE_CHECKING:
    from kasmon.tui.app import Kasmon
    from kasmon.tui.dialogs.common import Confirmation, ConfirmDialog


class ActionGroup:
    """Base class of the groups of actions."""

    app: "Kasmon"

    def _selected(self) -> Session | None:
        """The session under the list's cursor."""
        table = self.app.main_view.table
        return table.session(table.selected) if table.selected is not None else None

    def _location(self) -> tuple[object, bool]:
        """The top screen, and whether a session is open.

        A slow result is shown only if this is still the same as when it was requested. Over another screen it would
        take the keys meant for that.
        """
        return self.app.screen, self.app.main_view.focused_inside

    def _confirm_command(self, title: str, lines: tuple[str, ...], yes: str, wanted: UserCommand) -> None:
        """Execute *wanted* once the user confirms; *yes* labels the confirming key."""
        from kasmon.tui.dialogs.common import Confirmation

        self._confirm(Confirmation(title, lines, yes), lambda dialog: dialog.want(wanted))

    def _confirm(self, question: "Confirmation", then: "Callable[[ConfirmDialog], None]") -> None:
        from kasmon.tui.dialogs.common import ConfirmDialog

        self.app.push_screen(ConfirmDialog(self.app.look, self.app.keys, self.app.clock, question, then))

    def _read(self, title: str, rows: Callable[[int], Sequence[TextLine]]) -> None:
        """Show these *rows*, built for a width in cells."""
        from kasmon.tui.dialogs.common import TextDialog

        self.app.push_screen(TextDialog(self.app.look, self.app.keys, title, rows))
