"""The real claude uses `kasmon mcp` as its server: what one call leaves in a session, the next one finds."""

import json
import sys

import pytest

from tests.support.agents.full_stack import Stack, beside, stacked
from tests.support.sandbox.requirements import need_jail
from tests.support.wait import until

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
TOOL = "mcp__kasmon__run"


def called(code: str, env: str) -> str:
    return f"tool {TOOL} {json.dumps({'code': code, 'env': env, 'session': 'lab'})}"


@pytest.mark.parametrize("name", ["claude"])
def test_claude_calls_run_twice_in_one_session_and_keeps_its_state(stack: Stack) -> None:
    need_jail()
    config = stack.path / "servers.json"
    command = {"command": sys.executable, "args": ["-P", "-m", "kasmon", "mcp"]}
    config.write_text(json.dumps({"mcpServers": {"kasmon": command}}))
    stack.configure("--mcp-config", str(config), "--allowedTools", TOOL)

    calls = (called("x = 40", "python"), called("print(x + 2)", "python"), called("exit 3", "bash"))
    session = stack.new("worker", f"go %% {' %% '.join(calls)} %% say done")
    stack.turned(session)

    answers = [json.loads(turn["results"][-1]) for turn in stack.stub.turns if turn["results"]]
    assert [("", 0), ("42\n", 0), ("", 3)] == [(answer["stdout"], answer["exit_code"]) for answer in answers]
    assert {"lab"} == {answer["session"] for answer in answers}
    assert [f"{session}/lab"] == [each["name"] for each in stack.json("ls")["sessions"] if each["id"] != session]

    assert 0 == stack("stop", "worker").code
    assert 0 == stack("sandbox", "rm", "--all").code
    until(lambda: [session] == [each["id"] for each in stack.json("ls")["sessions"]])
