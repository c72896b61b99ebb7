"""When to retry the connection to another machine: soon at first, at growing intervals, and for a limited time."""

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
"""After this time retrying ends, until the user restarts the session or the host."""
STEADY_S: Final = 60.0
"""A connection that holds for this long counts as stable."""

log = logging.getLogger(__name__)


class Backoff:
    """The pause before the first retry: longer each time, while a restored connection does not hold."""

    def __init__(self) -> None:
        self._pause_s = FIRST_S
        self._seen_at: float | None = None

    def record_loss(self, now: float) -> float:
        """Record the loss at *now*, in seconds of any clock; return how long to wait, in seconds."""
        found_at, self._seen_at = self._seen_at, None
        if found_at is not None:
            self._pause_s = FIRST_S if now - found_at >= STEADY_S else min(self._pause_s * 2, LONGEST_S)
        return self._pause_s

    def record_success(self, now: float) -> None:
        self._seen_at = now


def pauses(first_s: float = FIRST_S) -> Iterator[float]:
    """Yield how long to wait before each next try, in seconds."""
    pause_s, left_s = first_s, TRIES_S
    while left_s > 0:
        yield pause_s
        left_s -= pause_s
        pause_s = min(pause_s * 2, LONGEST_S)


async def wait_until_reachable(probe: Callable[[], Awaitable[object]], first_s: float = FIRST_S) -> bool:
    """Wait until *probe* no longer raises `UnavailableError`; false when it was tried for long enough."""
    for pause_s in pauses(first_s):
        await asyncio.sleep(pause_s)
        try:
            await probe()
        except UnavailableError:
            continue
        return True
    return False


class ReconnectSearch:
    """The search for a lost agent that may run on another machine, which is asked until it answers."""

    def __init__(self, probe: Callable[[Launch], Awaitable[bool]], attach: Callable[[], Awaitable[None]]) -> None:
        """*probe*: whether it runs there, or raises `UnavailableError`; *attach*: displays it again, or its end."""
        self._probe, self._attach = probe, attach
        self._backoff = Backoff()
        self._task: asyncio.Task[None] | None = None
        self._launch: Launch | None = None
        self._once_more = False

    @property
    def is_on(self) -> bool:
        return self._task is not None and not self._task.done()

    def begin(self, launch: Launch) -> None:
        """Start the search, or repeat a running one: an agent found a moment ago may be lost again."""
        self._launch = launch
        if self.is_on:
            self._once_more = True
        else:
            self._task = asyncio.create_task(self._go(launch))

    def stop(self) -> Launch | None:
        """Stop the search; return the launch that it was for, if any. Idempotent."""
        launch, self._launch = self._launch, None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return launch

    async def finds(self, launch: Launch) -> bool:
        """Whether the agent is known at this moment to run there."""
        with contextlib.suppress(UnavailableError):
            return await self._probe(launch)
        return False

    async def _go(self, launch: Launch) -> None:
        self._once_more = True
        while self._once_more:
            if not await wait_until_reachable(lambda: self._probe(launch), self._backoff.record_loss(time.monotonic())):
                return
            self._once_more = False
            try:
                await self._attach()
            except UnavailableError:
                self._once_more = True
            except KasmonError as error:  # reported to the next request for it
                log.warning("it is not attached to again: %s", error)
            self._backoff.record_success(time.monotonic())
