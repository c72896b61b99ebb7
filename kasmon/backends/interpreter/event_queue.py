"""Events on their way from an agent's threads to its host, in order; `write` blocks for those that must be on disk."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple, TypeAlias

from kasmon.asyncio_tasks import wait_within
from kasmon.backends.base import Chunk, SecretsLearned
from kasmon.errors import SandboxError
from kasmon.model.events import Event, SessionEnded
from kasmon.model.sandbox.state import must_be_on_disk

WRITTEN_S: Final = 10.0
"""How long to wait for an intent to reach the disk before the operation is given up, in seconds."""
HEARD_S: Final = 5.0

QueueItem: TypeAlias = Event | Chunk | SecretsLearned


class _Entry(NamedTuple):
    said: QueueItem | None
    """None only marks a position in the queue."""
    taken: Callable[[], None] | None = None
    """Called once the reader asks for the next entry."""


class ThreadSafeEventQueue:
    """Events from any thread, for one reader. A reader that asks for more has logged what it received."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """*loop*: the event loop of the reader."""
        self._loop = loop
        self._entries: deque[_Entry] = deque()
        self._more = asyncio.Event()
        self._is_over = False

    def write(self, event: Event) -> None:
        """Add *event*, from any thread. If it is an intent that must be on disk, block until it is there.

        Raises:
            SandboxError: if it could not be written in time; the operation must not be started then.
        """
        if not must_be_on_disk(event):
            self._put(_Entry(event))
            return
        written = threading.Event()
        self._put(_Entry(event, written.set))
        if not written.wait(WRITTEN_S):
            raise SandboxError("the sandbox was not changed", "the command could not be logged")

    def show(self, item: Chunk | SecretsLearned) -> None:
        self._put(_Entry(item))

    async def wait_read(self) -> None:
        """Return once all that was added so far was read, or there is no reader any more."""
        if self._is_over:
            return
        taken = asyncio.Event()
        self._put(_Entry(None, taken.set))
        await wait_within(HEARD_S, taken)

    async def read(self, begin: Callable[[], None]) -> AsyncIterator[QueueItem]:
        """Yield what is added, in order; ends after `SessionEnded`. *begin* is called when the first is asked for."""
        begin()
        try:
            while not self._is_over:
                while not self._entries:
                    self._more.clear()
                    await self._more.wait()
                entry = self._entries.popleft()
                if entry.said is not None:
                    self._is_over = isinstance(entry.said, SessionEnded)
                    yield entry.said
                if entry.taken is not None:
                    entry.taken()
        finally:
            self._is_over = True
            for entry in self._entries:
                if entry.said is None and entry.taken is not None:  # it waits for a reader, not for the disk
                    entry.taken()

    def _put(self, entry: _Entry) -> None:
        self._entries.append(entry)
        try:
            if asyncio.get_running_loop() is self._loop:
                self._more.set()
                return
        except RuntimeError:
            pass
        try:
            self._loop.call_soon_threadsafe(self._more.set)
        except RuntimeError as error:
            raise SandboxError("the sandbox accepts no more commands", "its host has ended") from error
