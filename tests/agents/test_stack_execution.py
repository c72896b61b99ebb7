"""`kasmon.ExecutionSession` over real agents, structured and in a terminal: the ancestor's interface, row by row."""

from typing import Final

import psutil
import pytest

from kasmon import ExecutionSession, LaunchSpec
from kasmon.config import parse
from kasmon.model.permission import Decision
from kasmon.model.state import SessionState
from tests.agents.stack import LIMIT_S, PROMPT, Stack, beside, stacked
from tests.execution.test_interface import eventually, say, shows, until_gone, until_state
from tests.waiting import auntil

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
BOTH = pytest.mark.parametrize("name", ["claude", "codex"])
PROFILES: Final = {
    "claude": '[agents.claude]\nprogram = "{program}"',
    "codex": '[agents.codex]\nprogram = "{program}"\nflags = ["-c features.daemon_auto_start=false"]',
}
"""Codex would leave a server of its own running."""


def session(stack: Stack, mode: str) -> ExecutionSession:
    agent = stack.agent
    config = parse(PROFILES[agent.name].format(program=agent.program))
    spec = LaunchSpec(name="worker", agent=agent.name, mode=mode, environment=agent.own)
    return ExecutionSession(spec, where=stack.places, config=config)


@BOTH
async def test_structured(stack: Stack) -> None:
    one = session(stack, "sdk")
    await one.start(stack.agent.workdir)
    await until_state(one, SessionState.IDLE)
    assert await one.exists()
    pid = await one.pid()
    assert pid
    agent = psutil.Process(pid)
    assert str(stack.agent.workdir) == agent.cwd()
    first = "go %% say the answer is 42"
    await say(one, first)
    await shows(one, "the answer is 42")
    await until_state(one, SessionState.IDLE)
    polled = await one.poll()
    assert (True, True, True) == (polled.updated, polled.waiting, polled.captured)
    assert polled.content == await one.capture() == await one.capture_range("", "-")
    assert (False, True) == await one.has_updated()
    lines = polled.content.split("\n")
    assert lines[-1] == await one.capture_range("-1", "")

    await say(one, "go %% say busy %% hang")
    await shows(one, "busy")
    assert not (await one.poll()).waiting
    await one.send_keys("\x03")
    await until_state(one, SessionState.IDLE)
    assert await one.exists()

    await say(one, "go %% bash touch yes.txt %% say done")
    await _respond_to_all(one)
    await until_state(one, SessionState.IDLE)

    below = [agent, *agent.children(recursive=True)]
    await one.close()
    assert not await one.exists()
    await auntil(lambda: not any(process.is_running() for process in below), LIMIT_S, "their end")
    await one.restore()
    assert await one.exists(), one.why_not
    assert "id" in (await one.state()).proof
    await until_state(one, SessionState.IDLE)
    last = "go %% say last"
    await say(one, last)
    await asked(stack, last)
    assert first in stack.heard(last)
    await one.close()


async def asked(stack: Stack, prompt: str) -> None:
    """Wait until the model was asked *prompt*."""
    await auntil(lambda: any(turn["user"] == prompt for turn in stack.stub.turns), LIMIT_S, f"a request for {prompt!r}")


async def _shows_twice(one: ExecutionSession, word: str) -> bool:
    """As a part of the prompt, and said by the agent; interrupted before that, it would take the prompt back."""
    return (await one.capture()).count(word) > 1


async def _respond_to_all(one: ExecutionSession) -> None:
    """Allow what it asks, if it asks at all, until its turn is over."""

    async def over() -> bool:
        for request in await one.permissions():
            if Decision.ALLOW in request.choices:
                await one.respond(Decision.ALLOW, request.id)
            else:
                await one.respond(Decision.DENY, request.id)
        return (await one.state()).state is SessionState.IDLE and (await one.state()).turns >= 3

    await eventually(over, "the end of the turn")


@BOTH
async def test_in_a_terminal(stack: Stack) -> None:
    one = session(stack, "tmux")
    await one.start(stack.agent.workdir)
    await shows(one, PROMPT[stack.agent.name])
    assert await one.exists()
    pid = await one.pid()
    assert pid
    agent = psutil.Process(pid)
    assert str(stack.agent.program.resolve()) == agent.exe()
    await say(one, "go %% say the answer is 42")
    await asked(stack, "go %% say the answer is 42")
    await shows(one, "the answer is 42\n")
    polled = await one.poll()
    assert polled.captured
    assert "answer is 42" in polled.content
    await one.resize(100, 40)

    await say(one, "go %% say busy %% hang")
    await eventually(lambda: _shows_twice(one, "busy"), "its words behind the prompt")
    await one.send_keys("\x03")
    await shows(one, "nterrupted")
    assert await one.exists()

    below = [agent, *agent.children(recursive=True)]
    await one.close()
    await until_gone(one)
    await auntil(lambda: not any(process.is_running() for process in below), LIMIT_S, "their end")
    await one.restore()
    assert await one.exists(), one.why_not
    await shows(one, PROMPT[stack.agent.name])
    await one.close()
