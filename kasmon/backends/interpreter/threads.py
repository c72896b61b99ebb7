"""The threads of one interpreter session: one that moves its sandbox, one for each waiting run, a few more."""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

RUNNERS: Final = 16
"""How many runs may wait for their interpreters at once."""
CALLERS: Final = 4

Value = TypeVar("Value")


class BlockingCalls:
    """Blocking calls in threads. They end by themselves once the sandbox is gone."""

    def __init__(self) -> None:
        self._movers = ThreadPoolExecutor(1, "sandbox")
        self._runners = ThreadPoolExecutor(RUNNERS, "run")
        self._callers = ThreadPoolExecutor(CALLERS, "call")

    async def move(self, act: Callable[..., Value], *arguments: Any, **named: Any) -> Value:
        """Return the result of *act*, which moves the sandbox: one call at a time."""
        call = functools.partial(act, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._movers, call)

    async def work(self, act: Callable[..., Value], *arguments: Any, **named: Any) -> Value:
        """Return the result of *act*; up to `RUNNERS` such calls run in parallel."""
        call = functools.partial(act, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._runners, call)

    async def call(self, act: Callable[..., Value], *arguments: Any) -> Value:
        """Return the result of a short *act*, also while all runner threads are busy."""
        return await asyncio.get_running_loop().run_in_executor(self._callers, act, *arguments)

    def close(self) -> None:
        """Accept no more calls; do not wait for those under way."""
        for executor in (self._movers, self._runners, self._callers):
            executor.shutdown(wait=False)
