"""A plan with real agents: a task's request is answered, its check decides, and a crash is gone on from."""

import json
import os
import shlex
import signal
import subprocess
import sys
from typing import Any, Final

import pytest

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import ReceiptState
from kasmon.model.events import ReceiptChanged
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import TaskClaimed, decode
from tests.support.agents import mcp_server
from tests.support.agents.full_stack import Stack, beside, stacked
from tests.support.agents.real_agent import RealAgent
from tests.support.wait import until

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
    run(stack, PLAN.format(agent=stack.agent.name, check=check, env=json.dumps(sorted(stack.agent.own))))


def run(stack: Stack, text: str) -> None:
    git(stack, "init", "-q")
    git(stack, "commit", "-q", "--allow-empty", "-m", "begin")
    (stack.agent.workdir / "plan.toml").write_text(text)
    done = stack("plan", "run", "plan.toml", "--yes")
    assert 0 == done.code, done.err


STARTS_S: Final = 12
"""How long the agent's session takes to begin: longer than a prompt is given to begin its turn."""


def slow_start() -> tuple[str, ...]:
    """Flags with which codex waits `STARTS_S` for a server before its session begins, and takes prompts meanwhile."""
    script = f"sleep {STARTS_S}; exec {sys.executable} {mcp_server.__file__}"
    settings = {"command": '"sh"', "args": json.dumps(["-c", script]), "required": "true", "startup_timeout_sec": "60"}
    return tuple(shlex.join(("-c", f"mcp_servers.slow.{key}={value}")) for key, value in settings.items())


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
def test_after_a_crash_the_agent_resumes_the_same_conversation(stack: Stack) -> None:
    begun(stack, "true")
    stack.asked()
    session = SessionId(task(stack, "first")["session"])
    known = stack.session(session).resume_id
    for pid in (lock_holder(stack.paths.plan("made") / "host.lock"), lock_holder(stack.paths.host_lock(session))):
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


ONE = """
name = "made"
agent = "{agent}"
mode = "tmux"
worktree = "own"
env = {env}

[[task]]
id = "first"
prompt = "go %% say I made it"
"""


def one(stack: Stack) -> str:
    return ONE.format(agent=stack.agent.name, env=json.dumps(sorted(stack.agent.own)))


def trust_nothing(agent: RealAgent) -> None:
    """Have the agent ask at its start whether its folder is trusted."""
    if agent.name == "claude":
        path = agent.home / ".claude.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "projects": {}}))
    else:
        path = agent.home / ".codex" / "config.toml"
        path.write_text(path.read_text().replace('trust_level = "trusted"', ""))


@BOTH
def test_no_task_is_claimed_while_its_agent_shows_its_start_dialog_nor_before_its_turn(stack: Stack) -> None:
    """The turn of its prompt comes after the dialog, and is one."""
    trust_nothing(stack.agent)
    run(stack, one(stack))
    session = SessionId(until(lambda: task(stack, "first")["session"], LIMIT_S))
    request = stack.asked(session)
    assert "trust" in request["shown"].lower()
    assert ("running", None) == (task(stack, "first")["state"], task(stack, "first")["why"])
    assert [] == [turn for turn in stack.stub.turns if "say I made it" in turn["user"]]
    assert 0 == stack.answer(request, "allow").code

    assert "task first reported done without a check" in ended(stack)["asks"]

    assert 1 == len([turn for turn in stack.stub.turns if "say I made it" in turn["user"] and "took_s" in turn])
    moved = [fact.receipt.state for fact in stack.facts(session, ReceiptChanged)]
    assert [ReceiptState.STARTED, ReceiptState.FINISHED] == moved[-2:]
    lines = (stack.paths.plan("made") / "events.jsonl").read_bytes().splitlines()
    claims = [fact.at for fact in map(decode, lines) if isinstance(fact, TaskClaimed)]
    finished = [fact.at for fact in stack.facts(session, ReceiptChanged) if fact.receipt.state is ReceiptState.FINISHED]
    assert finished[0] <= claims[0]


@pytest.mark.parametrize("name", ["codex"])
def test_in_a_terminal_a_task_is_claimed_after_the_turn_that_carried_its_prompt_however_slowly_its_agent_starts(
    stack: Stack,
) -> None:
    stack.configure(*slow_start())
    run(stack, one(stack))
    session = SessionId(until(lambda: task(stack, "first")["session"], LIMIT_S))
    stack.shows(session, "Queued follow-up inputs")
    assert ("running", None) == (task(stack, "first")["state"], task(stack, "first")["why"])
    assert [] == [turn for turn in stack.stub.turns if "say I made it" in turn["user"]]

    assert "task first reported done without a check" in ended(stack)["asks"]

    assert 1 == len([turn for turn in stack.stub.turns if "say I made it" in turn["user"] and "took_s" in turn])
    moved = [fact.receipt.state for fact in stack.facts(session, ReceiptChanged)]
    assert [ReceiptState.STARTED, ReceiptState.FINISHED] == moved[-2:]
    assert ReceiptState.LOST not in moved
