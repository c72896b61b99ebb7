"""What an agent has said, on its way to the host; while the host takes nothing, the agent is not read either."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Final

from kasmon.backends.base import Chunk
from kasmon.model.events import Event, SessionEnded

FULL: Final = 1000
"""How many facts may wait for the host before the agent is no longer read."""


class EventQueue:
    """The facts of one agent, in order, for one reader."""

    def __init__(self) -> None:
        self._waiting: deque[Event | Chunk] = deque()
        self._stirred, self._taken = asyncio.Event(), asyncio.Event()
        self._is_read = self._is_over = False

    def say(self, said: Iterable[Event | Chunk]) -> None:
        """Add *said*, for which there is always room; nothing comes after a `SessionEnded`."""
        for each in said:
            if not self._is_over:
                self._waiting.append(each)
                self._is_over = isinstance(each, SessionEnded)
        self._stirred.set()
        if self._is_over:
            self._taken.set()

    def introduce(self, first: Iterable[Event]) -> None:
        """Put *first* before what was said meanwhile; from now on the host is expected to take it all."""
        self._waiting.extendleft(reversed([*first]))
        self._is_read = True
        self._stirred.set()

    async def taken(self) -> AsyncIterator[Event | Chunk]:
        """All that was said, as it comes; ends after `SessionEnded`, and at once where that was taken before."""
        while self._waiting or not self._is_over:
            while not self._waiting:
                self._stirred.clear()
                await self._stirred.wait()
            said = self._waiting.popleft()
            self._taken.set()
            yield said

    async def room(self) -> None:
        """Return when the host has taken enough."""
        while self._is_read and not self._is_over and len(self._waiting) >= FULL:
            self._taken.clear()
            await self._taken.wait()
