"""What the dialogs share in which an agent is chosen: agents come a moment later, and a person may be faster."""

from collections.abc import Sequence

from kasmon.config.profile import ProfileOffer
from kasmon.errors import KasmonError
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import ChoiceChanged, ChoiceField, Dialog
from kasmon.tui.error_text import sentence
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences


class AgentDialog(Dialog):
    """Who says what is to be done before all is known that it takes gets it then; a change before takes that back."""

    def __init__(self, look: ThemeStyles, keys: KeyMap) -> None:
        super().__init__(look, keys)
        self.offers: tuple[ProfileOffer, ...] | None = None
        """None until they are known."""
        self.agent = ChoiceField(look, (), id="agent")
        self.why = Sentences(look, id="why")
        self._awaits = False
        """Whether a person said it already."""

    def offer_agents(self, offers: Sequence[ProfileOffer]) -> None:
        """Offer those that can be started; of none of them it says why not."""
        self.offers = tuple(offers)
        self.agent.put([offer.name for offer in offers if not offer.problem])
        if not self.agent.options:
            reasons = (clean_line(f"{offer.name}: {offer.problem}") for offer in offers)
            self.why.say(("No agent can be started.", Token.ERROR), *((why, Token.NOTICE) for why in reasons))
        self._agents_known()
        self._go_on()

    def cannot_offer(self, error: KasmonError) -> None:
        """It could not be found out what can be started."""
        self.offers = ()
        self._take_back()
        said = [(sentence(error.message), Token.ERROR), (sentence(error.hint), Token.NOTICE)]
        self.why.say(*(each for each in said if each[0]))

    def on_choice_changed(self, message: ChoiceChanged) -> None:
        """Called beside the one of this name that a dialog may have itself."""
        message.stop()
        self._take_back()

    def _agents_known(self) -> None:
        """What depends on them can be filled in."""

    def _act(self) -> None:
        """Do what the dialog is there for, or say what it lacks."""
        raise NotImplementedError

    def _await_agents(self) -> bool:
        """Whether the agents are not known yet; it is done once they are."""
        if self.offers is None:
            self._await("the installed agents are known")
        return self.offers is None

    def _await(self, what: str) -> None:
        """Act as soon as *what*; whoever changes anything before takes that back."""
        self._awaits = True
        self.tell_problem(("", Token.NOTICE), (f"Starts as soon as {what}.", Token.NOTICE))

    def _go_on(self) -> None:
        """More is known now."""
        if self._awaits:
            self._take_back()
            self._act()

    def _take_back(self) -> None:
        self._awaits = False
        super()._take_back()

    def action_leave(self) -> None:
        self._awaits = False
        super().action_leave()
