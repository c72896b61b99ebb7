"""End a task, and wait for an event with a limit."""

import asyncio


async def end_task(task: "asyncio.Task[None] | None") -> None:
    """Cancel *task*, if there is one, and return when it has ended, with whatever result."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wait_within(limit_s: float | None, event: asyncio.Event) -> bool:
    """Wait until *event* is set, at most *limit_s* seconds; return whether it is."""
    try:
        async with asyncio.timeout(limit_s):
            return await event.wait()
    except TimeoutError:
        return event.is_set()
