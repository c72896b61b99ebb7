"""When to try again to reach another machine: soon at first, ever more seldom, and not for ever."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from kasmon.errors import KasmonError, UnavailableError
from kasmon.model.commands import Launch

FIRST_S: Final = 0.5
LONGEST_S: Final = 60.0
TRIES_S: Final = 24 * 3600.0
"""After so long nobody tries any more, until somebody restarts the session or the host."""
STEADY_S: Final = 60.0
"""A line that holds for so long is taken for a good one."""

log = logging.getLogger(__name__)


class Backoff:
    """How long to wait before the first try: longer each time, while a line that is found again does not hold."""

    def __init__(self) -> None:
        self._pause_s = FIRST_S
        self._found_at: float | None = None

    def lost(self, now: float) -> float:
        """The line is lost at *now*, in seconds of any clock; how long to wait, in seconds."""
        found_at, self._found_at = self._found_at, None
        if found_at is not None:
            self._pause_s = FIRST_S if now - found_at >= STEADY_S else min(self._pause_s * 2, LONGEST_S)
        return self._pause_s

    def found(self, now: float) -> None:
        """It is there again."""
        self._found_at = now


def pauses(first_s: float = FIRST_S) -> Iterator[float]:
    """How long to wait before each next try, in seconds."""
    pause_s, left_s = first_s, TRIES_S
    while left_s > 0:
        yield pause_s
        left_s -= pause_s
        pause_s = min(pause_s * 2, LONGEST_S)


async def reached(look: Callable[[], Awaitable[object]], first_s: float = FIRST_S) -> bool:
    """Wait until *look* does not raise `UnavailableError` any more; false when it was tried for long enough."""
    for pause_s in pauses(first_s):
        await asyncio.sleep(pause_s)
        try:
            await look()
        except UnavailableError:
            continue
        return True
    return False


class ReconnectSearch:
    """For an agent that was lost and may live on another machine, which is asked until it answers."""

    def __init__(self, look: Callable[[Launch], Awaitable[bool]], attach: Callable[[], Awaitable[None]]) -> None:
        """*look* says whether it runs there, or raises `UnavailableError`; *attach* shows it again, or how it ended."""
        self._look, self._attach = look, attach
        self._backoff = Backoff()
        self._task: asyncio.Task[None] | None = None
        self._sought: Launch | None = None
        self._once_more = False

    @property
    def is_on(self) -> bool:
        """Whether it goes on."""
        return self._task is not None and not self._task.done()

    def begin(self, launch: Launch) -> None:
        """Search from now on, or once more where it goes on: what was found a moment ago may be lost again."""
        self._sought = launch
        if self.is_on:
            self._once_more = True
        else:
            self._task = asyncio.create_task(self._go(launch))

    def stop(self) -> Launch | None:
        """Search no more; for whom it was, if it was for anybody. Idempotent."""
        sought, self._sought = self._sought, None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return sought

    async def finds(self, launch: Launch) -> bool:
        """Whether it is known at this moment that the agent runs there."""
        with contextlib.suppress(UnavailableError):
            return await self._look(launch)
        return False

    async def _go(self, launch: Launch) -> None:
        self._once_more = True
        while self._once_more:
            if not await reached(lambda: self._look(launch), self._backoff.lost(time.monotonic())):
                return
            self._once_more = False
            try:
                await self._attach()
            except UnavailableError:
                self._once_more = True
            except KasmonError as error:  # whoever wants it next is told
                log.warning("it is not attached to again: %s", error)
            self._backoff.found(time.monotonic())
