"""What tasks of other machines' plans leave here is removed once nothing needs it, and never before it was fetched."""

import asyncio
import time
from pathlib import Path

import pytest

from kasmon.supervisor.plans.machines import task_work
from kasmon.supervisor.plans.machines.store_collection import DAY_S, collect_stores
from kasmon.supervisor.plans.machines.task_requests import FetchCommits, ReadResult
from kasmon.supervisor.sessions import session_operations
from tests.supervisor.plans.machines.test_task_work import KEY, Machine, attempt
from tests.support.git_repo import Repo
from tests.support.supervisor.env import Env

pytestmark = pytest.mark.story


@pytest.fixture
def machine(env: Env, tmp_path: Path) -> Machine:
    return Machine(env, Repo(tmp_path / "near", commits=2))


def collected(machine: Machine, caplog: pytest.LogCaptureFixture, days: float = 31) -> tuple[int, str]:
    """How many stores are removed *days* from now, and what was said last."""
    caplog.clear()
    with caplog.at_level("INFO"):
        removed = collect_stores(machine.paths, 30 * DAY_S, time.time() + days * DAY_S)
    return len(removed), caplog.messages[-1].partition(".git ")[2] if caplog.messages else ""


def test_a_store_is_removed_once_its_tasks_ended_and_their_work_was_fetched(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    folder = machine.ready()
    started = machine.start()
    base = machine.repo.head
    commit = machine.repo.commit("far.txt", at=folder)
    (folder / ".kasmon" / "task-3" / "result.md").write_text("done\n")
    session = machine.session(started.session)

    assert collected(machine, caplog, days=29) == (0, "")
    assert collected(machine, caplog) == (0, f"stays: session {session.name!r} of a task has not ended.")
    asyncio.run(session_operations.stop(machine.paths, session))
    assert collected(machine, caplog) == (0, "stays: the result of '3-parser' was not fetched.")
    task_work.read_result(machine.paths, ReadResult(key=KEY))
    assert collected(machine, caplog) == (0, "stays: it has commits that were not fetched.")
    request = FetchCommits(key=KEY, commit=commit, excluded=(base,), limit=10)
    task_work.fetch(machine.paths, request)
    assert collected(machine, caplog) == (0, "stays: it has commits that were not fetched."), "only its beginning was"
    task_work.fetch(machine.paths, FetchCommits(key=KEY, commit=commit, excluded=(base,)))
    (folder / "left.txt").write_text("left\n")
    assert "1 file is not committed" in collected(machine, caplog)[1]
    (folder / "left.txt").unlink()

    assert collected(machine, caplog) == (1, "is removed: nothing needed it")
    assert (list(machine.paths.repositories.glob("*.git")), folder.exists()) == ([], False)
    assert [path.suffix for path in machine.folder.glob("*.result")] == []
    assert machine.ready(attempt(2)).is_dir(), "the next attempt gets another one"
