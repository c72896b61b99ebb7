"""Turns of interpreters: runs that follow each other closely form one turn, in which the sandbox is not paused.

Whatever moves the sandbox (pause, resume, a checkpoint, its end) holds the lock `gate`, and no run begins meanwhile.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Literal, TypeAlias

from kasmon.asyncio_tasks import TaskSet

QUIET_S: Final = 0.5
"""A turn is over when nothing ran for this many seconds."""

Begin: TypeAlias = Callable[[str, str], Awaitable[None]]


class TurnCounter:
    """Counts the runs of a session. For one event loop."""

    def __init__(
        self,
        begin: Begin,
        finish: Callable[[Literal["done", "interrupted"]], Awaitable[None]],
        after: Callable[[], Awaitable[None]],
        quiet_s: float = QUIET_S,
    ) -> None:
        """
        Args:
            begin: called with the run's title and sender, while the sandbox is not being moved: makes sure that it
                runs, and begins a turn if none is running. May raise.
            finish: called likewise when a turn is over, which it is after *quiet_s* seconds without a run.
            after: called after `finish`, when the next turn may begin.
        """
        self.gate = asyncio.Lock()
        """Held while the sandbox is moved."""
        self.is_running = False
        self.was_interrupted = False
        self._begin = begin
        self._finish = finish
        self._after = after
        self._quiet_s = quiet_s
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = TaskSet()
        self._over = asyncio.Event()
        self._over.set()

    @contextlib.asynccontextmanager
    async def run(self, what: str, by: str, begin: Begin | None = None) -> AsyncIterator[None]:
        """Count a run as long as this context lasts; *begin* replaces the usual one.

        Raises:
            KasmonError: the error of *begin*; nothing runs then.
        """
        async with self.gate:
            await (begin or self._begin)(what, by)
            self.is_running = True
            self._over.clear()
            self._running += 1
            self._stop_timer()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._timer = asyncio.get_running_loop().call_later(self._quiet_s, self._close_soon)

    @contextlib.asynccontextmanager
    async def none(self) -> AsyncIterator[None]:
        """Keep turns from starting as long as this context lasts; waits for the running one."""
        while True:
            await self._over.wait()
            async with self.gate:
                if not self.is_running:
                    yield
                    return

    async def aclose(self) -> None:
        """End the running turn, without waiting for its runs."""
        self._stop_timer()
        await self._closing.aclose()

    def _close_soon(self) -> None:
        self._closing.start(self._close())

    async def _close(self) -> None:
        async with self.gate:
            if self._running or not self.is_running:
                return
            try:
                await self._finish("interrupted" if self.was_interrupted else "done")
            finally:
                self.is_running = self.was_interrupted = False
                self._over.set()
        await self._after()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
