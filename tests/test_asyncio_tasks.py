"""Tasks end although something in them loses a cancellation, and their clean-ups are not cut off."""

import asyncio

import pytest

from kasmon import asyncio_tasks
from kasmon.asyncio_tasks import AGAIN_S, TaskSet, complete, end_tasks
from kasmon.bus import ssh, stream
from kasmon.bus.nats import connection


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are cancelled again in each iteration of the loop."""
    monkeypatch.setattr(asyncio_tasks, "AGAIN_S", 0)


async def lose(times: int, ended: list[str]) -> None:
    """Lose so many cancellations, as nats-py does while it waits for a server that does not read."""
    for _ in range(times):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")


async def test_a_task_that_loses_two_cancellations_still_ends() -> None:
    ended = list[str]()
    losing = [asyncio.create_task(lose(times, ended)) for times in (0, 2)]
    await asyncio.sleep(0)
    await end_tasks(losing)

    assert (["ended"] * 2, [True, True]) == (ended, [task.cancelled() for task in losing])


async def test_a_set_ends_its_tasks_except_the_one_that_ends_them() -> None:
    ended, running = list[str](), TaskSet()

    async def end_all() -> None:
        await running.aclose()
        ended.append("went on")

    running.start(lose(1, ended))
    running.start(end_all())
    async with asyncio.timeout(60):
        while len(ended) < 2:  # noqa: ASYNC110 - tasks of a set signal nothing
            await asyncio.sleep(0)

    assert ["ended", "went on"] == ended


async def test_an_error_of_a_task_is_not_raised_and_not_reported_as_lost() -> None:
    async def fail() -> None:
        raise ValueError("x")

    reported = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    await end_tasks([task])
    del task

    assert [] == reported


@pytest.mark.parametrize("is_set", [False, True])
async def test_a_task_that_ends_others_can_be_ended_like_them(is_set: bool) -> None:
    ended, running = list[str](), TaskSet()

    async def own() -> None:
        if is_set:
            running.start(lose(5, ended))
        else:
            losing = asyncio.create_task(lose(5, ended))
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await (running.aclose() if is_set else end_tasks([losing]))
            finally:
                ended.append("its owner")

    owner = asyncio.create_task(own())
    for _ in range(2):
        await asyncio.sleep(0)
    await end_tasks([owner])

    assert (["ended", "its owner"], True) == (ended, owner.cancelled())


async def test_a_set_that_is_ended_twice_ends_tasks_started_meanwhile() -> None:
    ended, running = list[str](), TaskSet()

    async def start_another() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            running.start(lose(5, ended))

    running.start(start_another())
    await asyncio.sleep(0)
    ending = asyncio.create_task(running.aclose())
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])

    assert (["ended"], True) == (ended, ending.cancelled())


async def test_a_cancellation_of_the_ending_task_does_not_hurry_their_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_tasks, "AGAIN_S", 60)
    cleaned, goes_on = list[str](), asyncio.Event()

    async def clean_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("begun")
            await goes_on.wait()
            cleaned.append("done")

    task = asyncio.create_task(clean_slowly())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end_tasks([task]))
    while not cleaned:  # noqa: ASYNC110 - the task signals nothing else
        await asyncio.sleep(0)
    for _ in range(5):
        ending.cancel()
        await asyncio.sleep(0)
    goes_on.set()
    await asyncio.wait([ending])

    assert (["begun", "done"], True) == (cleaned, ending.cancelled())


async def test_a_clean_up_that_takes_longer_than_the_interval_is_completed() -> None:
    cleaned = list[str]()

    async def clean() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        cleaned.append("done")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await complete(clean())

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await end_tasks([task])

    assert (["done"], True) == (cleaned, task.cancelled())


def test_the_interval_is_longer_than_the_limits_of_clean_ups() -> None:
    assert AGAIN_S > 2 * max(ssh.ENDING_S, stream.CLOSE_S, connection.CLOSE_S)
