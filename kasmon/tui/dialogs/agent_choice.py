"""The choice of an agent in a dialog: agents load after the dialog opens, and the user may be faster."""

from collections.abc import Sequence

from kasmon.config.profile import ProfileOffer
from kasmon.errors import KasmonError
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.fields import ChoiceField
from kasmon.tui.error_text import sentence
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences


class AgentChoice:
    """The agents that can be started, a field for them, and a note below it."""

    def __init__(self, look: ThemeStyles) -> None:
        self.offers: tuple[ProfileOffer, ...] | None = None
        """None until they are loaded."""
        self.field = ChoiceField(look, (), id="agent")
        self.why = Sentences(look, id="why")

    @property
    def is_loaded(self) -> bool:
        return self.offers is not None

    @property
    def can_start(self) -> bool:
        return bool(self.field.options)

    @property
    def value(self) -> str:
        """The chosen agent; empty if there is none."""
        return self.field.value

    def offer(self, offers: Sequence[ProfileOffer]) -> None:
        """Offer the agents that can be started; if there are none, show why."""
        self.offers = tuple(offers)
        self.field.put([offer.name for offer in offers if not offer.problem])
        if not self.can_start:
            reasons = (clean_line(f"{offer.name}: {offer.problem}") for offer in offers)
            self.why.say(("No agent can be started.", Token.ERROR), *((why, Token.NOTICE) for why in reasons))

    def fail(self, error: KasmonError) -> None:
        self.offers = ()
        lines = [(sentence(error.message), Token.ERROR), (sentence(error.hint), Token.NOTICE)]
        self.why.say(*(each for each in lines if each[0]))
