"""The plans as they go on, for the wave board; and what is decided there."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from kasmon.config import Config, Plans
from kasmon.config.schema import AccountConfig, BudgetConfig, Profile
from kasmon.errors import PlanFaultyError, PlanNotFoundError, RefusedError, UsageError
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.commands import ActingAgent
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PlanEnded, TaskBegan, TaskDone
from kasmon.model.plan.parser import read
from kasmon.model.plan.progress import TaskState
from kasmon.model.session import DAY_S
from kasmon.model.session_state import SessionState
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans import boards as module
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.boards import PlanBoard, PlanBoards
from kasmon.supervisor.plans.decisions import apply_edit, record_decision
from tests.support.sample_fleet import NOW, fleet, idle, session, working
from tests.support.supervisor.env import Env

TEXT = "# Tidy\n\n## Wave 1\n\n### Task 1: Sweep\n\nSweep.\n\n## Wave 2\n\n### Task 2: Mop\n\nMop.\n"


class Desk:
    """A kasmon with plans that nobody runs, whose fleet and config are set by hand."""

    def __init__(self, env: Env) -> None:
        self.paths = env.paths
        self.folder = env.folder
        self.fleet, self.config = Fleet(), Config()
        self.boards = PlanBoards(self.paths, lambda: self.fleet, lambda: self.config)
        self.locks: list[HostLock] = []

    def begin(self, name: str = "tidy.md", text: str = TEXT, *, is_run: bool = True) -> PlanLog:
        """A plan that was agreed to; with *is_run* somebody holds its runner's lock."""
        file = self.folder / name
        file.write_text(text)
        book = start.store_approved_plan(self.paths, read(text, name), text, file, self.folder, headless=False)
        if is_run:
            lock = HostLock(book.lock)
            assert lock.acquire()
            self.locks.append(lock)
        return book

    def read(self) -> tuple[PlanBoard, ...]:
        return self.boards.read()

    def only(self) -> PlanBoard:
        (board,) = self.read()
        return board


@pytest.fixture
def cli(env: Env, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Files and locks are looked at with every look."""
    monkeypatch.setattr(module, "SELDOM_S", 0.0)
    made = Desk(env)
    yield made
    for lock in made.locks:
        lock.let_go()


def began(task: str = "1", session: str = "s1") -> TaskBegan:
    return TaskBegan(at=NOW, task=task, attempt=1, session=session, name=f"tidy-{task}")


def test_without_a_plan_there_is_no_board(cli: Desk) -> None:
    assert () == cli.read()


def test_a_board_has_the_agreed_plan_its_progress_and_its_next_steps(cli: Desk) -> None:
    book = cli.begin()
    book.add(began())
    board = cli.only()

    assert ("tidy", "Tidy", True, "") == (board.id, board.plan.name, board.is_run, board.problem)
    assert TaskState.RUNNING is board.run.of("1").state
    assert {"2": "blocked by wave 1"} == board.ahead.blocked
    assert ("claude", "ask") == (board.plan.agent, board.plan.advance)


def test_an_unchanged_board_is_the_same_object(cli: Desk) -> None:
    first, second = cli.begin(), cli.begin("other.md", TEXT)
    before = cli.read()
    assert before is cli.read()

    first.add(began())
    after = cli.read()
    changed = {board.id for board in after if not any(board is one for one in before)}
    assert {first.plan} == changed
    assert second.plan in {board.id for board in after}


def test_a_board_has_the_sessions_started_by_agents_of_its_tasks_and_changes_with_them(
    cli: Desk,
) -> None:
    cli.begin()
    mine = working("s1", plan="tidy")
    child = working("c1", actor=ActingAgent(session=mine.id))
    below = working("c2", actor=ActingAgent(session=child.id, depth=1))
    cli.fleet = fleet(mine, child, below, working("s2", actor=ActingAgent(session=SessionId("other"))))
    before = cli.only()
    assert {"s1": (child, below)} == before.children
    cli.fleet = fleet(mine, child, below)
    assert before is cli.only()
    cli.fleet = fleet(mine, child, idle("c2", actor=below.actor))

    assert ["working", "idle"] == [each.state.value for each in cli.only().children["s1"]]


def test_the_sessions_of_its_tasks_are_included_and_only_they_change_it(cli: Desk) -> None:
    cli.begin()
    mine, other = working("s1", plan="tidy"), working("s2")
    cli.fleet = fleet(mine, other)
    before = cli.only()
    assert {"s1": mine} == before.sessions

    cli.fleet = fleet(mine, msgspec.structs.replace(other, cost_usd=1.0))
    assert before is cli.only()
    cli.fleet = fleet(msgspec.structs.replace(mine, cost_usd=1.0), other)
    assert 1.0 == cli.only().sessions["s1"].cost_usd


def test_a_plan_without_a_runner_is_detected(cli: Desk) -> None:
    cli.begin()
    assert cli.only().is_run

    cli.locks.pop().let_go()
    assert not cli.only().is_run


def test_running_plans_come_before_ended_ones_and_the_newest_first(cli: Desk) -> None:
    first, second, third = cli.begin("a.md"), cli.begin("b.md"), cli.begin("c.md")
    third.add(PlanEnded(at=NOW, outcome="done"))
    cli.read()

    assert [second.plan, first.plan, third.plan] == [board.id for board in cli.read()]


def test_an_edited_file_is_shown_as_its_changes_and_the_agreed_text(cli: Desk) -> None:
    cli.begin()
    assert cli.only().edit is None

    (cli.folder / "tidy.md").write_text(TEXT + "\n### Task 3: Air\n\nAir.\n")
    edit = cli.only().edit
    assert edit is not None
    assert ("+ task 3: Air",) == edit.lines
    assert "3 tasks in 2 waves" in edit.agreement[0]

    (cli.folder / "tidy.md").write_text(TEXT)
    assert cli.only().edit is None


def test_an_edit_that_removes_a_started_task_or_is_unreadable_gives_the_reason(cli: Desk) -> None:
    cli.begin().add(began("2"))
    (cli.folder / "tidy.md").write_text(TEXT[: TEXT.index("## Wave 2")])
    edit = cli.only().edit
    assert edit is not None
    assert ("task '2' has started, but the file no longer contains it",) == edit.refused

    (cli.folder / "tidy.md").write_text("# Tidy\n\n## Wave 1\n\n## Wave 2\n")
    edit = cli.only().edit
    assert edit is not None
    assert edit.refused[0].startswith("tidy.md:")


def test_a_file_that_is_gone_is_no_edit(cli: Desk) -> None:
    cli.begin()
    (cli.folder / "tidy.md").unlink()

    assert cli.only().edit is None


def test_a_plan_without_its_agreed_text_reports_it_and_the_others_are_shown(cli: Desk) -> None:
    book = cli.begin()
    cli.begin("other.md")
    book.agreed.unlink()

    problems = {board.id: bool(board.problem) for board in cli.read()}
    assert {book.plan: True, "tidy-2": False} == problems


def test_reading_writes_nothing(cli: Desk) -> None:
    cli.begin().add(began())

    def files() -> list[tuple[Path, int, int]]:
        return sorted(
            (path, facts.st_mtime_ns, facts.st_size) for path in cli.paths.state.rglob("*") for facts in [path.stat()]
        )

    before = files()
    cli.read()
    cli.read()
    assert before == files()


def test_a_read_of_unchanged_plans_opens_no_file(cli: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SELDOM_S", 3600.0)
    cli.begin().add(began())
    cli.begin("other.md").add(PlanEnded(at=NOW, outcome="done"))
    cli.read()
    cli.read()
    with monkeypatch.context() as still:
        for owner, name in ((os, "open"), (Path, "open"), (Path, "iterdir")):
            still.setattr(owner, name, lambda *given, **named: pytest.fail(f"opened {given}"))
        cli.read()


async def test_the_feed_yields_at_once_and_then_only_what_changed(cli: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    book = await asyncio.to_thread(cli.begin)
    feed = cast("AsyncGenerator[tuple[PlanBoard, ...]]", cli.boards.changes())
    (first,) = await anext(feed)
    assert TaskState.WAITING is first.run.of("1").state

    await asyncio.to_thread(book.add, began())
    async with asyncio.timeout(60):
        (second,) = await anext(feed)
    assert TaskState.RUNNING is second.run.of("1").state
    await feed.aclose()


def test_a_decision_is_logged_for_the_runner(cli: Desk) -> None:
    book = cli.begin()
    record_decision(cli.paths, cli.config, cli.fleet, book.plan, "skip", "1")

    assert TaskState.SKIPPED is cli.only().run.of("1").state


def test_an_invalid_decision_is_refused_and_not_logged(cli: Desk) -> None:
    book = cli.begin()
    size = book.size()

    with pytest.raises(RefusedError, match="has not started"):
        record_decision(cli.paths, cli.config, cli.fleet, book.plan, "retry", "1")
    book.add(began())
    size = book.size()
    with pytest.raises(UsageError, match="there is no agent 'nobody'"):
        record_decision(cli.paths, cli.config, cli.fleet, book.plan, "replace", "1", "nobody")
    assert size == book.size()
    book.add(PlanEnded(at=NOW, outcome="aborted"))
    with pytest.raises(RefusedError, match="has ended: aborted"):
        record_decision(cli.paths, cli.config, cli.fleet, book.plan, "pause")
    with pytest.raises(PlanNotFoundError):
        record_decision(cli.paths, cli.config, cli.fleet, "nothing", "pause")


def test_an_edit_is_applied_exactly_as_shown(cli: Desk) -> None:
    book = cli.begin()
    file = cli.folder / "tidy.md"
    file.write_text(TEXT + "\n### Task 3: Air\n\nAir.\n")
    edit = cli.only().edit
    assert edit is not None

    file.write_text(TEXT + "\n### Task 3: Burn\n\nBurn.\n")
    with pytest.raises(RefusedError, match="has been edited since it was shown"):
        apply_edit(cli.paths, cli.config, book.plan, edit.digest)
    file.write_text(TEXT + "\n### Task 3: Air\n\nAir.\n")
    apply_edit(cli.paths, cli.config, book.plan, edit.digest)

    board = cli.only()
    assert (None, ["1", "2", "3"]) == (board.edit, [task.id for task in board.plan.tasks])


def test_an_edit_that_removes_a_started_task_is_not_applied(cli: Desk) -> None:
    book = cli.begin()
    book.add(began("2"))
    book.add(TaskDone(at=NOW + 1, task="2", attempt=1))
    text = TEXT[: TEXT.index("## Wave 2")]
    (cli.folder / "tidy.md").write_text(text)

    with pytest.raises(RefusedError, match="'2' has started, but the file no longer contains it"):
        apply_edit(cli.paths, cli.config, book.plan, start.digest(text))
    (cli.folder / "tidy.md").write_text("nothing")
    with pytest.raises(PlanFaultyError):
        apply_edit(cli.paths, cli.config, book.plan, start.digest("nothing"))
    assert 2 == len(cli.only().plan.tasks)


def test_an_edit_of_a_task_that_starts_during_its_check_is_not_applied(cli: Desk) -> None:
    book = cli.begin()

    class Profiles(dict[str, Profile]):
        """The runner begins task 2 while these are read."""

        def __iter__(self) -> Iterator[str]:
            PlanLog(cli.paths, book.plan).add(began("2"))
            return super().__iter__()

    text = TEXT.replace("Mop.", "Burn.")
    (cli.folder / "tidy.md").write_text(text)
    config = msgspec.structs.replace(cli.config, agents=Profiles(cli.config.agents))

    with pytest.raises(RefusedError, match="task '2' has started, so its body cannot be changed"):
        apply_edit(cli.paths, config, book.plan, start.digest(text))


def in_folder(cli: Desk, name: str = "new.md", text: str = TEXT) -> Path:
    """A plan file in a folder that the config names; nobody has run it."""
    folder = cli.folder / "plans"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    cli.config = msgspec.structs.replace(Config(), plans=Plans(folders=(str(folder),)))
    return folder / name


def test_a_plan_in_a_folder_is_on_the_board_before_it_runs(cli: Desk) -> None:
    file = in_folder(cli)
    board = cli.only()

    assert (str(file), "Tidy", False) == (board.id, board.plan.name, board.has_begun)
    assert board.edit is not None
    assert "+ task 1: Sweep" in board.edit.lines
    assert any("Plan 'Tidy'" in line for line in board.edit.agreement)


def test_its_faults_are_shown_and_a_fixed_file_is_read_again(cli: Desk) -> None:
    file = in_folder(cli, text=TEXT.replace("Wave 2", "Wave 3"))
    assert "new.md:9: found wave 3 where wave 2 was expected." == cli.only().problem
    file.write_text(TEXT)

    assert "" == cli.only().problem


def test_an_unchanged_file_is_the_same_board(cli: Desk) -> None:
    in_folder(cli)

    assert cli.read() is cli.read()


def test_a_plan_runs_as_shown_and_is_then_listed_once(cli: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")  # its runner ends at once
    file = in_folder(cli)
    board = cli.only()
    assert board.edit is not None
    file.write_text(f"{TEXT}More.\n")
    with pytest.raises(RefusedError, match="edited since"):
        apply_edit(cli.paths, cli.config, board.id, board.edit.digest)
    file.write_text(TEXT)
    apply_edit(cli.paths, cli.config, board.id, board.edit.digest)

    assert [("tidy", True)] == [(board.id, board.has_begun) for board in cli.read()]


def test_a_board_shows_that_a_budget_or_an_account_holds_its_plan_and_why(cli: Desk) -> None:
    cli.begin()
    assert "" == cli.only().ahead.held
    spent = working("other", cost_usd=6.0, usage_day=int(time.time() // DAY_S))
    cli.fleet, cli.config = fleet(spent), Config(budget=BudgetConfig(per_day="$5"))

    held = cli.only().ahead
    assert "the budget of the day: $6.00 of $5.00 is used" == held.held == held.blocked["1"]
    assert held.question.startswith(held.held)
    cli.config = Config(budget=BudgetConfig(per_day="$7"))
    assert ("", "") == (cli.only().ahead.held, cli.only().ahead.question)
    spent = working("own", cost_usd=6.0, plan="tidy")
    cli.fleet, cli.config = fleet(spent), Config(budget=BudgetConfig(per_plan="$5"))
    assert "the budget of the plan: $6.00 of $5.00 is used" == cli.only().ahead.held


def test_a_board_shows_that_all_accounts_of_a_task_are_at_their_limits(cli: Desk) -> None:
    cli.begin(text=TEXT.replace("## Wave 1", "**Agent:** claude\n**Accounts:** work\n\n## Wave 1"))
    cli.config = Config(accounts={"work": AccountConfig(agent="claude")})
    assert "1" not in cli.only().ahead.blocked
    limited = session("s", SessionState.LIMITED, account="work", program="claude", limited_until=time.time() + 600)
    cli.fleet = fleet(limited)
    assert cli.only().ahead.blocked["1"].startswith("account 'work': it is at its limit until ")
