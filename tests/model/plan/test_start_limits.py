"""What budgets and accounts let begin of a plan."""

from typing import Any

import pytest

from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import PlanRun
from kasmon.model.plan.scheduler import NextSteps, StartNextAttempt, next_steps
from kasmon.model.plan.start_limits import AccountSpread, AccountUse, StartLimits
from tests.support.sample_plans import NOW, began, done, failed, plan, run, session, steered, task, words

AGENTS = frozenset({"scripted"})
FULL = "it is at its limit until 15:00"


def uses(**used: float | str | None) -> dict[str, AccountUse]:
    """Accounts of the scripted agent: what is used of each, or why it gets no task."""
    return {
        name: AccountUse(agents=AGENTS, problem=use) if isinstance(use, str) else AccountUse(agents=AGENTS, used=use)
        for name, use in used.items()
    }


def spread(*tasks: str, **more: Any) -> Plan:
    return plan(*(task(id_, retries=1) for id_ in tasks), **{"accounts": ("work", "home"), **more})


def ahead(of: Plan, at: PlanRun, accounts: dict[str, AccountUse], held: str = "", limit: int = 8) -> NextSteps:
    sessions = {str(one.id): one for one in (session(id_) for id_ in at.tasks)}
    return next_steps(of, at, sessions, limit, NOW, limits=StartLimits(held=held, accounts=accounts))


def chosen(of: Plan, at: PlanRun, accounts: dict[str, AccountUse]) -> list[str]:
    return [step.account.account for step in ahead(of, at, accounts).steps if isinstance(step, StartNextAttempt)]


def test_the_account_whose_limits_are_used_least_is_chosen_with_the_reason() -> None:
    (step,) = ahead(spread("a"), run(), uses(work=0.5, home=0.25)).steps

    assert isinstance(step, StartNextAttempt)
    assert ("home", "25% of its fullest limit are used") == step.account
    assert ["home", "home"] == chosen(spread("a", "b"), run(), uses(work=0.5, home=0.25))


def test_of_equally_used_accounts_the_one_with_fewer_running_tasks_is_chosen() -> None:
    assert ["work", "home", "work"] == chosen(spread("a", "b", "c"), run(), uses(work=None, home=None))
    assert ["home"] == chosen(spread("a", "b"), run(began("a", account="work")), uses(work=0.1, home=0.1))
    ended = run(*done("a"))
    assert ["work"] == chosen(spread("a", "b"), ended, uses(work=0.1, home=0.1))


def test_with_in_turn_each_account_follows_the_last_used_one() -> None:
    turns = spread("a", "b", "c", spread="round-robin")
    assert ["work", "home", "work"] == chosen(turns, run(), uses(work=0.9, home=None))
    begun = run(began("a", at=10, account="work"), began("b", at=11, account="home"))
    assert ["work"] == chosen(turns, begun, uses(work=0.9, home=0.0))
    assert ["home", "home"] == chosen(turns, run(began("a", account="work")), uses(work=FULL, home=0.0))


def test_an_account_at_its_limit_gets_no_task_and_a_retry_may_get_another_one() -> None:
    assert ["home"] == chosen(spread("a"), run(), uses(work=FULL, home=0.99))
    again = run(began("a", account="work"), *failed("a")[1:])
    assert ["home"] == [
        step.account.account
        for step in next_steps(
            spread("a"), again, {}, 8, NOW, limits=StartLimits(accounts=uses(work=FULL, home=0.9))
        ).steps
        if isinstance(step, StartNextAttempt)
    ]


@pytest.mark.parametrize("headless", [False, True])
def test_while_all_accounts_are_at_their_limits_a_task_waits_with_the_reason_even_without_a_user(
    headless: bool,
) -> None:
    found = ahead(spread("a"), run(headless=headless), uses(work=FULL, home="it is at its limit"))

    assert [] == words(found)
    assert {"a": f"account 'work': {FULL}; account 'home': it is at its limit"} == found.blocked


def test_an_account_missing_in_the_config_is_never_replaced_by_the_default_login() -> None:
    found = ahead(spread("a"), run(), {})
    assert ([], "account 'work': it is not in the config; account 'home': it is not in the config") == (
        words(found),
        found.blocked["a"],
    )
    assert ["home"] == chosen(spread("a"), run(), uses(home=0.9))
    lost = "account 'work': it is not in the config; account 'home': it is not in the config"
    assert [f"finish failed, {lost}"] == words(ahead(spread("a"), run(headless=True), {})), "no person could add it"
    assert [] == words(ahead(spread("a"), run(headless=True), uses(home=FULL))), "a limit ends"


def test_a_task_gets_accounts_of_its_own_agent_only_and_a_command_none() -> None:
    mixed = uses(work=0.0, home=0.0) | {"other": AccountUse(agents=frozenset({"codex"}))}
    both = plan(
        task("a", accounts=("home",)), task("b", agent="codex"), task("c", run="make"), task("d", agent="amp"),
        accounts=("work", "other"),
    )  # fmt: skip
    assert ["home", "other", "", ""] == chosen(both, run(), mixed)
    replaced = AccountSpread(both, run(began("a"), steered("replace", "a", "codex")), mixed)
    assert "other" == replaced.choose(both.task("a")).account


def test_a_used_up_budget_holds_each_task_that_could_start() -> None:
    found = ahead(spread("a"), run(), uses(work=0.0, home=0.0), held="the budget of the day is used")
    assert ([], {"a": "the budget of the day is used"}) == (words(found), found.blocked)
    assert ("the budget of the day is used", True) == (found.held, found.question.startswith(found.held))
    at_work = ahead(spread("a", "b"), run(began("a")), {}, held="it is used")
    assert ("it is used", "") == (at_work.held, at_work.question), "a person is asked once nothing runs"
    assert "" == ahead(spread("a"), run(began("a")), {}, held="it is used").held, "nothing else could start"


def test_without_a_user_a_plan_ends_once_its_budget_is_used_and_nothing_runs() -> None:
    held, of = "the budget of the day: $5.00 of $5.00 is used", spread("a", "b")

    assert [f"finish failed, {held}: raise it in the table [budget] of the config"] == words(
        ahead(of, run(headless=True), {}, held)
    )
    assert [] == words(ahead(of, run(began("a"), headless=True), {}, held)), "what runs goes on"
    assert [] == words(ahead(of, run(steered("pause"), headless=True), {}, held))
