"""A plan whose tasks run in sandboxes: what one of them makes comes back into its worktree."""

import subprocess
from collections.abc import Iterator

import pytest

from kasmon.model.events import ConfinementSeen
from kasmon.model.permission import SessionId
from kasmon.sandbox.microvm.machine import MicroVm
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON, ForkServer
from tests.support.git_repo import Repo
from tests.support.sandbox.machine_image import IMAGE, need_machine, warmed
from tests.support.sandbox.pausing_agents import lodged
from tests.support.sandbox.sandboxed_agents import configured, facts

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(300)]
PLAN_S = 200.0
"""Two machines begin beside each other, each emulated where there is no KVM: about a minute on two cores."""
PLAN = """
without_check = "advance"
[[task]]
id = "made"
run = "uname -r >made && rm file0.txt; kasmon ctx >/dev/null"
sandbox = "microvm"
check = "test -s made && ! grep -qx $(uname -r) made && test ! -e file0.txt"
[[task]]
id = "said"
prompt = "say I am in there"
sandbox = "microvm"
"""


@pytest.fixture
def kasmon(fork_server: ForkServer) -> Iterator[Cli]:
    need_machine()
    warmed(MicroVm(image=IMAGE))
    yield from lodged(fork_server, "microvm")


def test_its_agents_and_commands_run_in_machines_and_their_files_are_copied_back(kasmon: Cli) -> None:
    configured(kasmon, 'default_agent = "scripted"\n[plans]\nmax_load = 0\n')
    repo = Repo(kasmon.home / "repo")
    (repo.folder / "walled.toml").write_text(PLAN)

    done = subprocess.run(
        [*KASMON, "plan", "run", "repo/walled.toml", "--ci", "--yes"],
        env=kasmon.environment,
        cwd=kasmon.home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PLAN_S,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    tasks = kasmon.json("plan", "show", "walled")["plan"]["tasks"]
    assert ["done", "done"] == [task["state"] for task in tasks]
    for task in tasks:
        assert "microvm" == kasmon.json("show", task["session"])["session"]["sandbox"]
        assert [True] == [each.ok for each in facts(kasmon, SessionId(task["session"]), ConfinementSeen)]
    assert "" == repo.git("status", "--porcelain", "--", "made", "file0.txt")
    assert "D file0.txt\n?? made" == repo.git("status", "--porcelain", at=kasmon.paths.plan("walled") / "trees/shared")
