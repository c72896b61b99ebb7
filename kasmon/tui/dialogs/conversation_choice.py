"""The field of a new session that says what it begins with: a new conversation, or one that its agent stores."""

from typing import Final

from textual.containers import Vertical
from textual.strip import Strip

from kasmon.model.commands import ConversationOffer, ConversationOffers
from kasmon.model.formatting import clock
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.fields import ChoiceField, DialogField
from kasmon.tui.theme.look import StyledSpan, ThemeStyles
from kasmon.tui.widgets.reader import Sentences
from kasmon.tui.widgets.row_list import RowList

NEW: Final = "new"
EARLIER: Final = "earlier one"
LISTED: Final = 6
"""How many conversations are shown at once."""
LOADING: Final = "Loading conversations. An agent that lists its own is started for that."
NONE: Final = "The agent stores no conversation of this folder."
MORE: Final = "The agent stores more; these are the last used ones."


class ConversationField(DialogField):
    """The choice, the list of stored conversations, and a remark on it."""

    def __init__(self, look: ThemeStyles) -> None:
        self.look = look
        self.choice = ChoiceField(look, (NEW, EARLIER), id="conversation")
        self.list = RowList[ConversationOffer](look, self._draw, most_rows=LISTED, id="conversations")
        self.note = Sentences(look, id="conversation-note")
        super().__init__("Conversation", Vertical(self.choice, self.list, self.note))
        self.list.display = False
        self.loaded: object = None
        """What the listed conversations are for: agent, mode, folder and account. None while nothing is loaded."""

    @property
    def is_earlier(self) -> bool:
        """Whether the user chose an earlier conversation, even if none is listed yet."""
        return self.choice.value == EARLIER

    @property
    def chosen(self) -> ConversationOffer | None:
        """The earlier conversation under the cursor; None for a new one, or if none is listed."""
        return self.list.chosen if self.is_earlier else None

    def begin_loading(self) -> None:
        """Show that the conversations are being loaded, or nothing for a new one."""
        self.loaded = None
        self.list.put(())
        self.list.display = False
        self.note.say(*([(LOADING, Token.FAINT)] if self.is_earlier else []))

    def show(self, offers: ConversationOffers, key: object) -> None:
        """List *offers*; *key* is what they are for."""
        self.loaded = key
        self.list.put(offers.conversations)
        self.list.display = bool(offers.conversations)
        remark = NONE if not offers.conversations else "" if offers.is_whole else MORE
        self.note.say(*([(remark, Token.FAINT)] if remark else []))

    def fail(self, problem: str, key: object) -> None:
        self.show(ConversationOffers(), key)
        self.note.say((problem, Token.ERROR))

    def _draw(self, offer: ConversationOffer, is_selected: bool, width: int) -> Strip:
        left: list[StyledSpan] = [
            (self.look.mark("cursor") if is_selected else " ", "accent"),
            (f" {offer.title or offer.id}", "text.bold" if is_selected else "text"),
        ]
        used = clock(offer.used_at, day=True)[:16] if offer.used_at else ""
        right: list[StyledSpan] = [
            (f"  {clean_line(offer.session)}" if offer.session else "", "accent"),
            (f"  {used} ", "faint"),
        ]
        return self.look.between(left, right, width, "selected" if is_selected else "raised")
