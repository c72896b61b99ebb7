"""What the bus of this machine sends belongs to one moment, and what is repeated runs once."""

import asyncio
import contextlib

import msgspec
import psutil

from kasmon.bus.base import LogPart
from kasmon.bus.local import LocalBus, _Publisher
from kasmon.model.events import TurnStarted
from kasmon.store.file_lock import lock
from kasmon.supervisor.fleet.file_hints import StopEvent
from kasmon.supervisor.plans.machines.claim import TaskClaim
from kasmon.supervisor.plans.machines.task_requests import EndTask, TaskKey
from tests.support.supervisor.env import NOW, Env, started
from tests.support.wait import auntil


def test_a_log_is_sent_up_to_the_position_that_was_read_when_its_processes_were_probed(env: Env) -> None:
    session = env.has("abcdefgh", started())
    with contextlib.closing(StopEvent()) as stop:
        publisher = _Publisher(env.paths, {}, stop)
        publisher._watch.refresh()
        publisher._read_list()
        probed = env.paths.log(session).read_bytes()
        env.tells(session, TurnStarted(at=NOW))

        first = [update.content for update in publisher._send([session]) if isinstance(update, LogPart)]
        publisher._watch.refresh_only([session])
        publisher._read_list()
        then = [update.content for update in publisher._send([session]) if isinstance(update, LogPart)]

    assert [probed] == first
    assert env.paths.log(session).read_bytes() == probed + then[0]


def commands_for_tasks() -> list[psutil.Process]:
    return [each for each in psutil.Process().children(recursive=True) if "task" in each.cmdline()]


async def test_a_command_for_a_task_that_is_repeated_after_a_lost_connection_runs_once(env: Env) -> None:
    key = TaskKey(runner="0" * 16, plan="tidy", number=1, name="1-a", attempt=1, epoch=1)
    words, request = ["task", "end", "--json"], msgspec.json.encode(EndTask(key=key))
    claim = TaskClaim(env.paths, key)
    claim.folder.mkdir(parents=True)
    buses = [LocalBus(env.paths), LocalBus(env.paths)]
    with lock(claim.folder / "claim.json"):
        lost = asyncio.create_task(buses[0].run(words, request))
        await auntil(commands_for_tasks)
        (first,) = commands_for_tasks()
        lost.cancel()
        await buses[0].aclose()
        again = asyncio.create_task(buses[1].run(words, request))
        await asyncio.wait([lost])
        assert [first] == commands_for_tasks()

    assert 0 == (await again).exit_code
