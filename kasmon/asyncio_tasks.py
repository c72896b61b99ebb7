"""Tasks of asyncio: start, await and end them."""

import asyncio
from collections.abc import Awaitable, Collection, Coroutine
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

AGAIN_S: Final = 5.0
"""After this time, in seconds, tasks that have not ended are cancelled again.

That interrupts a clean-up that takes longer: such a one is awaited with `complete`.
"""


async def wait_within(limit_s: float | None, event: asyncio.Event) -> bool:
    """Wait until *event* is set, at most *limit_s* seconds; return whether it is."""
    try:
        async with asyncio.timeout(limit_s):
            return await event.wait()
    except TimeoutError:
        return event.is_set()


async def complete(work: Awaitable[Result]) -> Result:
    """Return what *work* returns. A cancellation of the caller does not reach *work*; it is raised after that.

    For clean-ups: a second cancellation would interrupt them.
    """
    task, cancellation = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # it counts as retrieved
    raise cancellation


async def cancel_and_wait(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancel those of *tasks* that exist, and return when they have ended, with whatever result."""
    existing = [task for task in tasks if task is not None]
    for task in existing:
        task.cancel()
    await asyncio.gather(*existing, return_exceptions=True)


async def end_tasks(tasks: "Collection[asyncio.Future[Any]]") -> None:
    """Cancel *tasks*, and return when all have ended, with whatever result.

    Repeated: `asyncio.wait_for` of Python 3.11, which nats-py uses, can lose a cancellation, and so does nats-py 2.16
    while it waits for a server that does not read. A cancellation of the caller is raised when all have ended.
    """
    await complete(_end(tasks))


async def _end(tasks: "Collection[asyncio.Future[Any]]") -> None:
    while unfinished := [task for task in tasks if not task.done()]:
        for task in unfinished:
            task.cancel()
        await asyncio.wait(unfinished, timeout=AGAIN_S)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # it counts as retrieved


class TaskSet:
    """Tasks that end with their owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, limit_s: float) -> None:
        """Wait until those that run now have ended, at most *limit_s*."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)

    def cancel(self) -> None:
        """Cancel them, and do not wait."""
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        """End them, except the one that calls this, as `end_tasks` does."""
        await complete(self._end_all(asyncio.current_task()))

    async def _end_all(self, caller: "asyncio.Task[Any] | None") -> None:
        while tasks := [task for task in self._tasks if task is not caller]:
            await _end(tasks)
