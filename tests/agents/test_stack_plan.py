"""A plan with real agents: a task's request is answered, its check decides, and a crash is gone on from."""

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from kasmon.host.alive import lock_holder
from kasmon.model.permission import SessionId
from tests.agents.stack import Stack, beside, stacked
from tests.waiting import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(150)]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
BOTH = pytest.mark.parametrize("name", ["claude", "codex"])
PLAN = """
name = "made"
agent = "{agent}"
mode = "sdk"
worktree = "own"
env = {env}

[[task]]
id = "first"
title = "Make it"
prompt = "go %% bash touch made.txt %% say I made it"
check = "{check}"

[[task]]
id = "second"
title = "Come second"
prompt = "go %% say I am second"
needs = ["first"]
check = "true"
"""
LIMIT_S = 40.0
"""A net under an agent that hangs, no expectation."""


def git(stack: Stack, *words: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=stack.agent.workdir, check=True, capture_output=True)


def begun(stack: Stack, check: str = "test -f made.txt") -> None:
    """Run the plan in a repository."""
    stack.configure(*stack.asking)
    git(stack, "init", "-q")
    git(stack, "commit", "-q", "--allow-empty", "-m", "begin")
    (stack.agent.workdir / "plan.toml").write_text(
        PLAN.format(agent=stack.agent.name, check=check, env=json.dumps(sorted(stack.agent.own)))
    )
    done = stack("plan", "run", "plan.toml", "--yes")
    assert 0 == done.code, done.err


def plan(stack: Stack) -> Any:
    return stack.json("plan", "show", "made")["plan"]


def task(stack: Stack, name: str) -> Any:
    return next(task for task in plan(stack)["tasks"] if task["id"] == name)


def ended(stack: Stack) -> Any:
    """The plan, once it is over."""

    def over() -> Any:
        now = plan(stack)
        return now if now["state"] == "ended" or now["asks"] else None

    return until(over, LIMIT_S, "the plan's end")


@BOTH
def test_a_request_of_a_task_is_answered_and_its_check_decides(stack: Stack) -> None:
    begun(stack)
    request = stack.asked()
    assert "touch made.txt" in request["shown"]
    assert "running" == task(stack, "first")["state"]
    assert "waiting" == task(stack, "second")["state"]
    assert 0 == stack.answer(request, "allow").code

    over = ended(stack)
    assert "done" == over["outcome"], over
    assert [(1, True), (1, True)] == [(one["attempt"], one["checked"]) for one in over["tasks"]]
    assert not (stack.agent.workdir / "made.txt").exists()
    assert "made.txt" in os.listdir(over["tasks"][0]["workdir"])  # noqa: PTH208  # names, not paths
    told = next(turn["user"] for turn in stack.stub.turns if "I made it" in turn["user"])
    assert "This is task 1 of wave 1" in told


@BOTH
def test_after_a_crash_it_goes_on_in_the_same_conversation(stack: Stack) -> None:
    begun(stack, "true")
    stack.asked()
    session = SessionId(task(stack, "first")["session"])
    known = stack.session(session).resume_id
    for pid in (lock_holder(stack.places.plan("made") / "host.lock"), lock_holder(stack.places.host_lock(session))):
        assert pid
        os.kill(pid, signal.SIGKILL)
    until(lambda: "lost" == stack.session(session).state, LIMIT_S, "the crash")

    told = stack("recover")
    assert 0 == told.code, (told.out, told.err)
    over = ended(stack)

    assert "done" == over["outcome"], over
    assert [session, 1] == [over["tasks"][0]["session"], over["tasks"][0]["attempt"]]
    assert known == stack.session(session).resume_id
    assert any("touch made.txt" in prompt for prompt in stack.stub.turns[-1]["users"] + stack.stub.turns[0]["users"])
