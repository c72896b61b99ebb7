"""Tasks end although something in them loses a cancellation."""

import asyncio

from kasmon.bus.tasks import TaskSet, end_tasks


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


async def test_a_task_that_loses_two_cancellations_ends_all_the_same() -> None:
    ended = list[str]()
    tasks = [asyncio.create_task(lose(times, ended)) for times in (0, 2)]
    await asyncio.sleep(0)
    await end_tasks(tasks)

    assert (["ended"] * 2, [True, True]) == (ended, [task.cancelled() for task in tasks])


async def test_a_set_ends_its_tasks_except_the_one_that_ends_them() -> None:
    ended, tasks = list[str](), TaskSet()

    async def end_all() -> None:
        await tasks.cancel()
        ended.append("went on")

    tasks.start(lose(1, ended))
    tasks.start(end_all())
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
