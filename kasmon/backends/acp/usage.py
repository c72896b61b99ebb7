"""What an agent tells of tokens and money, as totals of the session. Pure.

`usage_update` says what fills the context now and what the session has cost. An answer to a prompt may hold `usage`,
which the protocol means as totals; gemini gives each turn's own figures in `_meta`, opencode those of the turn's last
call of the model, which add up to nothing and are left out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from acp.schema import Usage, UsageUpdate
from pydantic import ValidationError

from kasmon.backends.acp.known import Habit
from kasmon.model.event import UsageReported


class Counted(NamedTuple):
    """Totals so far; tokens."""

    input: int = 0
    output: int = 0
    context: int = 0
    limit: int = 0
    cost_usd: float | None = None

    def updated(self, update: UsageUpdate) -> "Counted":
        """These, after *update*. A context of no tokens is what opencode says after a turn that failed."""
        cost = self.cost_usd
        if update.cost is not None and update.cost.currency.upper() == "USD":
            cost = update.cost.amount
        return self._replace(context=update.used or self.context, limit=update.size or self.limit, cost_usd=cost)

    def answered(self, answer: Mapping[str, Any], habits: frozenset[Habit]) -> "Counted":
        """These, after a turn that ended with *answer*."""
        if Habit.QUOTA in habits:
            took, gave = _quota(answer)
            return self._replace(input=self.input + took, output=self.output + gave)
        if Habit.LAST_CALL_ONLY in habits:
            return self
        try:
            usage = Usage.model_validate(answer.get("usage"))
        except ValidationError:
            return self
        return self._replace(input=usage.input_tokens, output=usage.output_tokens)

    def told(self, at: float) -> UsageReported:
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
