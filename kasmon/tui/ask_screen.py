"""The card alone, over whatever is on the screen."""

from collections.abc import Collection

from textual import events
from textual.app import ComposeResult

from kasmon.model.permission import Request, SessionId
from kasmon.tui.ask_layout import in_window
from kasmon.tui.ask_words import CardState
from kasmon.tui.asking import Asked
from kasmon.tui.asks import AskCard
from kasmon.tui.clock import Clock
from kasmon.tui.keys import Keys
from kasmon.tui.look import Look
from kasmon.tui.messages import ActionWanted
from kasmon.tui.overlay import Overlay


class AskScreen(Overlay):
    """Shows one request after the other. What comes from outside it gets by `learn`."""

    AUTO_FOCUS = ""

    def __init__(self, look: Look, clock: Clock, keys: Keys, asked: Asked, first: Request) -> None:
        super().__init__()
        self.look = look
        self.card = AskCard(look, clock, keys, asked, first, self._room)

    def compose(self) -> ComposeResult:
        yield self.card

    @property
    def concerned(self) -> Collection[SessionId]:
        """The sessions that it has to hear of, whether they ask or not."""
        return {self.card.request.session}

    def learn(self, asked: Asked) -> None:
        """The requests that wait are these now."""
        self.card.learn(asked)

    def dress(self, look: Look) -> None:
        """Draw with *look* from now on."""
        super().dress(look)
        self.card.dress(look)

    def on_key(self, event: events.Key) -> None:
        self.card.press(event)

    def on_resize(self) -> None:
        self.card.resized()

    def on_ask_card_turned(self, message: AskCard.Turned) -> None:
        message.stop()

    def on_ask_card_list_wanted(self, message: AskCard.ListWanted) -> None:
        message.stop()
        self.post_message(ActionWanted("all_requests"))

    def _room(self, state: CardState, roomy: bool) -> tuple[int, int]:
        return in_window(*self.app.size)
