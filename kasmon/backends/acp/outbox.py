"""What an agent has said, on its way to the host; while the host takes nothing, the agent is not read either."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

from kasmon.backends.base import Chunk
from kasmon.model.event import Event, SessionEnded

ROOM: Final = 1000
"""How many facts may wait for the host before the agent is no longer read."""


class Outbox:
    """The facts of one agent, in order."""

    def __init__(self) -> None:
        self._said: asyncio.Queue[Event | Chunk] = asyncio.Queue()
        self._taken = asyncio.Event()
        self._is_read = self._is_over = False

    def say(self, said: Iterable[Event | Chunk]) -> None:
        """Add *said*; nothing comes after a `SessionEnded`."""
        for each in said:
            if not self._is_over:
                self._said.put_nowait(each)
                self._is_over = isinstance(each, SessionEnded)

    def introduce(self, first: Iterable[Event]) -> None:
        """Put *first* before what was said meanwhile; from now on the host is expected to take it all."""
        early = [self._said.get_nowait() for _ in range(self._said.qsize())]
        self.say([*first, *early])
        self._is_read = True

    async def taken(self) -> AsyncIterator[Event | Chunk]:
        """All that was said, as it comes; ends after `SessionEnded`, and at once where that was taken before."""
        while not (self._is_over and self._said.empty()):
            said = await self._said.get()
            self._taken.set()
            yield said

    async def room(self) -> None:
        """Return when the host has taken enough."""
        while self._is_read and not self._is_over and self._said.qsize() >= ROOM:
            self._taken.clear()
            await self._taken.wait()
