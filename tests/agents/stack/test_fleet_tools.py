"""The real claude and the real codex drive another session by `kasmon mcp --tools fleet`."""

import json
import os
import shlex
import sys

import pytest

from kasmon.paths import private_folder, write_private
from tests.support.agents.full_stack import Stack, beside, stacked
from tests.support.git_repo import Repo

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
SERVER = ("-P", "-m", "kasmon", "mcp", "--tools", "fleet")
CALLS = (
    ("start", {"name": "child", "prompt": "say ready", "agent": "scripted", "worktree": "yes"}),
    ("wait", {"session": "child", "states": "idle"}),
    ("prompt", {"session": "child", "text": "say more"}),
    ("wait", {"session": "child", "states": "idle"}),
    ("diff", {"session": "child"}),
    ("answer", {"request": "x-1"}),
)


def flags(stack: Stack) -> list[str]:
    """How the agent gets the server: as a person adds it."""
    if stack.agent.name == "claude":
        config = stack.path / "servers.json"
        config.write_text(json.dumps({"mcpServers": {"kasmon": {"command": sys.executable, "args": SERVER}}}))
        tools = ",".join(f"mcp__kasmon__{name}" for name, _ in CALLS)
        return ["--mcp-config", str(config), "--allowedTools", tools]
    passed = [name for name in os.environ if name.startswith(("XDG_", "KASMON_TMUX"))] + ["KASMON_SESSION"]
    settings = {
        "command": sys.executable,
        "args": SERVER,
        "env_vars": passed,
        "default_tools_approval_mode": "approve",
        "required": True,
    }
    return [shlex.join(("-c", f"mcp_servers.kasmon.{name}={json.dumps(value)}")) for name, value in settings.items()]


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_it_starts_a_child_prompts_it_waits_for_it_and_reads_its_diff(stack: Stack) -> None:
    repo = Repo(stack.path / "repo")
    private_folder(stack.paths.config)
    profile = f"[agents.{stack.agent.name}]\nflags = {json.dumps(flags(stack))}\ntools = ['fleet']\n"
    scripted = "[agents.scripted]\nexecution_mode = 'sdk'\n[fleet]\nagents = ['scripted']\n"
    scripted += "[worktree]\nsetup = 'echo one >notes.txt'\n"
    write_private(stack.paths.config_file, (profile + scripted).encode())

    calls = [f"tool mcp__kasmon__{tool} {json.dumps(given)}" for tool, given in CALLS]
    lead = stack.new("lead", f"go %% {' %% '.join(calls)} %% say done", "--dir", str(repo.folder))
    stack.turned(lead)

    results = [turn["results"][-1] for turn in stack.stub.turns if turn["results"]]
    assert len(CALLS) == len(results), results
    assert "child" in results[0], results
    sessions = {each["name"]: each for each in stack.json("ls")["sessions"]}
    assert (lead, {"session": lead, "depth": 0, "machine": ""}) == (
        sessions["child"]["parent"],
        sessions["child"]["actor"],
    )
    receipts = stack.json("show", "child")["session"]["receipts"]
    assert [{"session": lead, "depth": 0, "machine": ""}] * 2 == [each["actor"] for each in receipts]
    assert "notes.txt" in results[4], results

    assert 0 == stack("stop", "lead", "--children", "stop").code
    assert {"ended"} == {each["state"] for each in stack.json("ls")["sessions"]}
