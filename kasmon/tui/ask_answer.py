"""What a card says for a person: which answer a key means, when it may be given, and that it names what was shown."""

from typing import Final

from kasmon.model.command import Answer
from kasmon.model.permission import Decision, RequestId
from kasmon.model.rule import Scope
from kasmon.tui import ask_pick
from kasmon.tui.ask_pen import AskPen
from kasmon.tui.ask_reach import following
from kasmon.tui.ask_words import Doing
from kasmon.tui.messages import CommandWanted
from kasmon.tui.world import Tell

STANDING: Final = frozenset({Decision.ALWAYS, Decision.NEVER})
"""Answers that make a rule."""


class AskVoice(AskPen):
    """A card that answers: one request, or each of several that are shown as one list."""

    _spelling_for: Decision = Decision.ALLOW

    def go(self, by: int, answered: frozenset[RequestId] = frozenset()) -> None:
        """Show the request after or before this one; leave when there is none but those just *answered*."""
        raise NotImplementedError

    def _allow(self, decision: Decision) -> None:
        edited = self._edited is not None
        offered = Decision.EDIT if edited else decision
        if offered not in self.request.choices or (edited and decision is Decision.ALWAYS) or self.may_approve():
            return
        if decision is Decision.ALWAYS and not self._may_rule():
            return
        if self._state.sheet.hidden:
            self._spelling_for = offered
            self._change(doing=Doing.SPELLING, spelled="")
        else:
            self._answer(offered)

    def _deny(self, decision: Decision) -> None:
        """Deny it now, or from now on: with a reason, which is asked for where the agent hears it."""
        if decision not in self.request.choices or (decision is Decision.NEVER and not self._may_rule()):
            return
        if decision is not Decision.CANCEL and (self._state.is_heard or self._state.together):
            self._write_reason(decision)
        elif not self._state.together:
            self._answer(decision)

    def _may_rule(self) -> bool:
        """Whether a rule may be made: it holds no secret, and all of it is in sight with how far it reaches."""
        return self._state.may_rule and self._is_whole

    def _reach(self, wanted: str = "") -> None:
        """Let a rule reach as far as *wanted*; the next way where that is empty."""
        if not self._may_rule() or not STANDING.intersection(self.request.choices):
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
        if self._state.doing is not Doing.READING:
            return
        picks, writes = ask_pick.pressed(self.request, self._state.picks, key)
        self._put(picks=picks)
        if writes:
            self._write_words()

    def _choose(self) -> None:
        labels = ask_pick.labels(self.request, self._state.picks)
        if Decision.CHOOSE in self.request.choices and labels and not self.may_approve():
            self._answer(Decision.CHOOSE, labels=labels)

    def said(self, decision: Decision, reason: str) -> None:
        self._answer(decision, reason)

    def _set_aside(self) -> None:
        """Not now; what was set aside already stays so."""
        if self.request.later:
            self.go(1)
        else:
            self._answer(Decision.LATER)

    def _answer(self, decision: Decision, reason: str = "", labels: tuple[str, ...] = ()) -> None:
        """Answer what is shown: one request, or each of a list that waits as it was read."""
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
                scope=state.scope if decision in STANDING else "session",
            )
            self.tell(CommandWanted(Tell(session=request.session, wish=answer)))
        self.go(1, answered=frozenset(request.id for request in requests))
