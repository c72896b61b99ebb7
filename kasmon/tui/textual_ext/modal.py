"""The base of all that opens over the dashboard: cards and dialogs."""

from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from textual import events
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.css.stylesheet import Stylesheet
from textual.screen import ModalScreen

from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.tui.action import Action, Handlers, KeyContext
from kasmon.tui.keymap import ROWS
from kasmon.tui.messages import ActionRequested
from kasmon.tui.status_bars import BannerContent
from kasmon.tui.textual_ext.backdrop import Backdrop
from kasmon.tui.textual_ext.screen import FullRedrawMixin
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.text_lines import PICKS

_STYLES_FILE: Final = Path(__file__).parent.with_name("dialogs.tcss")
_STYLES: Final = _STYLES_FILE.read_text("utf-8")


def load_dialog_styles(stylesheet: Stylesheet) -> None:
    """Add the styles of all that opens over the dashboard, once; the first frame does not wait for them."""
    stylesheet.add_source(_STYLES, (str(_STYLES_FILE), ""))


class Overlay(FullRedrawMixin, Backdrop, ModalScreen[None]):
    """A modal that takes the keyboard while it is open, and follows theme changes."""

    look: ThemeStyles
    contexts: ClassVar[tuple[KeyContext, ...]] = ()
    """The key contexts that apply; the help shows them first."""
    handlers: Handlers = MappingProxyType({})
    carries_notice: ClassVar[bool] = False
    """Whether it has a line for notices about other sessions."""

    def _post_register(self, app: App[object]) -> None:
        """Load the styles, if a key opens it before the app has done so."""
        load_dialog_styles(app.stylesheet)
        super()._post_register(app)

    @property
    def is_opening(self) -> bool:
        """Whether it buffers keys for an input that is not mounted yet."""
        return False

    @property
    def session_here(self) -> SessionId | None:
        """The session that it shows, whose request comes first; "" for none, None for that of the screen below."""
        return None

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close it, also below other screens, which stay open. Does nothing if it is closed already.

        Textual 8.2 closes the top screen, whichever is dismissed. A finished dialog would close a card that was opened
        meanwhile, and a repeated dismissal, as by a held Enter, would end the app.
        """
        stack = self.app._screen_stack
        if self not in stack:
            return AwaitComplete()
        if self is stack[-1]:
            return super().dismiss(result)
        stack.remove(self)
        self._pop_result_callback()
        return AwaitComplete(self.app._replace_screen(self)).call_next(self.app)

    def do(self, action: Action) -> bool:
        """Run *action*; return whether it has a handler here."""
        if (handler := self.handlers.get(action)) is not None:
            handler()
        return handler is not None

    def on_action_requested(self, message: ActionRequested) -> None:
        if message.action.startswith(PICKS):
            message.stop()
            self.pick(int(message.action.removeprefix(PICKS)))
        elif (action := ROWS.get(message.action)) is not None and self.do(action):
            message.stop()

    def pick(self, at: int) -> None:
        """Choose the entry with this number, which was clicked."""

    def takes(self, key: events.Key) -> bool:
        """Handle *key* at once, before the next key; False leaves it to the focused widget."""
        return False

    def follow(self, fleet: Fleet) -> None:
        """Update to the current *fleet*."""

    def notice(self, notice: BannerContent | None) -> None:
        """Show a notice about another session, if `carries_notice`."""
