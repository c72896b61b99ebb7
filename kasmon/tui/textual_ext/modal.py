"""What lies over the dashboard: cards and dialogs."""

from typing import ClassVar

from textual import events
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from kasmon.model.fleet import Fleet
from kasmon.tui.action import KeyContext
from kasmon.tui.status_bars import BannerContent
from kasmon.tui.textual_ext.backdrop import Backdrop
from kasmon.tui.textual_ext.screen import FullRedrawMixin
from kasmon.tui.theme.look import ThemeStyles


class Overlay(FullRedrawMixin, Backdrop, ModalScreen[None]):
    """Takes the keyboard while it is there; a theme that changes meanwhile changes it too."""

    look: ThemeStyles
    places: ClassVar[tuple[KeyContext, ...]] = ()
    """Whose keys count here: the help shows them first."""
    carries_notice: ClassVar[bool] = False
    """Whether it has a line for what waits elsewhere."""

    @property
    def is_opening(self) -> bool:
        """Whether it keeps the keys that come for a box which is not there yet."""
        return False

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

    def notice(self, notice: BannerContent | None) -> None:
        """Something waits elsewhere; told where `carries_notice`."""

    def dress(self, look: ThemeStyles) -> None:
        """Draw with *look* from now on."""
        self.look = look
