"""The budgets of the config: what is spent of each, and whether another prompt may be sent."""

import time
from collections.abc import Iterable, Sequence

import msgspec

from kasmon.config.parser import load_or_default
from kasmon.config.schema import BudgetConfig, Config
from kasmon.errors import RefusedError
from kasmon.model.limits.budget import WARN_SHARE, Budget, BudgetScope, BudgetUse, of_session, parse_budget, uses
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.supervisor.fleet.snapshot import read_fleet

PLAN = "plan"
"""What the sessions of one plan have as its id while they are summed: those of other machines name no plan."""


def budgets_of(config: Config) -> tuple[Budget, ...]:
    texts: dict[BudgetScope, str] = {
        "session": config.budget.per_session,
        "plan": config.budget.per_plan,
        "day": config.budget.per_day,
    }
    return tuple(budget for scope, text in texts.items() if (budget := parse_budget(scope, text)) is not None)


def held_plan(config: Config, of_plan: Iterable[Session], sessions: Iterable[Session]) -> str:
    """Return why no further task of a plan may start: a budget that is used up; empty if one may.

    *of_plan*: the sessions of the plan, also those of other machines.
    """
    budgets, now = budgets_of(config), time.time()
    if not budgets:
        return ""
    whole = [msgspec.structs.replace(session, plan=PLAN) for session in of_plan]
    found = uses([each for each in budgets if each.scope == "plan"], whole, now)
    found += uses([each for each in budgets if each.scope == "day"], sessions, now)
    return next((f"{each.text} is used" for each in found if each.is_used_up), "")


def require_budget(config: Config, session: Session | None, sessions: Sequence[Session]) -> None:
    """Raise `RefusedError` if a budget is used up that a prompt to *session* would add to; None is a new session."""
    for use in _list_uses(config, session, sessions):
        if use.is_used_up:
            raise RefusedError(
                f"{use.text} is used, so no prompt is sent.",
                hint="Send it all the same with `kasmon send --over-budget`, or raise it in the table [budget].",
            )


def find_warnings(paths: Paths, session: Session) -> list[str]:
    """Return the budgets that a prompt to *session* adds to and of which 80 % are used, for people. Blocks."""
    config = load_or_default(paths)
    if config.budget == BudgetConfig():
        return []
    found = _list_uses(config, session, read_fleet(paths).sessions)
    return [use.text for use in found if use.share >= WARN_SHARE]


def _list_uses(config: Config, session: Session | None, sessions: Sequence[Session]) -> list[BudgetUse]:
    found = uses(budgets_of(config), sessions, time.time())
    return of_session(found, session) if session is not None else [use for use in found if not use.subject]
