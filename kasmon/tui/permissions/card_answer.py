"""Answers from the card: which answer a key means, when it is allowed, and that it names the shown request."""

from typing import Final

from kasmon.model.commands import Answer
from kasmon.model.permission import Decision, RequestId
from kasmon.model.rule import Scope
from kasmon.tui.gateway.protocol import SendToAgent
from kasmon.tui.key_names import shown_key
from kasmon.tui.messages import CommandRequested
from kasmon.tui.permissions import question_picks
from kasmon.tui.permissions.card_editor import EditableCard
from kasmon.tui.permissions.card_text import CardMode
from kasmon.tui.permissions.rule_scopes import following

NO_RULES: Final = "The agent accepts no rules for this request."
STANDING: Final = frozenset({Decision.ALWAYS, Decision.NEVER})
"""Answers that create a rule."""


class AnswerableCard(EditableCard):
    """A card that answers: one request, or each of several shown as one list."""

    _spelling_for: Decision = Decision.ALLOW

    def go(self, by: int, answered: frozenset[RequestId] = frozenset()) -> None:
        """Show the next or previous request; close the card if only those just *answered* are left."""
        raise NotImplementedError

    def _allow(self, decision: Decision) -> None:
        edited = self._edited is not None
        offered = Decision.EDIT if edited else decision
        if edited and decision is Decision.ALWAYS:
            self.ignore("An edited input can only be allowed once.")
            return
        why = self._not_offered(offered) or (self._no_rule() if decision is Decision.ALWAYS else "")
        if why := why or self.may_approve():
            self.ignore(why)
            return
        if self._state.sheet.hidden:
            self._spelling_for = offered
            self._change(doing=CardMode.SPELLING, spelled="")
        else:
            self._answer(offered)

    def _deny(self, decision: Decision) -> None:
        """Deny once or always; first ask for a reason if the agent accepts one."""
        if why := self._not_offered(decision) or (self._no_rule() if decision is Decision.NEVER else ""):
            self.ignore(why)
            return
        if decision is not Decision.CANCEL and (self._state.is_heard or self._state.together):
            self._write_reason(decision)
        elif not self._state.together:
            self._answer(decision)

    def _not_offered(self, decision: Decision) -> str:
        """Why *decision* is no answer to this request; empty if it is one."""
        if decision in self.request.choices:
            return ""
        if not self.request.answerable or not self.request.choices:
            return "Answer this request in the agent's terminal: Enter opens it."
        if Decision.CHOOSE in self.request.choices:
            return f"This is a question: {self._describe_keys()}"
        return f"Not accepted here. The agent accepts: {', '.join(self.request.choices)}."

    def _no_rule(self) -> str:
        """Why this request cannot become a rule; empty if it can."""
        state = self._state
        if state.together:
            return "A rule needs a single request: Esc goes back to it."
        if state.sheet.secrets:
            return "No rule can be created from a request with a secret."
        if not self.request.rule:
            return "No rule can be created from this request."
        return "" if self._may_rule() else "The rule does not fit this window. Enlarge the window first."

    def _may_rule(self) -> bool:
        """Whether a rule may be created: it contains no secret, and is shown completely with its scope."""
        return self._state.may_rule and self._is_whole

    def _reach(self, wanted: str = "") -> None:
        """Set the rule's scope to *wanted*; to the next scope if empty."""
        if why := self._no_rule() or ("" if STANDING.intersection(self.request.choices) else NO_RULES):
            self.ignore(why)
            return
        if not wanted:
            self._change(scope=following(self._state.scope, self._state.reaches))
            return
        scope: Scope | None = next((each.scope for each in self._state.reaches if each.scope == wanted), None)
        if scope is not None and scope != self._state.scope:
            self._change(scope=scope)

    def _spell(self, character: str) -> None:
        spelled = self._state.spelled + character.casefold()
        if spelled == self.letters():
            self._answer(self._spelling_for)
        elif self.letters().startswith(spelled):
            self._put(spelled=spelled)
        else:
            self._put(spelled="")

    def _pick(self, key: str) -> None:
        if self._state.doing is not CardMode.READING:
            return
        picks, writes = question_picks.pressed(self.request, self._state.picks, key)
        if picks == self._state.picks and not writes:
            self.ignore(self._describe_unused_key(key))
            return
        self._put(picks=picks)
        if writes:
            self._write_words()

    def _choose(self) -> None:
        labels = question_picks.labels(self.request, self._state.picks)
        text = question_picks.words(self.request, self._state.picks)
        if Decision.CHOOSE not in self.request.choices:
            self.ignore(f"Enter never approves: {self._describe_keys()}")
        elif not (labels or text):
            self.ignore("Mark an answer first.")
        elif why := self.may_approve():
            self.ignore(why)
        else:
            self._answer(Decision.CHOOSE, labels=labels, text=text)

    def _describe_unused_key(self, key: str) -> str:
        """A message that *key* does nothing here, with the keys that do."""
        return f"{shown_key(key, self.look.utf8)} does nothing here: {self._describe_keys()}"

    def _describe_keys(self) -> str:
        if Decision.CHOOSE in self.request.choices:
            return "choose an answer, then press Enter."
        allow, deny = self.keys.shown("allow_once", self.look.utf8), self.keys.shown("deny", self.look.utf8)
        return f"{allow} allows once, {deny} denies."

    def said(self, decision: Decision, reason: str) -> None:
        self._answer(decision, reason)

    def _snooze(self) -> None:
        """Snooze the request; if it is snoozed already, go to the next."""
        if self.request.later:
            self.go(1)
        else:
            self._answer(Decision.LATER)

    def _answer(self, decision: Decision, reason: str = "", labels: tuple[str, ...] = (), text: str = "") -> None:
        """Answer what is shown: one request, or each of a list that is pending as it was read."""
        state = self._state
        listed = [entry.request for entry in state.together if entry not in state.left_out]
        requests = listed if state.together else [self.request]
        for request in requests:
            answer = Answer(
                request=request.id,
                digest=request.digest,
                decision=decision,
                reason=reason,
                input=self._edited if decision is Decision.EDIT else None,
                labels=labels,
                text=text,
                scope=state.scope if decision in STANDING else "session",
            )
            self.tell(CommandRequested(SendToAgent(session=request.session, wish=answer)))
        self.go(1, answered=frozenset(request.id for request in requests))
