"""Idle real agents are hibernated, and a prompt resumes their conversations. With -s they print the figures of docs."""

import json
import shlex
import sys
from pathlib import Path

import psutil
import pytest

from kasmon.model.session_state import SessionState
from tests.agents.stack.test_recover import ALONE
from tests.support.agents import mcp_server
from tests.support.agents.full_stack import LIMIT_S, PROMPT, Stack, beside, stacked
from tests.support.wait import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(200)]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_structured_agent_is_hibernated_and_a_prompt_resumes_it(stack: Stack) -> None:
    session = stack.new("worker", "go %% say one")
    before = stack.turned(session)

    done = stack("hibernate", "worker")
    assert 0 == done.code, done.err
    now = stack.session(session)
    assert (SessionState.HIBERNATED, before.resume_id) == (now.state, now.resume_id)
    sent = stack("send", "worker", "go %% say two")
    assert 0 == sent.code, sent.err

    assert "was hibernated; resumed in" in sent.err
    assert before.resume_id == stack.turned(session, 1).resume_id
    assert "go %% say one" in stack.heard("go %% say two")
    print(f"\n{stack.agent.name} structured: {done.out.strip()}; {sent.err.strip()}")


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_an_mcp_server_that_starts_during_the_first_turn_is_no_work_in_progress(stack: Stack) -> None:
    program = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(mcp_server.__file__)))}"
    server = ["sh", "-c", f"sleep 3; {program}; exit"]  # as npx, which loads the server first
    config = stack.path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"demo": {"command": server[0], "args": server[1:]}}}))
    of_codex = (f"mcp_servers.demo.command={json.dumps(server[0])}", f"mcp_servers.demo.args={json.dumps(server[1:])}")
    codex = [f"-c {shlex.quote(value)}" for value in of_codex]
    stack.configure(*(("--mcp-config", str(config)) if stack.agent.name == "claude" else codex))
    session = stack.new("worker", "go %% say one")
    before = stack.turned(session)

    def helper() -> psutil.Process | None:
        assert before.pid
        family = psutil.Process(before.pid).children(recursive=True)
        return next((each for each in family if each.cmdline()[1:] == [mcp_server.__file__]), None)

    running = until(helper, what="the MCP server")
    done = stack("hibernate", "worker")
    assert 0 == done.code, done.err
    until(lambda: not running.is_running(), what="the end of the MCP server")
    sent = stack("send", "worker", "go %% say two")
    assert 0 == sent.code, sent.err
    assert before.resume_id == stack.turned(session, 1).resume_id


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_terminal_agent_is_hibernated_and_a_prompt_resumes_it(stack: Stack) -> None:
    stack.configure(*ALONE[stack.agent.name])
    session = stack.new("worker", mode="tmux")
    stack.shows(session, PROMPT[stack.agent.name])
    stack.turn_in_terminal(session, "go %% slow 4 word %% say one")
    known = until(lambda: stack.session(session).resume_id, LIMIT_S, "its conversation")
    stack.until_state(session, SessionState.IDLE)

    done = stack("hibernate", "worker")
    assert 0 == done.code, done.err
    assert SessionState.HIBERNATED is stack.session(session).state
    again = stack("restart", "worker")
    assert 0 == again.code, again.err
    stack.shows(session, PROMPT[stack.agent.name])
    stack.turn_in_terminal(session, "go %% slow 4 word %% say two")

    assert "go %% slow 4 word %% say one" in stack.heard("go %% slow 4 word %% say two")
    assert known == stack.session(session).resume_id
    print(f"\n{stack.agent.name} in a terminal: {done.out.strip()}; {again.out.strip()}")
