"""A real agent runs nothing that a project brings along, before its user trusts the folder; then it does."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from kasmon.backends.acp import backend as acp
from kasmon.backends.base import Backend
from kasmon.backends.claude import backend as claude_backend
from kasmon.errors import UntrustedFolderError
from kasmon.model.commands import Prompt
from kasmon.model.events import TurnEnded
from tests.support.agents.backend_contract import LIMIT_S
from tests.support.agents.real_agent import RealAgent
from tests.support.model_stub import ModelStub

pytestmark = pytest.mark.agents
SERVERS = {"mcpServers": {"own": {"command": "touch", "args": ["served"]}}}


def hooks(*events: str) -> dict[str, Any]:
    return {event: [{"matcher": "", "hooks": [{"type": "command", "command": "touch hooked"}]}] for event in events}


async def one_turn(
    backend: Backend, agent: RealAgent, argv: tuple[str, ...], prompt: str = "go %% say done"
) -> set[str]:
    """Have *agent* do one turn; what ran beside it."""
    launch = await asyncio.to_thread(agent.launch, argv=argv, handshake_s=LIMIT_S)
    async with asyncio.timeout(2 * LIMIT_S):
        async with contextlib.aclosing(live := await backend.open(launch)):
            await live.send(Prompt(text=prompt))
            async for said in live.events():
                if isinstance(said, TurnEnded):
                    break
    return {name for name in ("hooked", "served") if (agent.workdir / name).exists()}


def write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


async def test_claude_runs_no_hook_and_no_server_of_a_folder_that_is_not_trusted(
    claude: RealAgent, stub: ModelStub
) -> None:
    """Nobody asks by protocol: claude itself would run them."""
    config = claude.home / ".claude.json"
    trusting = await asyncio.to_thread(config.read_text)
    argv = (str(claude.program),)
    write(claude.workdir / ".claude" / "settings.json", {"hooks": hooks("SessionStart")})
    write(claude.workdir / ".mcp.json", SERVERS)

    write(config, {**json.loads(trusting), "projects": {}})
    with pytest.raises(UntrustedFolderError, match=r"hooks \(SessionStart\) in .*, mcpServers \(own\) in"):
        await one_turn(claude_backend, claude, argv)
    assert set() == await one_turn(claude_backend, claude, (*argv, "--setting-sources", "user"))

    write(config, json.loads(trusting))
    assert {"hooked", "served"} == await one_turn(claude_backend, claude, argv)


@pytest.mark.parametrize(
    "keys",
    ['"allowed-tools": Bash(touch:*)', "metadata: &own\n  allowed-tools: Bash(touch:*)\n<<: *own"],
    ids=["quoted", "merged"],
)
async def test_claude_reads_the_keys_of_a_command_as_yaml(claude: RealAgent, keys: str) -> None:
    """In such a form they allow a command too, without a question."""
    argv = (str(claude.program),)
    command = claude.workdir / ".claude" / "commands" / "x.md"
    command.parent.mkdir(parents=True)
    command.write_text(f"---\n{keys}\n---\nThe state: ```!\ntouch hooked\n```")
    config = claude.home / ".claude.json"
    trusting = await asyncio.to_thread(config.read_text)

    write(config, {**json.loads(trusting), "projects": {}})
    with pytest.raises(UntrustedFolderError, match=r"\.claude/commands/x\.md"):
        await one_turn(claude_backend, claude, argv, "/x")

    write(config, json.loads(trusting))
    assert {"hooked"} == await one_turn(claude_backend, claude, argv, "/x")


async def test_gemini_runs_no_hook_of_a_folder_without_a_trust_decision(gemini: RealAgent) -> None:
    folders = gemini.home / ".gemini" / "trustedFolders.json"
    argv = (str(gemini.program), "--acp")
    write(gemini.workdir / ".gemini" / "settings.json", {"hooks": hooks("BeforeAgent"), **SERVERS})

    write(folders, {})
    with pytest.raises(UntrustedFolderError, match=r"hooks \(BeforeAgent\) in .*, mcpServers \(own\) in"):
        await one_turn(acp, gemini, argv)

    write(folders, {str(gemini.workdir): "DO_NOT_TRUST"})
    assert set() == await one_turn(acp, gemini, argv)

    write(folders, {str(gemini.workdir.parent): "TRUST_FOLDER"})
    assert {"hooked", "served"} == await one_turn(acp, gemini, argv)
