"""Token and cost totals of the session, from an agent's reports. Pure.

`usage_update` reports the current context size and the session's cost. An answer to a prompt may hold `usage`, which
the protocol defines as totals; gemini reports each turn's own figures in `_meta`. opencode reports those of the turn's
last model call, which give no total and are ignored.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from acp.schema import Usage, UsageUpdate
from pydantic import ValidationError

from kasmon.agents.profile import Quirk
from kasmon.backends.common.json_access import count, table
from kasmon.model.commands import ConversationUsage
from kasmon.model.events import UsageReported

NOTHING: Final = ConversationUsage()


class UsageTotals(NamedTuple):
    """Totals so far, in tokens. They continue those of earlier processes, whether the agent's own do or not."""

    input: int = 0
    output: int = 0
    context: int = 0
    limit: int = 0
    cost_usd: float | None = None
    missed: tuple[int, int] | None = None
    """Earlier input and output that the agent's totals do not include; None until it reported one."""
    missed_usd: float | None = None

    @classmethod
    def after(cls, used: ConversationUsage) -> "UsageTotals":
        """Return the totals of a session that had *used* so much when its agent was opened."""
        return cls(input=used.input, output=used.output, cost_usd=used.cost_usd)

    def updated(self, update: UsageUpdate) -> "UsageTotals":
        """Return these, after *update*. opencode reports a context of 0 tokens after a failed turn; this is ignored."""
        now = self._replace(context=update.used or self.context, limit=update.size or self.limit)
        if update.cost is None or update.cost.currency.upper() != "USD":
            return now
        amount, before = update.cost.amount, self.cost_usd or 0.0
        missed = self.missed_usd
        if missed is None:
            missed = before if amount < before else 0.0
        return now._replace(cost_usd=missed + amount, missed_usd=missed)

    def answered(self, answer: Mapping[str, Any], habits: frozenset[Quirk]) -> "UsageTotals":
        """Return these, after a turn that ended with *answer*."""
        if Quirk.QUOTA in habits:
            turn = table(answer, "_meta", "quota", "token_count")  # gemini's figures of this turn alone
            took, gave = count(turn, "input_tokens"), count(turn, "output_tokens")
            return self._replace(input=self.input + took, output=self.output + gave)
        if Quirk.LAST_CALL_ONLY in habits:
            return self
        try:
            usage = Usage.model_validate(answer.get("usage"))
        except ValidationError:
            return self
        took, gave = usage.input_tokens, usage.output_tokens
        missed = self.missed
        if missed is None:
            missed = (self.input, self.output) if took + gave < self.input + self.output else (0, 0)
        return self._replace(input=missed[0] + took, output=missed[1] + gave, missed=missed)

    def to_event(self, at: float) -> UsageReported:
        return UsageReported(
            at=at, input=self.input, output=self.output, context=self.context, limit=self.limit, cost_usd=self.cost_usd
        )
