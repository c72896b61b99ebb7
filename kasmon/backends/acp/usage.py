"""What an agent tells of tokens and money, as totals of the session. Pure.

`usage_update` says what fills the context now and what the session has cost. An answer to a prompt may hold `usage`,
which the protocol means as totals; gemini gives each turn's own figures in `_meta`, opencode those of the turn's last
call of the model, which add up to nothing and are left out.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from acp.schema import Usage, UsageUpdate
from pydantic import ValidationError

from kasmon.backends.acp.known_agents import Quirk
from kasmon.model.commands import ConversationUsage
from kasmon.model.events import UsageReported

NOTHING: Final = ConversationUsage()


class UsageTotals(NamedTuple):
    """Totals so far; tokens. They go on from those of the processes before, whether the agent's own do or not."""

    input: int = 0
    output: int = 0
    context: int = 0
    limit: int = 0
    cost_usd: float | None = None
    missed: tuple[int, int] | None = None
    """What came in and went out before, and is not in the agent's totals; None until it told one."""
    missed_usd: float | None = None

    @classmethod
    def after(cls, used: ConversationUsage) -> "UsageTotals":
        """Those of a session that had *used* so much when its agent was opened."""
        return cls(input=used.input, output=used.output, cost_usd=used.cost_usd)

    def updated(self, update: UsageUpdate) -> "UsageTotals":
        """These, after *update*. A context of no tokens is what opencode says after a turn that failed."""
        now = self._replace(context=update.used or self.context, limit=update.size or self.limit)
        if update.cost is None or update.cost.currency.upper() != "USD":
            return now
        amount, before = update.cost.amount, self.cost_usd or 0.0
        missed = self.missed_usd
        if missed is None:
            missed = before if amount < before else 0.0
        return now._replace(cost_usd=missed + amount, missed_usd=missed)

    def answered(self, answer: Mapping[str, Any], habits: frozenset[Quirk]) -> "UsageTotals":
        """These, after a turn that ended with *answer*."""
        if Quirk.QUOTA in habits:
            took, gave = _quota(answer)
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

    def told(self, at: float) -> UsageReported:
        """The totals as a fact."""
        return UsageReported(
            at=at, input=self.input, output=self.output, context=self.context, limit=self.limit, cost_usd=self.cost_usd
        )


def _quota(answer: Mapping[str, Any]) -> tuple[int, int]:
    """`{"_meta": {"quota": {"token_count": {"input_tokens": 2000, "output_tokens": 50}}}}`, as gemini counts a turn."""
    found: Any = answer
    for name in ("_meta", "quota", "token_count"):
        found = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        return 0, 0
    took, gave = found.get("input_tokens"), found.get("output_tokens")
    return (took if isinstance(took, int) else 0), (gave if isinstance(gave, int) else 0)
