"""What lies over the dashboard: cards and dialogs."""

from typing import ClassVar

from textual import events
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from kasmon.model.fleet import Fleet
from kasmon.tui.backdrop import Backdrop
from kasmon.tui.bars import Notice
from kasmon.tui.board import DrawnWhole
from kasmon.tui.look import Look


class Overlay(DrawnWhole, Backdrop, ModalScreen[None]):
    """Takes the keyboard while it is there; a theme that changes meanwhile changes it too."""

    look: Look
    carries_notice: ClassVar[bool] = False
    """Whether it has a line for what waits elsewhere."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Take it away, wherever it lies; what lies over it stays. Where it is gone already, nothing happens.

        Textual 8.2 takes away what is on top, whoever is asked to go: a dialog that is through would take away a card
        that somebody looks at meanwhile, and one that is told twice to go, as by an Enter held down, would end the app.
        """
        stack = self.app._screen_stack
        if self not in stack:
            return AwaitComplete()
        if self is stack[-1]:
            return super().dismiss(result)
        stack.remove(self)
        self._pop_result_callback()
        return AwaitComplete(self.app._replace_screen(self)).call_next(self.app)

    def takes(self, key: events.Key) -> bool:
        """Do at once what *key* means here, before the next one is looked at; False leaves it to who has the focus."""
        return False

    def follow(self, fleet: Fleet) -> None:
        """The fleet is this now."""

    def notice(self, notice: Notice | None) -> None:
        """Something waits elsewhere; told where `carries_notice`."""

    def dress(self, look: Look) -> None:
        """Draw with *look* from now on."""
        self.look = look
