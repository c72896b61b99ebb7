"""Plans spread over accounts, and are held by budgets: real hosts, scripted agents, what these reported."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from kasmon.config import Config
from kasmon.config.schema import AccountConfig, Profile
from kasmon.errors import KasmonError
from kasmon.model.commands import Mode
from kasmon.model.limits.resume import UNKNOWN_S
from kasmon.model.limits.window import LimitWindow
from kasmon.model.permission import SessionId
from kasmon.model.plan.parser import read
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import TaskState
from kasmon.model.session_state import SessionState
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.approval import describe_plan
from kasmon.supervisor.plans.start_limits import check_accounts, find_start_limits
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create
from tests.supervisor.plans.test_runner import Site
from tests.support.supervisor.env import Env
from tests.support.tui.dashboard import Home
from tests.support.wait import until

ACCOUNTS = {
    "work": AccountConfig(agent="scripted", env={"WORK": "1"}),
    "home": AccountConfig(agent="scripted"),
    "mine": AccountConfig(agent="scripted", env={"KEY": "$MINE"}),
    "other": AccountConfig(agent="shell", env={"X": "1"}),
    "folder": AccountConfig(agent="claude", directory="/no/such"),
}
CONFIG = Config(
    default_agent="scripted",
    accounts=ACCOUNTS,
    agents={
        "scripted": Profile(program="scripted"),
        "shell": Profile(program="/bin/sh"),
        "claude": Profile(program="claude"),
    },
)
FILE = '[accounts.work]\nagent = "scripted"\n[accounts.home]\nagent = "scripted"\n'
HEAD = 'worktree = "folder"\nadvance = "auto"\naccounts = ["work", "home"]\n'


def made(text: str, head: str = HEAD) -> Plan:
    return read(f"{head}{text}", "tidy.toml")


def task(prompt: str = "say hello", more: str = "") -> str:
    return f"[[task]]\nprompt = '''{prompt}'''\n{more}\n"


def start(home: Home, account: str, prompt: str) -> SessionId:
    new = NewSession(name=account, agent="scripted", mode=Mode.SDK, workdir="/", prompt=prompt, account=account)
    return asyncio.run(create(home.paths, CONFIG, new))


def configure(env: Env | Home, text: str = FILE) -> None:
    env.paths.config.mkdir(mode=0o700, exist_ok=True)
    env.paths.config_file.write_text(text)


def test_the_tasks_of_a_plan_run_with_its_accounts_in_turn_and_the_log_gives_the_reason(env: Env) -> None:
    configure(env)
    site = Site(env, HEAD + 'limit = 1\nspread = "round-robin"\n' + task() * 3, headless=True)

    run = asyncio.run(site.run())

    assert "claimed" == run.outcome
    assert ["work", "home", "work"] == [run.of(id_).ran.account for id_ in "123"]  # type: ignore[union-attr]
    assert "the next in turn" == run.of("1").ran.account_why  # type: ignore[union-attr]
    sessions = {each.id: each.account for each in site.fleet().sessions}
    assert ["work", "home", "work"] == [sessions[run.of(id_).session] for id_ in "123"]  # type: ignore[index]


def test_an_account_whose_agent_reported_its_limit_gets_no_further_task(env: Env) -> None:
    configure(env)
    full = task("window five_hour 100 3600\nsay done", 'id = "full"')
    site = Site(env, HEAD + full + task(more='id = "next"\nneeds = ["full"]'), headless=True)

    run = asyncio.run(site.run())

    assert ("work", "home") == (run.of("full").ran.account, run.of("next").ran.account)  # type: ignore[union-attr]


def test_limits_that_sessions_reported_decide_and_are_shown_before_the_plan_starts(home: Home) -> None:
    configure(home)
    plan = made(task() * 2)
    first = start(home, "work", "window five_hour 60 3600\nsay x")
    until(lambda: bool(home.session(first).limit_windows), what="the report")

    sessions = read_fleet(home.paths).sessions
    found = find_start_limits(CONFIG, plan, (), sessions).accounts
    assert (0.6, None, "") == (found["work"].used, found["home"].used, found["work"].problem)
    shown = describe_plan(plan, CONFIG, Path("/p"), sessions=sessions)
    assert "  spreads task 1, 2 over the accounts work, home, the least used first" in shown
    assert "  now, task 1 would use 'home' (no use of it is known)" in shown

    second = start(home, "home", "window five_hour 100 3600\nlimit")
    until(lambda: home.session(second).state is SessionState.LIMITED, what="the limit")
    sessions = read_fleet(home.paths).sessions
    assert find_start_limits(CONFIG, plan, (), sessions).accounts["home"].problem.startswith("it is at its limit until")
    shown = describe_plan(plan, CONFIG, Path("/p"), sessions=sessions)
    assert "  now, task 2 would use 'work' (60% of its fullest limit are used)" in shown
    assert any(line.startswith("  now, account 'home' gets no task: it is at its limit until") for line in shown)


def test_a_limit_without_a_known_end_keeps_an_account_from_tasks_for_a_bounded_time(home: Home) -> None:
    configure(home)
    first = start(home, "work", "window five_hour 100 3600\nsay x")
    until(lambda: bool(home.session(first).limit_windows), what="the report")

    def problem(reported_at: float) -> str:
        window = LimitWindow(name="five_hour", used=1.0, is_reached=True, at=reported_at)
        session = msgspec.structs.replace(home.session(first), limit_windows=(window,))
        return find_start_limits(CONFIG, made(task()), (), [session]).accounts["work"].problem

    assert problem(time.time() - UNKNOWN_S + 60).startswith("it is at its limit until")
    assert "" == problem(time.time() - UNKNOWN_S - 1)


def test_a_plan_whose_task_could_not_use_its_account_is_refused_before_it_starts() -> None:
    mine = 'accounts = ["mine"]\n'
    check_accounts(CONFIG, made(task()), {})
    check_accounts(CONFIG, made(task(), head=mine), {"MINE": "key"})
    check_accounts(CONFIG, made(task(), head=""), {})
    refused = {
        "no account 'nobody'": made(task(), head='accounts = ["nobody"]\n'),
        "'MINE' of the account 'mine' is not set": made(task(), head=mine),
        "one of 'shell', and 'scripted' runs": made(task(more='accounts = ["other"]'), head=""),
        "no task of the plan can use the account 'other'": made(task(), head='accounts = ["work", "other"]\n'),
    }
    for why, plan in refused.items():
        with pytest.raises(KasmonError, match=why):
            check_accounts(CONFIG, plan, {})


def test_a_plan_without_a_user_ends_once_its_budget_is_used_and_reports_it(env: Env) -> None:
    configure(env, '[budget]\nper_plan = "1k"\n')
    spends = task("usage 900 200\nsay done", 'id = "spends"')
    more = task(more='id = "more"\nneeds = ["spends"]')
    site = Site(env, 'worktree = "folder"\nadvance = "auto"\n' + spends + more, headless=True)

    run = asyncio.run(site.run())

    assert ("failed", TaskState.DONE, 0) == (run.outcome, run.of("spends").state, run.of("more").attempt)
    assert run.why.startswith("the budget of the plan: 1.1k tokens of 1.0k tokens is used: raise it")
