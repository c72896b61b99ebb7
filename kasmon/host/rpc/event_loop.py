"""Coroutines that run on asyncio's event loop or without one.

The import of asyncio takes four times as long as the start of Python, so a command that asks one host does without it.
Its coroutines await only the functions here and `BlockingLink`: on a loop these wait for it, without one they block.
"""

import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def is_running() -> bool:
    """Whether this thread is in an event loop."""
    events = sys.modules.get("asyncio.events")
    return events is not None and events._get_running_loop() is not None


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run *coroutine* to its end without an event loop, and return its result. Blocks.

    Raises:
        RuntimeError: if it awaits something that needs a loop.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine} waits for an event loop")


async def run_in_thread(
    call: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Return what *call* returns, which may block; the loop, if there is one, does not wait for it."""
    if not is_running():
        return call(*args, **kwargs)
    import asyncio

    return await asyncio.to_thread(call, *args, **kwargs)


async def sleep(seconds: float) -> None:
    if not is_running():
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop to wait for
        return
    import asyncio

    await asyncio.sleep(seconds)
