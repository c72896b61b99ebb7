"""What all deeds of the app share: the session that is meant, where a person is, and the dialogs that several open."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kasmon.model.session import Session
from kasmon.model.text import Line
from kasmon.tui.world import Wanted

if TYPE_CHECKING:
    from kasmon.tui.app import Kasmon
    from kasmon.tui.dialogs import Question, Sure


class Hands:
    """The base of all deeds."""

    app: "Kasmon"

    def _selected(self) -> Session | None:
        """The session that the list's cursor is on."""
        table = self.app.desk.table
        return table.session(table.selected) if table.selected is not None else None

    def _here(self) -> tuple[object, bool]:
        """Where the person is: what lies on top, and whether they are inside a session.

        What takes a while to be found out is shown where it was asked for and nowhere else: over anything else it would
        take keys that are meant for that.
        """
        return self.app.screen, self.app.desk.focused_inside

    def _ask(self, title: str, lines: tuple[str, ...], yes: str, wanted: Wanted) -> None:
        """Have *wanted* done once a person says so; *yes* is the word of that key."""
        from kasmon.tui.dialogs import Question

        self._sure(Question(title, lines, yes), lambda dialog: dialog.want(wanted))

    def _sure(self, question: "Question", then: "Callable[[Sure], None]") -> None:
        from kasmon.tui.dialogs import Sure

        self.app.push_screen(Sure(self.app.look, self.app.keys, self.app.clock, question, then))

    def _read(self, title: str, rows: Callable[[int], Sequence[Line]]) -> None:
        """Show these *rows*, made for a width in cells."""
        from kasmon.tui.dialogs import Reading

        self.app.push_screen(Reading(self.app.look, self.app.keys, title, rows))
