"""Budgets of money or tokens: what is spent of them, and which one does not allow another prompt. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from kasmon.model.formatting import compact
from kasmon.model.session import DAY_S, Session

WARN_SHARE: Final = 0.8
"""From this share of a budget on a person is warned."""
FACTORS: Final = {"": 1, "k": 1000, "M": 1_000_000}

BudgetScope = Literal["session", "plan", "day"]


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The most that may be spent: in money, else in tokens."""

    scope: BudgetScope
    most: float
    is_money: bool

    @property
    def text(self) -> str:
        return self.amount(self.most)

    def amount(self, spent: float) -> str:
        """Return *spent* in its unit: `$4.10`, `1.2M tokens`."""
        return f"${spent:.2f}" if self.is_money else f"{compact(int(spent))} tokens"


class BudgetUse(msgspec.Struct, frozen=True, kw_only=True):
    """What is spent of one budget."""

    budget: Budget
    subject: str
    """The session's or the plan's id; empty for the day."""
    spent: float

    @property
    def share(self) -> float:
        return self.spent / self.budget.most if self.budget.most else 1.0

    @property
    def is_used_up(self) -> bool:
        return self.spent >= self.budget.most

    @property
    def text(self) -> str:
        """For people: `the budget of the day: $4.10 of $5.00`. The subject is left out."""
        return f"the budget of the {self.budget.scope}: {self.budget.amount(self.spent)} of {self.budget.text}"


def parse_budget(scope: BudgetScope, text: str) -> Budget | None:
    """Return the budget that *text* names, as `config.schema.BudgetText` allows it; None if it is empty.

    `$5` is money; `800000`, `500k` and `2M` are tokens.
    """
    if not text:
        return None
    if text.startswith("$"):
        return Budget(scope=scope, most=float(text[1:]), is_money=True)
    unit = text[-1] if text[-1] in FACTORS else ""
    return Budget(scope=scope, most=float(text.removesuffix(unit)) * FACTORS[unit], is_money=False)


def uses(budgets: Sequence[Budget], sessions: Iterable[Session], now: float) -> list[BudgetUse]:
    """Return what is spent of each budget, for each session and plan that spent something; fullest first.

    A day begins at 00:00 UTC. What an agent does not report counts as nothing.
    """
    everyone = list(sessions)
    found: list[BudgetUse] = []
    for budget in budgets:
        spent: dict[str, float] = {"": 0.0} if budget.scope == "day" else {}
        for session in everyone:
            subject = {"session": str(session.id), "plan": session.plan or "", "day": ""}[budget.scope]
            if budget.scope == "plan" and not subject:
                continue
            spent[subject] = spent.get(subject, 0.0) + _sum_use(budget, session, now)
        found += [BudgetUse(budget=budget, subject=subject, spent=amount) for subject, amount in spent.items()]
    return sorted((use for use in found if use.spent), key=lambda use: (-use.share, use.budget.scope, use.subject))


def of_session(all_uses: Iterable[BudgetUse], session: Session) -> list[BudgetUse]:
    """Return those of *all_uses* that a prompt for *session* would add to."""
    subjects = {"session": str(session.id), "plan": session.plan or "", "day": ""}
    return [use for use in all_uses if subjects[use.budget.scope] == use.subject]


def _sum_use(budget: Budget, session: Session, now: float) -> float:
    tokens = session.tokens.used or 0 if session.tokens is not None else 0
    total = session.cost_usd or 0.0 if budget.is_money else float(tokens)
    if budget.scope != "day":
        return total
    if session.usage_day != int(now // DAY_S):
        return 0.0
    before = session.used_before_day
    return max(0.0, total - (before.cost_usd or 0.0 if budget.is_money else before.input + before.output))
