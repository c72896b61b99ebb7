"""Commands that are forked from one process, compared with those that a new Python runs."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator

import msgspec
import psutil
import pytest

from kasmon.bus.command_forks import CommandForks
from kasmon.errors import UsageError
from kasmon.model.plan.machine_choice import MachineOffer
from kasmon.store.file_lock import lock
from kasmon.supervisor.machines.link_client import CommandOutput
from kasmon.supervisor.plans.machines.claim import TaskClaim
from kasmon.supervisor.plans.machines.task_requests import ReadResult, TaskKey
from tests.support.supervisor.env import Env
from tests.support.wait import until

OFFER = ("task", "offer", "--json")
KEY = TaskKey(runner="0" * 16, plan="tidy", number=1, name="1-a", attempt=1, epoch=1)


@pytest.fixture
async def forks(env: Env) -> AsyncIterator[CommandForks]:
    forks = CommandForks(env.paths)
    yield forks
    forks.close()


def servers(env: Env) -> list[int]:
    """The processes that fork commands of this kasmon."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "--commands" in child.cmdline() and child.environ()["XDG_STATE_HOME"] == str(env.paths.state.parent):
                found.append(child.pid)
    return found


async def ran(forks: CommandForks, *arguments: str, stdin: bytes = b"") -> CommandOutput:
    output = await forks.run(arguments, stdin)
    assert output is not None
    return output


async def test_their_output_and_exit_codes_are_those_of_a_new_process(env: Env, forks: CommandForks) -> None:
    outputs = await asyncio.gather(*(ran(forks, *OFFER) for _ in range(3)))
    wrong = await ran(forks, "task", "prepare", "--json", stdin=b"{}")
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "kasmon", "task", "prepare", "--json"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env.paths.environment_variables(), "NO_COLOR": "1"},
    )
    expected = await command.communicate(b"{}")

    offers = [msgspec.json.decode(each.stdout, type=dict[str, msgspec.Raw])["offer"] for each in outputs]
    assert {8} == {msgspec.json.decode(each, type=MachineOffer).slots for each in offers}
    assert (UsageError.exit_code, expected) == (wrong.exit_code, (wrong.stdout, wrong.stderr))
    assert 1 == len(await asyncio.to_thread(servers, env))
    forks.close()
    await asyncio.to_thread(until, lambda: not servers(env), 30, "the end of the process")


async def test_a_command_whose_process_was_killed_is_started_again(env: Env, forks: CommandForks) -> None:
    await ran(forks, *OFFER)
    [first] = await asyncio.to_thread(servers, env)
    os.kill(first, signal.SIGSTOP)
    waiting = asyncio.create_task(ran(forks, *OFFER))
    await asyncio.sleep(0)
    os.kill(first, signal.SIGKILL)

    assert 0 == (await waiting).exit_code
    assert first not in await asyncio.to_thread(servers, env)


async def test_a_command_without_a_waiting_client_is_terminated(env: Env, forks: CommandForks) -> None:
    await ran(forks, *OFFER)
    claimed = TaskClaim(env.paths, KEY)
    claimed.folder.mkdir(parents=True)
    [server] = await asyncio.to_thread(servers, env)
    request = msgspec.json.encode(ReadResult(key=KEY))
    with lock(claimed.folder / "claim.json"):
        waiting = asyncio.create_task(ran(forks, "task", "result", "--json", stdin=request))
        await asyncio.to_thread(until, lambda: psutil.Process(server).children(), 30, "the command")
        [command] = await asyncio.to_thread(psutil.Process(server).children)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.to_thread(until, lambda: not command.is_running(), 30, "its end")
