"""The sandbox field of a new session: every tier, and for an unavailable one the reason."""

from collections.abc import Sequence
from typing import Final

from textual.containers import Vertical

from kasmon.model.commands import Mode
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.fields import ChoiceField, DialogField
from kasmon.tui.gateway.protocol import SandboxChoices, SandboxPreview, TierOffer
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences

NONE: Final = "none"
NO_AGENTS: Final = "This version of kasmon runs only interpreters in it, no agents."
INTERPRETERS: Final = "Persistent python, bash and node with shared files, in a new folder unless you enter one."


class SandboxField(DialogField):
    """The choice, and an explanation below it."""

    def __init__(self, look: ThemeStyles) -> None:
        self.choice = ChoiceField(look, (), id="sandbox-choice")
        self.gets = Sentences(look, id="gets")
        super().__init__("Sandbox", Vertical(self.choice, self.gets))
        self.display = self.is_offered = False
        """Whether the chosen mode can have a sandbox; the dialog decides whether the field is shown."""
        self.may_be = SandboxChoices()
        self._mode: Mode | None = None
        self.confined: SandboxPreview | None = None
        """What the sandbox would get, once that is known."""
        self.is_asked = False
        """Whether that is still being determined."""
        self._refusal = ""

    @property
    def tier(self) -> str:
        """The chosen tier; empty for none."""
        return "" if self.choice.value in ("", NONE) else self.choice.value

    @property
    def is_open(self) -> bool:
        """Whether there is more than one choice."""
        return len(self.choice.options) > 1

    @property
    def why_not(self) -> str:
        """Why the chosen tier is unavailable, a sentence a line; empty if it is available."""
        return self._find_problem(self._find_offer(self.tier)) or self._refusal

    def offer(self, mode: Mode | None, confines: Sequence[Mode], wanted: str) -> None:
        """Offer the tiers for a session of *mode*, if that is one of *confines*; preselect *wanted*."""
        self._mode = mode
        tiers = [each.tier for each in self.may_be.tiers] if mode in confines else []
        options = tiers if mode is Mode.INTERPRETER else [NONE, *tiers]
        off = [each.tier for each in self.may_be.tiers if self._find_problem(each)]
        self.choice.put(options, options.index(wanted) if wanted in options else 0, off)
        self.choice.can_focus = self.is_open
        self.is_offered = options not in ([NONE], [])

    def say(self) -> bool:
        """Show what is known of the chosen tier; return whether its preview must be requested."""
        self.confined, self._refusal, self.is_asked = None, "", False
        if why := self.why_not:
            self.gets.say(*((clean_line(line), Token.ERROR) for line in why.split("\n")))
        elif self._mode is Mode.INTERPRETER:
            project = f" They see {self.may_be.project} as /project." if self.may_be.project else ""
            self.gets.say((INTERPRETERS + clean_line(project), Token.FAINT))
        else:
            not_here = [each.tier for each in self.may_be.tiers if self._find_problem(each)]
            message = f"unavailable: {', '.join(not_here)}" if not_here and not self.tier and self.is_open else ""
            self.gets.say(*([(message, Token.FAINT)] if message else []))
            self.is_asked = bool(self.tier)
        return self.is_asked

    def show_preview(self, confined: SandboxPreview | None, why_not: str = "") -> None:
        """Show what the chosen sandbox would get; None if the session cannot have it, with the reason *why_not*."""
        self.is_asked = False
        self.confined, self._refusal = confined, why_not if confined is None else ""
        if confined is None:
            self.gets.say(*((clean_line(line), Token.ERROR) for line in why_not.split("\n")))
        else:
            self.gets.say(*((clean_line(line), Token.FAINT) for line in confined.lines))

    def _find_offer(self, tier: str) -> TierOffer:
        return next((each for each in self.may_be.tiers if each.tier == tier), TierOffer(tier=tier))

    def _find_problem(self, offer: TierOffer) -> str:
        return NO_AGENTS if not offer.has_agents and self._mode is not Mode.INTERPRETER else offer.why_not
