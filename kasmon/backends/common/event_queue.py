"""Events of an agent on their way to the host; while the host does not read, the agent is not read either."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Final

from kasmon.backends.base import Chunk
from kasmon.model.events import Event, SessionEnded

FULL: Final = 1000
"""How many events may wait for the host before the agent is no longer read."""


class EventQueue:
    """The events of one agent, in order, for one reader."""

    def __init__(self) -> None:
        self._waiting: deque[Event | Chunk] = deque()
        self._stirred, self._taken = asyncio.Event(), asyncio.Event()
        self._is_read = self._is_over = False

    def put(self, items: Iterable[Event | Chunk]) -> None:
        """Add *items*; never blocks. Nothing is added after a `SessionEnded`."""
        for each in items:
            if not self._is_over:
                self._waiting.append(each)
                self._is_over = isinstance(each, SessionEnded)
        self._stirred.set()
        if self._is_over:
            self._taken.set()

    def start(self, first: Iterable[Event]) -> None:
        """Put *first* before the events added so far; from now on the host is expected to read."""
        self._waiting.extendleft(reversed([*first]))
        self._is_read = True
        self._stirred.set()

    async def read(self) -> AsyncIterator[Event | Chunk]:
        """Yield all events as they come; ends after `SessionEnded`, and at once if that was yielded before."""
        while self._waiting or not self._is_over:
            while not self._waiting:
                self._stirred.clear()
                await self._stirred.wait()
            item = self._waiting.popleft()
            self._taken.set()
            yield item

    async def wait_for_space(self) -> None:
        """Wait until the host has read enough that there is space."""
        while self._is_read and not self._is_over and len(self._waiting) >= FULL:
            self._taken.clear()
            await self._taken.wait()
