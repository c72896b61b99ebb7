"""What a plan leaves on its machines: it is ended when the plan ends or is stopped, once the machine is there."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.plan.events import PlacementEnded, PlanAction, TaskCheckEnded, TaskPlaced
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines.registration import status
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.machines.registered_tasks import RegisteredTasks
from kasmon.supervisor.plans.machines.task_requests import StartTask
from kasmon.supervisor.plans.recover import find_interrupted_plans, recover
from kasmon.supervisor.plans.task_folder import TaskFolders
from kasmon.supervisor.plans.view import approved_plan
from tests.support.supervisor.machine_plan import MachinePlan
from tests.support.wait import until

pytestmark = pytest.mark.story

TEXT = """
[[task]]
id = "a"
machine = "gpu-1"
run = "sleep 1000"
"""


@pytest.fixture
def site() -> Iterator[MachinePlan]:
    site = MachinePlan(TEXT, ("gpu-1",))
    yield site
    site.close()


@pytest.mark.parametrize(("decision", "task"), [("abort", ""), ("skip", "a")])
def test_a_plan_ends_while_a_machine_is_unreachable_and_its_tasks_there_once_it_is_back(
    site: MachinePlan, decision: PlanAction, task: str
) -> None:
    site.start()
    begun = site.until(lambda now: now.of("a").session)
    site.cut("gpu-1")
    site.log.record_decision(decision, task)
    site.until(lambda now: now.state == "ended")
    site.kill_runner()
    (left,) = find_interrupted_plans(site.here.paths, read_fleet(site.here.paths))
    assert (left.plan, left.action) == (begun.plan, "run")
    site.start()
    assert [session.exists for session in site.sessions()] == [True]
    site.reconnect("gpu-1")
    site.until(lambda now: not now.of("a").placements)
    (ended,) = (fact for fact in site.facts() if isinstance(fact, PlacementEnded))
    assert (ended.session, ended.state) == (begun.of("a").session, "stopped")
    assert [session.exists for session in site.sessions()] == [False]
    until(lambda: lock_holder(site.log.lock) is None, what="the end of the runner")
    assert not find_interrupted_plans(site.here.paths, read_fleet(site.here.paths))


def start_unlogged(site: MachinePlan) -> str:
    """Start task `a` on its machine as a runner does that is killed before it logs that; return the session."""
    until(lambda: not status(site.here.paths, "gpu-1").is_unreachable, what="its machine")
    site.log.note(TaskPlaced(at=time.time(), task="a", attempt=1, machine="gpu-1", number=1))
    plan, tasks = approved_plan(site.log), RegisteredTasks(site.here.paths, site.log)
    run, task = site.log.run, plan.task("a")
    folders = TaskFolders(site.here.paths, site.log.plan, Path(run.folder))
    tasks.prepare(plan, run, task, 1, asyncio.run(folders.branch(plan, task, run)))
    machine, key = tasks.key(run, task, 1)
    return tasks.start(machine, StartTask(key=key, agent="shell", prompt=task.run, wave=1, peers=1)).session


def test_stopping_a_plan_ends_a_session_whose_start_was_not_logged(site: MachinePlan) -> None:
    session = start_unlogged(site)
    site.log.record_decision("stop")
    site.start()
    stopped = site.until(lambda now: not now.of("a").placements)
    until(lambda: lock_holder(site.log.lock) is None, what="the end of the runner")
    (ended,) = (fact for fact in site.facts() if isinstance(fact, PlacementEnded))
    assert (ended.session, ended.state) == (session, "stopped")
    assert [each.exists for each in site.sessions()] == [False]
    assert not stopped.of("a").attempt
    site.log.record_decision("resume")
    site.start()
    again = site.until(lambda now: now.of("a").session)
    assert (again.of("a").attempt, again.of("a").epoch) == (1, 2)
    assert again.of("a").session != session


def test_a_task_removed_by_an_edit_is_ended_on_its_machine(site: MachinePlan) -> None:
    session = start_unlogged(site)
    start.apply_edit(site.log, TEXT.replace('"a"', '"b"'))
    site.start()
    site.until(lambda now: now.of("a").epoch and not now.of("a").placements)
    (ended,) = (fact for fact in site.facts() if isinstance(fact, PlacementEnded))
    assert (ended.task, ended.session, ended.state) == ("a", session, "stopped")
    assert [each.exists for each in site.sessions() if each.id == session] == [False]


def test_stopping_a_plan_ends_a_check_on_the_machine_which_runs_again_after_that(site: MachinePlan) -> None:
    checked = 'run = "true"\ncheck = "until [ -e .kasmon/go ]; do sleep 0.1; done"'
    start.apply_edit(site.log, TEXT.replace('run = "sleep 1000"', checked))
    site.start()
    begun = site.until(lambda now: now.of("a").checking)
    folder = site.paths("gpu-1").plan_tasks
    (lock,) = until(lambda: list(folder.glob("*/1-a/check-1-1.lock")), what="a check there")
    until(lambda: lock_holder(lock), what="its process")
    site.log.record_decision("stop")
    until(lambda: lock_holder(site.log.lock) is None, what="the end of the runner")
    assert lock_holder(lock) is None
    (Path(begun.of("a").workdir.partition(":")[2]) / ".kasmon" / "go").touch()
    site.log.record_decision("resume")
    site.start()
    done = site.until(lambda now: now.of("a").is_checked)
    assert (done.of("a").attempt, done.of("a").epoch) == (1, 1)


def test_a_check_there_whose_runner_was_killed_while_it_stopped_is_ended_by_a_recovery_once(site: MachinePlan) -> None:
    checked = 'run = "true"\ncheck = "sleep 1000"'
    start.apply_edit(site.log, TEXT.replace('run = "sleep 1000"', checked))
    site.start()
    site.until(lambda now: now.of("a").checking)
    (lock,) = until(lambda: list(site.paths("gpu-1").plan_tasks.glob("*/1-a/check-1-1.lock")), what="a check there")
    until(lambda: lock_holder(lock), what="its process")
    site.kill_runner()
    site.log.record_decision("stop")

    fleet = read_fleet(site.here.paths)
    [loss] = find_interrupted_plans(site.here.paths, fleet)
    assert loss.action == "run"
    asyncio.run(recover(site.here.paths, loss))
    until(lambda: lock_holder(lock) is None, what="the end of the check")
    until(lambda: lock_holder(site.log.lock) is None, what="the end of the runner")

    assert [fact.attempt for fact in site.facts() if isinstance(fact, TaskCheckEnded)] == [1]
    assert find_interrupted_plans(site.here.paths, fleet) == []
