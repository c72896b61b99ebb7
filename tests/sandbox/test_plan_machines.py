"""A plan whose tasks run in jails on another machine, whose server and host are killed meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.errors import RefusedError
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.shared.filesystem_view import require_mountable
from tests.support.sandbox.requirements import nothing_is_left
from tests.support.supervisor.machine_plan import MachinePlan
from tests.support.wait import until

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(240)]
PLAN = """
advance = "auto"
machine = "gpu-1"
[[task]]
id = "lexer"
sandbox = "jail"
run = "sleep 3; echo once >> lexer.txt"
check = 'test "$(cat lexer.txt)" = once'
[[task]]
id = "parser"
sandbox = "jail"
run = "cat {outside} > parser.txt; echo inside >> parser.txt"
check = "grep -qx inside parser.txt && ! grep secret parser.txt && cat {outside}"
"""


@pytest.fixture
def plan(can_jail: None, tmp_path: Path) -> Iterator[MachinePlan]:
    (tmp_path / "outside").write_text("secret")
    plan = MachinePlan(PLAN.format(outside=tmp_path / "outside"), ["gpu-1"])
    paths = plan.paths("gpu-1")
    ground = Jail(paths).host_folders
    ground.base  # noqa: B018 (it is remembered, as it is while the folders stand)
    yield plan
    plan.close()
    nothing_is_left(paths, ground)


def test_each_task_is_done_once_in_its_jail_although_the_server_of_its_machine_was_killed(plan: MachinePlan) -> None:
    plan.start()
    plan.until(lambda now: now.of("lexer").session, 90.0)
    plan.kill_bus("gpu-1")
    plan.kill_tmux_host("gpu-1")
    ended = plan.until(lambda now: now.state == "ended", 150.0)

    assert ended.outcome == "done", {id_: at.why for id_, at in ended.tasks.items()}
    assert [(at.attempt, at.machine, at.is_checked) for at in ended.tasks.values()] == [(1, "gpu-1", True)] * 2
    assert sorted(session.task or 0 for session in plan.sessions()) == [1, 2]
    assert {session.sandbox for session in plan.sessions()} == {"jail"}
    top = Path(ended.of("lexer").workdir.removeprefix("gpu-1:"))
    for hidden in (top.parent, top.parent / "claim.json", top.parents[1]):
        with pytest.raises(RefusedError, match="kasmon's own files"):
            require_mountable(Jail(plan.paths("gpu-1")).host_folders, str(hidden), "/srv")
    until(lambda: not any(session.exists for session in plan.sessions()), what="the end of the sessions")
