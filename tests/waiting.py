"""Wait for a condition, never for a time."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def until(condition: Callable[[], Value | None], limit_s: float = 10.0, what: str = "the condition") -> Value:
    """The first true value of *condition*.

    Raises:
        TimeoutError: if it is not true within *limit_s*; the limit is a safety net, no expectation.
    """
    deadline = time.monotonic() + limit_s
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {limit_s} s")
        time.sleep(0.01)


async def auntil(condition: Callable[[], Value | None], limit_s: float = 10.0, what: str = "the condition") -> Value:
    """Like `until`, for a test that runs on a loop.

    Raises:
        TimeoutError: if it is not true within *limit_s*.
    """
    deadline = time.monotonic() + limit_s
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {limit_s} s")
        await asyncio.sleep(0.01)
