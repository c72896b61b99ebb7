"""Writes a `SessionLog` from a loop: facts are noted at once and reach the disk, in order, from a thread."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from kasmon.host.journal.session_log import UNWRITTEN, SessionLog
from kasmon.model.events import Event, NoticeRaised
from kasmon.model.session import Session

WRITTEN_S: Final = 2.0
"""How long an answer to a client waits for the log. A full disk does not take live control away: it goes on then."""
LAST_WORDS_S: Final = 30.0
"""How long a host that ends tries to write down its last facts."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
"""How long the pen waits before it tries again to write to a log that cannot be written; doubling in between."""


class LogWriter:
    """The pen of one host. While the log cannot be written it keeps every fact, and tries again and again."""

    def __init__(self, book: SessionLog) -> None:
        self.book = book
        self.on_noted: Callable[[], None] = lambda: None
        """Called after each fact that was noted."""
        self._wake = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._task = asyncio.create_task(self._run())

    @property
    def session(self) -> Session:
        """What the facts noted so far add up to."""
        return self.book.session

    def note(self, event: Event, *, durable: bool = False) -> None:
        """Count *event* as a fact from now on; it is written soon.

        Raises:
            ValueError: if it cannot be written down at all; it is no fact then.
        """
        self.book.note(event, durable=durable)
        self._wake.set()
        self.on_noted()

    async def lose_its_place(self) -> None:
        """Write nothing any more, and wait for nothing to be written: the session's folder was removed."""
        self.book.lose_its_place()
        await self._flushed()

    async def written(self, limit_s: float) -> bool:
        """Whether all that was noted so far is in the log; waits for that as long as *limit_s* seconds."""
        return await self._reached(self.book.noted, limit_s)

    async def on_disk(self) -> bool:
        """Whether all that was noted so far is on disk. A slow disk is waited for; one that refuses to write is not."""
        count = self.book.noted
        while not await self._reached(count, WRITTEN_S):
            if self.book.trouble:
                return False
        return True

    async def room(self) -> None:
        """Return when few enough facts wait for the log. Until then nothing more should be heard from the agent."""
        while self.book.unwritten >= UNWRITTEN:
            await self._reached(self.book.noted - UNWRITTEN + 1, LONGEST_PAUSE_S)

    async def aclose(self, limit_s: float | None) -> bool:
        """Stop writing once all is written, or *limit_s* seconds are over; false if something was left. Idempotent."""
        done = await self._reached(self.book.noted, limit_s)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return done

    async def _reached(self, count: int, limit_s: float | None) -> bool:
        if self.book.written >= count:
            return True
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, reached))
        await asyncio.wait([reached], timeout=limit_s)
        return self.book.written >= count

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self._flushed():
                await self._keep_trying()

    async def _keep_trying(self) -> None:
        began_at, pause_s = time.monotonic(), FIRST_PAUSE_S
        why = self.book.trouble
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            if await self._flushed():
                break
        took_s = time.monotonic() - began_at
        text = f"The log could not be written for {took_s:.0f} s ({why}). Nothing is missing from it."
        self.note(NoticeRaised(at=time.time(), text=text, level="warning"))

    async def _flushed(self) -> bool:
        done = await asyncio.to_thread(self.book.flush)
        written = self.book.written
        for count, reached in self._waiting:
            if count <= written and not reached.done():
                reached.set_result(None)
        self._waiting = [(count, reached) for count, reached in self._waiting if count > written]
        return done
