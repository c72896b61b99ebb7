"""Wait for a condition, never for a time."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

Value = TypeVar("Value")
LIMIT_S: Final = 100.0
"""A safety net, no expectation: on a busy machine everything takes several times as long."""


def _pause_s(asked_at: float) -> float:
    """How long to wait before a condition that was asked at *asked_at* is asked again.

    One that takes long (it starts a command, it looks at all processes) takes at most a quarter of a processor.
    """
    return min(max(0.01, 3 * (time.monotonic() - asked_at)), 0.1)


def until(condition: Callable[[], Value | None], limit_s: float = LIMIT_S, what: str = "the condition") -> Value:
    """The first true value of *condition*.

    Raises:
        TimeoutError: if it is not true within *limit_s*.
    """
    deadline = time.monotonic() + limit_s
    while True:
        asked_at = time.monotonic()
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {limit_s} s")
        time.sleep(_pause_s(asked_at))


async def auntil(condition: Callable[[], Value | None], limit_s: float = LIMIT_S, what: str = "the condition") -> Value:
    """Like `until`, for a test that runs on a loop.

    Raises:
        TimeoutError: if it is not true within *limit_s*.
    """
    deadline = time.monotonic() + limit_s
    while True:
        asked_at = time.monotonic()
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {limit_s} s")
        await asyncio.sleep(_pause_s(asked_at))


def remove_folder(folder: Path) -> None:
    """Remove *folder*, again while a process that is ending still writes into it (the history of a shell).

    Raises:
        TimeoutError: if it cannot be removed.
    """

    def is_removed() -> bool:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
        return not folder.exists()

    until(is_removed, what=f"the removal of {folder}")
