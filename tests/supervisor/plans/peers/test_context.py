"""What the agent of a task may know of its peers."""

from typing import Any

import msgspec
import pytest

from kasmon.model.permission import SessionId
from kasmon.model.plan.progress import PlanRun
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.peers.context import TaskContexts, context_of
from tests.support.sample_plans import began, done, plan, run, task
from tests.support.supervisor.env import Env, started

PLAN = plan(task("a", title="the store", wave=1), task("b", title="the tokens", wave=1), task("c", wave=2))


@pytest.fixture
def told(env: Env) -> Any:
    """Say how far the plan is; what `a` may know then."""
    contexts = TaskContexts(env.paths)
    for id_ in ("sa", "sb"):
        env.has(id_, started())
        env.hosts(id_)

    def tell(at: PlanRun, **files: tuple[str, ...]) -> Any:
        contexts.write(PLAN, at, read_fleet(env.paths), files)
        path = env.paths.context("sa")
        return msgspec.json.decode(path.read_bytes()) if path.exists() else None

    return tell


def test_the_context_names_the_task_of_the_agent_and_its_peers(told: Any, env: Env) -> None:
    known = told(run(began("a", name="tidy-W1-T1"), began("b", name="tidy-W1-T2", branch="plan/tidy")), b=("token.go",))

    assert ("tidy", 1, 1, 2, "the store") == tuple(known[key] for key in ("plan", "task", "wave", "peers", "title"))
    assert str(env.paths.plan("tidy") / "notes.md") == known["notes"]
    [peer] = known["peer_sessions"]
    assert {
        "task": 2, "id": "sb", "name": "tidy-W1-T2", "title": "the tokens", "task_state": "running", "state": "idle",
        "branch": "plan/tidy", "files": ["token.go"], "machine": "", "is_agent": True, "waits": None, "done": None,
    } == peer  # fmt: skip
    assert 0o600 == env.paths.context("sa").stat().st_mode & 0o777


def test_a_peer_that_did_not_begin_is_known_too_and_stays_current(told: Any) -> None:
    [peer] = told(run(began("a")))["peer_sessions"]
    assert ("waiting", None, None, []) == (peer["task_state"], peer["id"], peer["state"], peer["files"])

    assert "running" == told(run(began("a"), began("b")))["peer_sessions"][0]["task_state"]
    assert "done" == told(run(began("a"), *done("b")))["peer_sessions"][0]["task_state"]


def test_an_unchanged_context_is_not_written_again(told: Any, env: Env) -> None:
    told(run(began("a"), began("b")))
    env.paths.context("sa").unlink()

    assert None is told(run(began("a"), began("b")))
    assert None is not told(run(began("a"), *done("b")))


def test_a_removed_session_gets_no_context(told: Any, env: Env) -> None:
    told(run(began("a", session="gone"), began("b")))

    assert not env.paths.folder(SessionId("gone")).exists()


def test_a_context_is_readable_or_absent(told: Any, env: Env) -> None:
    told(run(began("a"), began("b")))

    assert None is not (context := context_of(env.paths, SessionId("sa")))
    assert ("tidy", 2) == (context.plan, context.peer_sessions[0].task)
    env.paths.context("sa").write_bytes(b"\xff{")
    assert None is context_of(env.paths, SessionId("sa"))
    assert None is context_of(env.paths, SessionId("nope"))
