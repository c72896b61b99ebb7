"""What an agent has said and nobody has read yet: in order, and not without end."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Final

from kasmon.backends.base import Chunk
from kasmon.model.event import Event, SessionEnded

FULL: Final = 1000
"""From how many on the agent has to wait."""


class Outbox:
    """A queue with one reader, which ends with the session."""

    def __init__(self) -> None:
        self._waiting: deque[Event | Chunk] = deque()
        self._stirred = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_over = False

    async def room(self) -> None:
        """Return when somebody has read enough."""
        await self._has_room.wait()

    def put(self, said: Iterable[Event | Chunk]) -> None:
        """Add *said*; there is always room for it."""
        self._waiting.extend(said)
        self._changed()

    def put_first(self, said: Iterable[Event | Chunk]) -> None:
        """Add *said* before everything else."""
        self._waiting.extendleft(reversed(list(said)))
        self._changed()

    async def read(self) -> AsyncIterator[Event | Chunk]:
        """Yield all that comes, up to `SessionEnded`; after that nothing."""
        while not self._is_over:
            while not self._waiting:
                self._stirred.clear()
                await self._stirred.wait()
            said = self._waiting.popleft()
            self._is_over = isinstance(said, SessionEnded)
            self._changed()
            yield said

    def _changed(self) -> None:
        self._stirred.set()
        if len(self._waiting) < FULL:
            self._has_room.set()
        else:
            self._has_room.clear()
