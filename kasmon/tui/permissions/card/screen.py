"""The card alone, over any other screen."""

from collections.abc import Collection

from textual import events
from textual.app import ComposeResult

from kasmon.model.permission import Request, SessionId
from kasmon.tui.action import KeyContext
from kasmon.tui.clock import Clock
from kasmon.tui.keymap import KeyMap
from kasmon.tui.messages import ActionRequested
from kasmon.tui.permissions.card.card import PermissionCard, SendAnswer
from kasmon.tui.permissions.card.layout import measure_window
from kasmon.tui.permissions.card.text import CardState
from kasmon.tui.permissions.queue import PermissionSnapshot
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import ThemeStyles


class CardScreen(Overlay):
    """Shows one request after the other. Updates come by `update_requests`."""

    contexts = (KeyContext.CARD,)
    AUTO_FOCUS = ""

    def __init__(
        self,
        look: ThemeStyles,
        clock: Clock,
        keys: KeyMap,
        asked: PermissionSnapshot,
        first: Request,
        send: SendAnswer,
    ) -> None:
        super().__init__()
        self.look = look
        self.card = PermissionCard(look, clock, keys, asked, first, self._room, send)

    def compose(self) -> ComposeResult:
        yield self.card

    @property
    def concerned(self) -> Collection[SessionId]:
        """The sessions that it needs updates of, whether they have requests or not."""
        return {self.card.request.session}

    def update_requests(self, asked: PermissionSnapshot) -> None:
        self.card.update_requests(asked)

    def on_key(self, event: events.Key) -> None:
        self.card.press(event)

    def on_resize(self) -> None:
        self.card.handle_resize()

    def on_permission_card_turned(self, message: PermissionCard.Turned) -> None:
        message.stop()

    def on_permission_card_list_wanted(self, message: PermissionCard.ListWanted) -> None:
        message.stop()
        self.post_message(ActionRequested("all_requests"))

    def _room(self, state: CardState, roomy: bool) -> tuple[int, int]:
        return measure_window(*self.app.size)
