"""A plan whose machine disappears while a task works there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.config import Config
from kasmon.model.plan.progress import TaskState
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines.registration import drain
from kasmon.supervisor.plans.boards import PlanBoards
from kasmon.supervisor.plans.machines.offer import count_tasks
from kasmon.supervisor.plans.view import read_view
from tests.support.supervisor.machine_plan import CONFIG, MachinePlan
from tests.support.wait import until

pytestmark = pytest.mark.story

TASK = """
advance = "auto"
machine = "any"
[[task]]
id = "a"
run = "mkdir {0} && sleep 1000; echo a > a.txt && git add a.txt && git -c user.name=t -c user.email=t@t commit -qm a"
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[MachinePlan]:
    """Its task ends on its second attempt only."""
    site = MachinePlan(TASK.format(tmp_path / "first"))
    (site.here.paths.config / "config.toml").write_text(f"{CONFIG}lost_machine_s = 1\n")
    yield site
    site.close()


def test_its_task_is_done_here_if_no_other_machine_is_left(site: MachinePlan) -> None:
    drain(site.here.paths, "gpu-2", drained=True)
    site.start()
    first = site.until(lambda now: now.of("a").session).of("a")
    drain(site.here.paths, "local", drained=False)
    site.cut("gpu-1")
    ended = site.until(lambda now: now.state == "ended")

    assert ("gpu-1", "claimed", "local") == (first.machine, ended.outcome, ended.of("a").machine)
    assert "a.txt" in site.branch(ended.of("a").branch)
    site.reconnect("gpu-1")
    site.until(lambda now: not now.of("a").placements)


def test_its_task_is_done_on_another_one_without_using_up_a_retry(site: MachinePlan) -> None:
    site.start()
    running = site.until(lambda now: now.of("a").session and now.of("a").state is TaskState.RUNNING).of("a")
    other = ({"gpu-1", "gpu-2"} - {running.machine}).pop()

    boards = PlanBoards(site.here.paths, lambda: read_fleet(site.here.paths), Config)
    until(lambda: list(boards.read()[0].sessions) == [running.session], what="the session there on the board")
    assert {} == dict(read_view(site.log, read_fleet(site.here.paths), Config()).ahead.blocked)
    until(lambda: count_tasks(site.here.paths) == {running.machine: 1}, what="the command at work there")

    site.cut(running.machine)
    ended = site.until(lambda now: now.state == "ended")

    assert (ended.outcome, ended.of("a").machine, ended.of("a").attempt) == ("claimed", other, 2)
    assert (ended.of("a").failures, ended.of("a").tries) == (
        (f"its machine {running.machine!r} was unreachable for 1 s",),
        0,
    )
    assert len(site.sessions(other)) == 1
    assert "a.txt" in site.branch(ended.of("a").branch)
    site.reconnect(running.machine)
    site.until(lambda now: not now.of("a").placements)
    [left] = site.sessions(running.machine)
    assert not left.exists, "the plan has ended, and so has the attempt on the machine that was away"
