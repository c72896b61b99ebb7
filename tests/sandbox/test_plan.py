"""A plan whose tasks run in sandboxes: what one of them makes comes back into its worktree."""

from collections.abc import Iterator

import pytest

from kasmon.model.event import ConfinementSeen
from kasmon.model.permission import SessionId
from kasmon.sandbox.microvm.machine import MicroVm
from tests.cli.forker import Forker
from tests.cli.line import Line
from tests.sandbox.inmates import configured, facts, forked
from tests.sandbox.lodgers import lodged
from tests.sandbox.machines import IMAGE, need_machine, warmed
from tests.sandbox.required import need_gvisor
from tests.supervisor.repo import Repo

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(120)]
forker = pytest.fixture(scope="module")(forked)
PLAN = """
without_check = "advance"
[[task]]
id = "made"
run = "grep -q 'version 4.4.0' /proc/version && echo inside >made && rm file0.txt; kasmon ctx >/dev/null"
sandbox = "gvisor"
check = "test $(cat made) = inside && test ! -e file0.txt"
[[task]]
id = "said"
prompt = "say I am in there"
sandbox = "gvisor"
"""


MIRRORED = """
[[task]]
id = "made"
run = "uname -r >made"
sandbox = "microvm"
check = "test -s made && ! grep -qx $(uname -r) made"
"""


@pytest.fixture
def kasmon(forker: Forker) -> Iterator[Line]:
    need_gvisor()
    yield from lodged(forker, "gvisor")


@pytest.fixture
def machines(forker: Forker) -> Iterator[Line]:
    need_machine()
    warmed(MicroVm(image=IMAGE))
    yield from lodged(forker, "microvm")


def test_its_agents_and_commands_run_in_gvisor_and_what_they_make_comes_back(kasmon: Line) -> None:
    configured(kasmon, 'default_agent = "scripted"\n[plans]\nmax_load = 0\n')
    repo = Repo(kasmon.home / "repo")
    (repo.folder / "walled.toml").write_text(PLAN)

    done = kasmon("plan", "run", "repo/walled.toml", "--ci", "--yes")

    assert 0 == done.code, done.out + done.err
    tasks = kasmon.json("plan", "show", "walled")["plan"]["tasks"]
    assert ["done", "done"] == [task["state"] for task in tasks]
    for task in tasks:
        assert "gvisor" == kasmon.json("show", task["session"])["session"]["sandbox"]
        assert [True] == [each.ok for each in facts(kasmon, SessionId(task["session"]), ConfinementSeen)]
    assert "" == repo.git("status", "--porcelain", "--", "made", "file0.txt")
    assert "D file0.txt\n?? made" == repo.git("status", "--porcelain", at=kasmon.places.plan("walled") / "trees/shared")


def test_what_it_makes_in_a_machine_is_here_before_it_is_checked(machines: Line) -> None:
    configured(machines, "[plans]\nmax_load = 0\n")
    (machines.home / "walled.toml").write_text(MIRRORED)

    done = machines("plan", "run", "walled.toml", "--ci", "--yes")

    assert 0 == done.code, done.out + done.err
