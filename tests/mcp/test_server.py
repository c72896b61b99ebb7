"""What a client sees of the server, by the official package's own client; nothing here needs a jail."""

from typing import Any

import pytest
from mcp import Client

from kasmon.config import Config
from kasmon.mcp.client_identity import ClientIdentity
from kasmon.mcp.dispatcher import ToolDispatcher
from kasmon.mcp.sandbox_tools import SandboxTools
from kasmon.mcp.server import server_of
from kasmon.mcp.session_tools import SessionTools
from kasmon.model.commands import Launch, Mode
from kasmon.model.events import SessionCreated
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import INTERPRETERS
from kasmon.paths import user_paths
from kasmon.store.event_log import EventLog
from kasmon.store.machines import Machine, write_machine
from kasmon.supervisor.sandboxes.create import NewSandbox
from tests.support.sample_fleet import NOW

SEED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "description": "Code to execute (raw code, not interpreter invocations)"},
        "env": {"type": "string", "description": "Execution environment.", "enum": [*INTERPRETERS]},
        "session": {"type": "string", "description": "Session ID for persistent state. Omit for ephemeral."},
    },
    "required": ["code", "env"],
}
"""The seed's input of `run`, word for word but for `env`, which offers what there is."""
ME = "abcdefgh"


def dispatcher(session: str = "") -> ToolDispatcher:
    where = user_paths()
    where.make()
    sandbox_tools = SandboxTools(where, Config(), ClientIdentity(where, session), NewSandbox(name="mcp"))
    return ToolDispatcher(where, sandbox_tools, SessionTools(where, session) if session else None)


@pytest.fixture
def of_nobody() -> ToolDispatcher:
    return dispatcher()


@pytest.fixture
def of_me() -> ToolDispatcher:
    """The desk of the first of two that are in one wave."""
    mine = dispatcher(ME)
    begun(ME, 1)
    begun("ijklmnop", 2)
    return mine


@pytest.fixture
def _gpu_1() -> None:
    """A registered machine."""
    write_machine(user_paths(), Machine(name="gpu-1", ssh="box"))


def begun(name: str, task: int) -> None:
    """A session of the fleet, in wave 1."""
    launch = Launch(
        session=SessionId(name),
        name=f"{name}'s",
        agent="scripted",
        mode=Mode.SDK,
        backend="scripted",
        workdir="/",
        created_at=NOW,
        task=task,
        wave=1,
        peers=2,
    )
    EventLog(user_paths().fleet_log).append(SessionCreated(at=NOW, launch=launch, machine="here"))


async def answered(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    """The answer, which is not an error; its text says the same."""
    result = await client.call_tool(tool, given)
    assert not result.is_error, result
    assert result.structured_content is not None
    return dict(result.structured_content)


async def test_run_has_the_schema_of_the_specification_exactly(of_nobody: ToolDispatcher) -> None:
    async with Client(server_of(of_nobody)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    assert SEED == tools["run"].input_schema
    assert ["run", "list_sessions", "end_session", "interrupt", "checkpoint", "restore"] == list(tools)


@pytest.mark.parametrize(
    ("given", "told", "code"),
    [
        ({"code": "1", "env": "ruby"}, "Unknown interpreter: ruby", 1),
        ({"code": "1"}, "run needs 'env'.", 2),
        ({"code": 1, "env": "python"}, "'code' must be a string.", 2),
        (
            {"code": "1", "env": "python", "timeout": 5},
            "run has no argument 'timeout'; its arguments are code, env, session.",
            2,
        ),
        ({"code": "1", "env": "python", "session": "a\nb"}, "'a\\nb' is not a valid session name.", 2),
    ],
    ids=["unknown interpreter", "no env", "no text", "unknown argument", "no name"],
)
async def test_an_impossible_run_is_an_error_in_the_specified_form(
    of_nobody: ToolDispatcher, given: dict[str, Any], told: str, code: int
) -> None:
    async with Client(server_of(of_nobody)) as client:
        result = await client.call_tool("run", given)

    assert result.is_error
    assert result.structured_content is not None
    assert {"stdout", "stderr", "exit_code", "session_preserved"} == set(result.structured_content)
    assert result.structured_content["stderr"].startswith(told)
    assert ("", code) == (result.structured_content["stdout"], result.structured_content["exit_code"])


@pytest.mark.usefixtures("_gpu_1")
@pytest.mark.parametrize("session", [ME, "gpu-9:lab"])
@pytest.mark.parametrize("tool", ["end_session", "interrupt", "checkpoint", "restore"])
async def test_a_session_of_another_client_is_not_found(of_me: ToolDispatcher, tool: str, session: str) -> None:
    more = {"checkpoint": "c1"} if tool == "restore" else {}
    async with Client(server_of(of_me)) as client:
        result = await client.call_tool(tool, {"session": session, **more})
        assert {"sessions": []} == await answered(client, "list_sessions")

    assert result.is_error
    assert result.structured_content is not None
    assert f"there is no session {session!r}" in result.structured_content["stderr"]


@pytest.mark.usefixtures("_gpu_1")
@pytest.mark.parametrize("tool", ["run", "end_session", "interrupt", "checkpoint", "restore"])
async def test_a_session_of_another_machine_is_refused_and_none_is_made_here(of_me: ToolDispatcher, tool: str) -> None:
    more = {"run": {"code": "1", "env": "python"}, "restore": {"checkpoint": "c1"}}.get(tool, {})
    async with Client(server_of(of_me)) as client:
        result = await client.call_tool(tool, {"session": "gpu-1:lab", **more})
        assert {"sessions": []} == await answered(client, "list_sessions")

    assert result.is_error
    assert result.structured_content is not None
    assert result.structured_content["stderr"].startswith(
        "'gpu-1:lab' would be on the machine 'gpu-1': agents reach no sessions of other machines."
    )


async def test_an_agent_in_a_session_of_kasmon_reads_its_task_and_peers_and_reports_done(
    of_me: ToolDispatcher,
) -> None:
    async with Client(server_of(of_me)) as client:
        task = await answered(client, "my_task")
        [peer] = (await answered(client, "peers"))["peers"]
        done = await client.call_tool("done", {"summary": "all green"})

    assert (ME, 1, 1, 2) == (task["session"], task["task"], task["wave"], task["peers"])
    assert ("ijklmnop", 2) == (peer["id"], peer["task"])
    assert done.is_error, "it has no host here that could note it"


async def test_no_tool_answers_a_permission(of_me: ToolDispatcher) -> None:
    """Also not by another name: what can be asked for is this, and nothing else."""
    async with Client(server_of(of_me)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("answer", {"request": "r1", "decision": "allow"})

    sandboxes = {"run", "list_sessions", "end_session", "interrupt", "checkpoint", "restore"}
    assert sandboxes | {"my_task", "peers", "done"} == names
    assert result.is_error
