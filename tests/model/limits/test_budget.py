"""What is spent of a budget, and by whom."""

from typing import Any

import pytest

from kasmon.model.commands import Mode
from kasmon.model.events import UsageReported
from kasmon.model.limits.budget import Budget, of_session, parse_budget, uses
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.session import DAY_S, Session

DAY = 20_000
MIDNIGHT = float(DAY * DAY_S)


def spending(name: str, *reports: tuple[float, int, float | None], **more: Any) -> Session:
    """A session that reported these totals: when, in hours after midnight, tokens, and money."""
    session = Session(id=SessionId(name), name=name, mode=Mode.SDK, **more)
    for hours, tokens, cost_usd in reports:
        at = MIDNIGHT + hours * 3600
        session = apply(session, UsageReported(at=at, input=tokens, cost_usd=cost_usd))
    return session


def budget(scope: Any, text: str) -> Budget:
    parsed = parse_budget(scope, text)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("$2.50", 2.5, "$2.50"),
        ("800", 800, "800 tokens"),
        ("500k", 500_000, "500.0k tokens"),
        ("1.5M", 1_500_000, "1.5M tokens"),
    ],
)
def test_a_budget_is_money_or_tokens(text: str, most: float, shown: str) -> None:
    assert (most, shown) == (budget("day", text).most, budget("day", text).text)
    assert parse_budget("day", "") is None


def test_each_session_each_plan_and_the_day_has_a_budget_and_the_fullest_is_first() -> None:
    sessions = [
        spending("a", (1, 600, 1.0), plan="p"),
        spending("b", (1, 300, None), plan="p"),
        spending("c", (1, 100, 0.5)),
    ]
    budgets = [budget("session", "1k"), budget("plan", "1k"), budget("day", "$2")]
    found = uses(budgets, sessions, MIDNIGHT + 7200)

    assert [("plan", "p", 900), ("day", "", 1.5), ("session", "a", 600), ("session", "b", 300)] == [
        (use.budget.scope, use.subject, use.spent) for use in found[:4]
    ]
    assert ["day", "session"] == [use.budget.scope for use in of_session(found, sessions[2])]


def test_a_day_counts_usage_since_midnight() -> None:
    sessions = [
        spending("old", (-30, 900, 9.0)),
        spending("both", (-2, 500, 5.0), (-1, 600, 6.0), (1, 650, 6.5), (2, 700, 7.0)),
        spending("new", (3, 40, None)),
    ]
    (tokens,) = uses([budget("day", "1k")], sessions, MIDNIGHT + 5 * 3600)
    (money,) = uses([budget("day", "$1")], sessions, MIDNIGHT + 5 * 3600)

    assert (140, False) == (tokens.spent, tokens.is_used_up)
    assert (1.0, True, "the budget of the day: $1.00 of $1.00") == (money.spent, money.is_used_up, money.text)
    assert [] == uses([budget("day", "1k")], sessions, MIDNIGHT + DAY_S)
