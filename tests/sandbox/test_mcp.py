"""`kasmon mcp` as an agent's program starts it: over stdio, with the official package's client, on real jails."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.session import Session
from kasmon.process_identity import is_running, started_at
from kasmon.sandbox.jail.jail import Jail
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON
from tests.support.sandbox.requirements import closed, need_jail
from tests.support.wait import auntil, until

pytestmark = pytest.mark.sandboxes


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> None:
    """In place of the one for all tests: these look at the fleet themselves."""


@pytest.fixture
def kasmon() -> Iterator[Cli]:
    need_jail()
    line = Cli()
    yield line
    closed(line)


def connected(kasmon: Cli, *arguments: str, **variables: str) -> Client:
    command = [*KASMON, "mcp", *arguments]
    return Client(
        StdioServerParameters(command=command[0], args=command[1:], env=kasmon.environment | variables, cwd=kasmon.home)
    )


async def ran(client: Client, code: str, env: str = "python", session: str | None = None) -> dict[str, Any]:
    given = {"code": code, "env": env} | ({"session": session} if session else {})
    result = await client.call_tool("run", given)
    assert result.structured_content is not None
    assert result.is_error is (result.structured_content["exit_code"] != 0)
    [block] = result.content
    assert result.structured_content == json.loads(getattr(block, "text", ""))
    return dict(result.structured_content)


def fleet(kasmon: Cli) -> tuple[Session, ...]:
    return read_fleet(kasmon.paths).sessions


def names(kasmon: Cli) -> list[str]:
    return sorted(session.name for session in fleet(kasmon))


async def test_session_state_persists_and_different_sessions_are_isolated(kasmon: Cli) -> None:
    """The seed's own example, in its own words; what has no session is gone afterwards."""
    async with connected(kasmon) as client:
        first = await ran(client, "echo one > file; pwd; ls", "bash")
        [used] = [session.id for session in fleet(kasmon) if session.turns]
        await ran(client, "x = [1,2,3,4,5]", session="analysis")
        assert "15\n" == (await ran(client, "print(sum(x))", session="analysis"))["stdout"]
        other, once = await ran(client, "print(x)", session="other"), await ran(client, "print(x)")
        await ran(client, "cd /tmp; v=1", "bash", "analysis")
        await ran(client, "let q = 1", "node", "analysis")
        both = [await ran(client, code, env, "analysis") for code, env in (("pwd; echo $v", "bash"), ("q+1", "node"))]
        died = await ran(client, "import os; os._exit(7)", session="analysis")
        await auntil(lambda: read_fleet(kasmon.paths).get(used) is None)
        listed = (await client.call_tool("list_sessions", {})).structured_content or {}
        second = await ran(client, "pwd; ls", "bash")

    assert "NameError: name 'x' is not defined" in other["stderr"]
    assert (True, "other") == (other["session_preserved"], other["session"])
    assert "NameError: name 'x' is not defined" in once["stderr"]
    assert (1, False) == (once["exit_code"], once["session_preserved"])
    assert ["/tmp\n1\n", "2\n"] == [each["stdout"] for each in both]
    assert (7, False) == (died["exit_code"], died["session_preserved"])
    assert ["/workspace\nfile\n", "/workspace\n"] == [first["stdout"], second["stdout"]]
    assert ["analysis", "other"] == [each["session"] for each in listed["sessions"]]


async def test_output_is_streamed_and_a_run_that_is_cancelled_is_interrupted(kasmon: Cli) -> None:
    heard: list[tuple[float, str]] = []
    async with connected(kasmon, "--size", "build") as client:
        with anyio.CancelScope() as scope:

            async def hear(progress: float, total: float | None, message: str | None) -> None:
                heard.append((progress, message or ""))
                if "two" in (message or ""):
                    scope.cancel()

            code = "import time\nk = 5\nprint('one', flush=True)\ntime.sleep(0.3)\nprint('two')\nwhile True: pass"
            given = {"code": code, "env": "python", "session": "a"}
            await client.call_tool("run", given, progress_callback=hear)
        assert scope.cancelled_caught
        after = await ran(client, "k + 1", session="a")

    assert ["one\n", "two\n"] == [text for _, text in heard]
    assert [progress for progress, _ in heard] == sorted({progress for progress, _ in heard})
    assert ("6\n", True) == (after["stdout"], after["session_preserved"])


async def test_a_waiting_run_that_is_cancelled_never_runs_and_the_other_continues(kasmon: Cli) -> None:
    async with connected(kasmon) as client, anyio.create_task_group() as group:
        await ran(client, "n = 0", "bash", "a")
        began, told = anyio.Event(), list[str]()

        async def first() -> None:
            async def hear(progress: float, total: float | None, message: str | None) -> None:
                began.set()

            code = "echo here; while [ ! -e go ]; do sleep 0.02; done; n=$((n + 1)); echo done"
            given = {"code": code, "env": "bash", "session": "a"}
            result = await client.call_tool("run", given, progress_callback=hear)
            told.append((result.structured_content or {})["stdout"])

        group.start_soon(first)
        await began.wait()
        with anyio.move_on_after(0.2) as scope:
            await ran(client, "n=100", "bash", "a")
        assert scope.cancelled_caught
        await ran(client, "open('go', 'w').close()", session="a")
        assert "1\n" == (await ran(client, "echo $n", "bash", "a"))["stdout"]

    assert ["here\ndone\n"] == told


async def test_a_client_with_a_name_shares_its_sessions_and_they_outlive_each_of_its_servers(kasmon: Cli) -> None:
    async with connected(kasmon, "--client", "team") as other:
        async with connected(kasmon, "--client", "team") as one:
            async with anyio.create_task_group() as group:
                for client in (one, other):
                    group.start_soon(ran, client, "x = 1", "python", "a")
            await ran(one, "y = 1")
            assert 1 == len([name for name in names(kasmon) if name == "team/a"])
            await ran(one, "x = 2", session="a")
        await auntil(lambda: ["team/a"] == names(kasmon))

        assert "2\n" == (await ran(other, "x", session="a"))["stdout"]
        assert not (await other.call_tool("end_session", {"session": "a"})).is_error
        assert [] == names(kasmon)


@pytest.mark.parametrize("how", [0, signal.SIGTERM, signal.SIGKILL], ids=["hung up", "told to end", "killed"])
async def test_sessions_of_a_stopped_server_are_removed_at_once_or_by_the_next(kasmon: Cli, how: int) -> None:
    """Also what still runs. stdout is the protocol alone, and an older client's handshake is understood."""
    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    endless = {"code": "while True: pass", "env": "python"}
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": info},
        {"method": "notifications/initialized"},
        *(
            {"id": number, "method": "tools/call", "params": {"name": "run", "arguments": arguments}}
            for number, arguments in enumerate(({"code": "print('x')", "env": "python", "session": "a"}, endless), 2)
        ),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*KASMON, "mcp", "--size", "build"], stdin=pipe, stdout=pipe, env=kasmon.environment, cwd=kasmon.home
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("".join(f"{json.dumps({'jsonrpc': '2.0'} | each)}\n" for each in asked).encode())
        server.stdin.flush()
        lines = [json.loads(await asyncio.to_thread(server.stdout.readline)) for _ in range(2)]
        assert [1, 2] == [line["id"] for line in lines]
        assert "x\n" == lines[1]["result"]["structuredContent"]["stdout"]
        await auntil(lambda: any("/once-" in each.name and each.state == "working" for each in fleet(kasmon)))
        if how:
            os.kill(server.pid, how)
        else:
            server.stdin.close()
        rest = await asyncio.to_thread(server.stdout.readlines)
        assert {"2.0"} >= {json.loads(line)["jsonrpc"] for line in rest}
        code = await asyncio.to_thread(server.wait)

    assert {0: 0, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGKILL: -signal.SIGKILL}[how] == code
    if how == signal.SIGKILL:
        assert names(kasmon)
        await auntil(lambda: {"ended"} == {str(each.state.value) for each in fleet(kasmon)}, 60)
        assert {"its `kasmon mcp` has ended"} == {each.end_why for each in fleet(kasmon)}
        assert not [each for each in fleet(kasmon) if lock_holder(kasmon.paths.host_lock(each.id))]
        async with connected(kasmon):
            await auntil(lambda: not names(kasmon))
    assert [] == names(kasmon)
    assert [] == [path for path in kasmon.paths.mcp.iterdir() if lock_holder(path)]
    assert not Jail(kasmon.paths).host_folders.base.exists()


async def test_the_host_of_a_sandbox_may_die_between_two_runs_and_the_user_may_end_it(kasmon: Cli) -> None:
    async with connected(kasmon) as client:
        await ran(client, "open('f', 'w').write('kept'); x = 1", session="a")
        [session] = fleet(kasmon)
        pid = lock_holder(kasmon.paths.host_lock(session.id))
        assert pid
        born = started_at(pid)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_running(pid, born))
        again = await ran(client, "x", session="a")
        assert ("1\n", True) == (again["stdout"], again["session_preserved"])

        assert 0 == kasmon("stop", session.id).code
        anew = await ran(client, "print(open('f').read())", session="a")
        after = await ran(client, "2", session="a")

    assert ("kept\n", False) == (anew["stdout"], anew["session_preserved"])
    assert "It had ended" in anew["hint"]
    assert (True, None) == (after["session_preserved"], after.get("hint"))


def killed(pid: int | None) -> None:
    assert pid
    born = started_at(pid)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_running(pid, born))


async def test_a_host_that_dies_during_a_run_leaves_it_to_the_next_which_reports_the_result(
    kasmon: Cli,
) -> None:
    """In `a` only the host is killed, in `b` the sandbox with it. Neither code runs twice."""
    code = "echo x >> runs; echo here; until [ -e go ]; do sleep 0.02; done; echo done"
    told: dict[str, dict[str, Any]] = {}
    async with connected(kasmon) as client:

        async def one(session: str, began: anyio.Event) -> None:
            async def hear(progress: float, total: float | None, message: str | None) -> None:
                began.set()

            given = {"code": code, "env": "bash", "session": session}
            result = await client.call_tool("run", given, progress_callback=hear)
            told[session] = result.structured_content or {}

        async with anyio.create_task_group() as group:
            for session in ("a", "b"):
                began = anyio.Event()
                group.start_soon(one, session, began)
                await began.wait()
            for known in fleet(kasmon):
                if known.name.endswith("/b"):
                    assert known.sandbox_state is not None
                    assert known.sandbox_state.runtime is not None
                    killed(known.sandbox_state.runtime.pid)
                if known.name.endswith(("/a", "/b")):
                    killed(lock_holder(kasmon.paths.host_lock(known.id)))
            await ran(client, "open('go', 'w').close()", session="a")
        runs = [(await ran(client, "wc -l < runs", "bash", session))["stdout"].strip() for session in ("a", "b")]

    assert ["1", "1"] == runs
    assert ("here\ndone\n", 0, True) == tuple(told["a"][word] for word in ("stdout", "exit_code", "session_preserved"))
    assert "Its host ended during the run" in told["a"]["hint"]
    assert (137, False) == (told["b"]["exit_code"], told["b"]["session_preserved"])
    assert "It is unknown how far this ran; it was not run again." in told["b"]["stderr"]


async def test_an_interrupt_applies_to_ones_own_runs_and_by_id_to_those_of_another_server_of_the_client(
    kasmon: Cli,
) -> None:
    async with connected(kasmon, "--client", "team") as one, connected(kasmon, "--client", "team") as other:
        told: list[int] = []

        async def spin(began: anyio.Event) -> None:
            async def hear(progress: float, total: float | None, message: str | None) -> None:
                began.set()

            given = {"code": "print(1, flush=True)\nwhile True: pass", "env": "python", "session": "a"}
            result = await one.call_tool("run", given, progress_callback=hear)
            told.append((result.structured_content or {})["exit_code"])

        async def interrupted(client: Client, **more: str) -> dict[str, Any]:
            return (await client.call_tool("interrupt", {"session": "a", **more})).structured_content or {}

        async with anyio.create_task_group() as group:
            began = anyio.Event()
            group.start_soon(spin, began)
            await began.wait()
            [row] = ((await one.call_tool("list_sessions", {})).structured_content or {})["sessions"]
            [running] = row["running"]
            assert ([], ["nothing of yours is running there."]) == tuple((await interrupted(other)).values())[1:]
            over = await interrupted(other, run="0" * 16)
            assert [] == over["interrupted"]
            assert "has ended or does not exist" in over["not_interrupted"][0]
            assert [] == told
            assert [running["run"]] == (await interrupted(one))["interrupted"]
        async with anyio.create_task_group() as group:
            began = anyio.Event()
            group.start_soon(spin, began)
            await began.wait()
            [row] = ((await one.call_tool("list_sessions", {})).structured_content or {})["sessions"]
            assert [row["running"][0]["run"]] == (await interrupted(other, run=row["running"][0]["run"]))["interrupted"]
        assert [130, 130] == told
        await one.call_tool("end_session", {"session": "a"})


async def test_an_ended_session_ends_its_runs_and_waiting_ones_never_start(kasmon: Cli) -> None:
    async with connected(kasmon, "--size", "build") as client:
        told: list[dict[str, Any]] = []
        began = anyio.Event()

        async def one() -> None:
            async def hear(progress: float, total: float | None, message: str | None) -> None:
                began.set()

            given = {"code": "print(1, flush=True)\nwhile True: pass", "env": "python", "session": "a"}
            result = await client.call_tool("run", given, progress_callback=hear)
            assert result.is_error
            told.append(result.structured_content or {})

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            await began.wait()
            group.start_soon(one)
            await client.call_tool("list_sessions", {})  # asked after the second run, and answered: that waits now
            assert not (await client.call_tool("end_session", {"session": "a"})).is_error
        assert {"sessions": []} == (await client.call_tool("list_sessions", {})).structured_content

    assert [False, False] == [each["session_preserved"] for each in told]
    assert [1] == [number for number, each in enumerate(told) if "before it started" in each["stderr"]]


async def test_the_tools_beside_run_checkpoint_and_restore_and_done(kasmon: Cli) -> None:
    me = kasmon("sandbox", "create", "me").out.strip()
    async with connected(kasmon, KASMON_SESSION=me) as client:
        await ran(client, "v=1; echo a > file", "bash", "a")
        kept = (await client.call_tool("checkpoint", {"session": "a"})).structured_content or {}
        await ran(client, "v=2; rm file", "bash", "a")
        back = await client.call_tool("restore", {"session": "a", "checkpoint": kept["checkpoint"]})
        assert not back.is_error, back
        assert "1 a\n" == (await ran(client, "echo $v $(cat file)", "bash", "a"))["stdout"]
        assert (await client.call_tool("restore", {"session": "a", "checkpoint": "c99"})).is_error
        [row] = ((await client.call_tool("list_sessions", {})).structured_content or {})["sessions"]
        done = await client.call_tool("done", {"summary": "all green"})
        assert not done.is_error, done

    assert "a" == row["session"]
    assert kept["checkpoint"] in row["checkpoints"]
    assert "all green" == kasmon.json("show", me)["session"]["done"]
    assert ["me", f"{me}/a"] == sorted(names(kasmon), key=len), "what an agent made is there when it comes back"
