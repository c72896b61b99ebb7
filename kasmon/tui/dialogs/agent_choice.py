"""The base of dialogs that choose an agent: agents load after the dialog opens, and the user may be faster."""

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
    """Confirming before everything is loaded takes effect once it is; a change before then cancels it."""

    def __init__(self, look: ThemeStyles, keys: KeyMap) -> None:
        super().__init__(look, keys)
        self.offers: tuple[ProfileOffer, ...] | None = None
        """None until they are loaded."""
        self.agent = ChoiceField(look, (), id="agent")
        self.why = Sentences(look, id="why")
        self._is_confirmed = False
        """Whether the user has confirmed already."""

    def offer_agents(self, offers: Sequence[ProfileOffer]) -> None:
        """Offer the agents that can be started; if there are none, show why."""
        self.offers = tuple(offers)
        self.agent.put([offer.name for offer in offers if not offer.problem])
        if not self.agent.options:
            reasons = (clean_line(f"{offer.name}: {offer.problem}") for offer in offers)
            self.why.say(("No agent can be started.", Token.ERROR), *((why, Token.NOTICE) for why in reasons))
        self._fill_in_agents()
        self._act_if_confirmed()

    def cannot_offer(self, error: KasmonError) -> None:
        """Show that the agents could not be determined."""
        self.offers = ()
        self._handle_edit()
        lines = [(sentence(error.message), Token.ERROR), (sentence(error.hint), Token.NOTICE)]
        self.why.say(*(each for each in lines if each[0]))

    def on_choice_changed(self, message: ChoiceChanged) -> None:
        """Textual calls it besides the subclass's own method of this name."""
        message.stop()
        self._handle_edit()

    def _fill_in_agents(self) -> None:
        """Fill in what depends on the agents."""

    def _act(self) -> None:
        """Do what the dialog is for, or show what is missing."""
        raise NotImplementedError

    def _wait_for_agents(self) -> bool:
        """Whether the agents are not loaded yet; if so, act once they are."""
        if self.offers is None:
            self._act_later("the installed agents are known")
        return self.offers is None

    def _act_later(self, what: str) -> None:
        """Act as soon as *what*; any change by the user before then cancels that."""
        self._is_confirmed = True
        self.show_problem(("", Token.NOTICE), (f"Starts as soon as {what}.", Token.NOTICE))

    def _act_if_confirmed(self) -> None:
        """More is loaded: act if the user has confirmed already."""
        if self._is_confirmed:
            self._handle_edit()
            self._act()

    def _handle_edit(self) -> None:
        self._is_confirmed = False
        super()._handle_edit()

    def action_leave(self) -> None:
        self._is_confirmed = False
        super().action_leave()
