"""Which answer to the shown request is possible, and the answer itself, which names what was shown. Pure."""

from collections.abc import Iterator
from typing import Final

import msgspec

from kasmon.model.commands import Answer
from kasmon.model.permission import Decision, Request, SessionId
from kasmon.tui.key_names import shown_key
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions.card.text import CardState
from kasmon.tui.permissions.request_edit import can_edit

NO_RULES: Final = "The agent accepts no rules for this request."
STANDING: Final = frozenset({Decision.ALWAYS, Decision.NEVER})
"""Answers that create a rule."""


class CardDecision(msgspec.Struct, frozen=True):
    """What the user may decide about a card in *state*. Each `why_not` is empty if the user may."""

    state: CardState
    is_whole: bool
    """Whether the rule with its scope is shown in full."""
    keys: KeyMap
    utf8: bool

    @property
    def request(self) -> Request:
        return self.state.sheet.request

    def offered(self, decision: Decision) -> Decision:
        """Return what an allowing *decision* is for the agent."""
        return Decision.EDIT if self.state.edited else decision

    def why_not_approve(self) -> str:
        """Why nothing that lets the agent proceed may be sent right now."""
        return "" if self.state.read else "Scroll to the end first: there is more below."

    def why_not_allow(self, decision: Decision) -> str:
        if self.state.edited and decision is Decision.ALWAYS:
            return "An edited input can only be allowed once."
        rule = self.why_no_rule() if decision is Decision.ALWAYS else ""
        return self._why_not_offered(self.offered(decision)) or rule or self.why_not_approve()

    def why_not_deny(self, decision: Decision) -> str:
        return self._why_not_offered(decision) or (self.why_no_rule() if decision is Decision.NEVER else "")

    def why_not_edit(self) -> str:
        if Decision.EDIT not in self.request.choices or not self.request.input:
            return "The agent accepts no edited input for this request."
        if not can_edit(self.request):
            return "Cannot edit this input: a text box would change some of its characters."
        return self.why_not_approve()

    def why_not_choose(self, is_marked: bool) -> str:
        """Why the marked options may not be sent; *is_marked*: whether there are any."""
        if Decision.CHOOSE not in self.request.choices:
            return f"Enter never approves: {self._describe_keys()}"
        return self.why_not_approve() if is_marked else "Mark an answer first."

    def why_no_scope(self) -> str:
        return self.why_no_rule() or ("" if STANDING.intersection(self.request.choices) else NO_RULES)

    def why_no_rule(self) -> str:
        """Why this request cannot become a rule: that contains no secret, and is shown completely with its scope."""
        state = self.state
        if state.group:
            return "A rule needs a single request: Esc goes back to it."
        if state.sheet.secrets:
            return "No rule can be created from a request with a secret."
        if not self.request.rule:
            return "No rule can be created from this request."
        is_shown = state.may_rule and self.is_whole
        return "" if is_shown else "The rule does not fit this window. Enlarge the window first."

    def _why_not_offered(self, decision: Decision) -> str:
        if decision in self.request.choices:
            return ""
        if not self.request.answerable or not self.request.choices:
            return "Answer this request in the agent's terminal: Enter opens it."
        if Decision.CHOOSE in self.request.choices:
            return f"This is a question: {self._describe_keys()}"
        return f"Not accepted here. The agent accepts: {', '.join(self.request.choices)}."

    def why_unused(self, key: str) -> str:
        """Return a message that *key* does nothing here, with the keys that do."""
        return f"{shown_key(key, self.utf8)} does nothing here: {self._describe_keys()}"

    def _describe_keys(self) -> str:
        if Decision.CHOOSE in self.request.choices:
            return "choose an answer, then press Enter."
        allow, deny = self.keys.shown("allow_once", self.utf8), self.keys.shown("deny", self.utf8)
        keys = {Decision.ALLOW: f"{allow} allows once", Decision.DENY: f"{deny} denies"}
        offered = [
            text for decision, text in keys.items() if self.request.answerable and decision in self.request.choices
        ]
        return f"{', '.join(offered)}." if offered else "Enter opens the agent's terminal."

    def answers(
        self, decision: Decision, reason: str = "", labels: tuple[str, ...] = (), text: str = ""
    ) -> Iterator[tuple[SessionId, Answer]]:
        """Yield the answers, each with its session: to one request, or to all of a list still pending as they were."""
        state = self.state
        listed = [entry.request for entry in state.group if entry not in state.left_out]
        for request in listed if state.group else [self.request]:
            answer = Answer(
                request=request.id,
                digest=request.digest,
                decision=decision,
                reason=reason,
                input=state.edited_input if decision is Decision.EDIT else None,
                labels=labels,
                text=text,
                scope=state.scope if decision in STANDING else "session",
            )
            yield request.session, answer
