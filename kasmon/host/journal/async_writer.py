"""Writes a `SessionLog` from a loop: events are noted at once and reach the disk, in order, from a thread."""

import asyncio
import time
from typing import Final

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.host.journal.session_log import UNWRITTEN, SessionLog
from kasmon.model.events import NoticeRaised
from kasmon.model.session import Session

WRITTEN_S: Final = 2.0
"""How long an answer to a client waits for the log. A full disk does not block live control: the wait ends then."""
LAST_WORDS_S: Final = 30.0
"""How long a host that ends tries to write its last events."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
"""The pause before another try to write to a log that cannot be written; doubling in between."""


class LogWriter:
    """The log writer of one host. While the log cannot be written it retains every event and keeps trying."""

    def __init__(self, session_log: SessionLog) -> None:
        self.session_log = session_log
        self.note = session_log.note
        """Applies an event now; it is written soon."""
        self._wake = asyncio.Event()
        self.listeners = session_log.listeners
        self.listeners.append(self._wake.set)
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._task = asyncio.create_task(self._run())

    @property
    def session(self) -> Session:
        """The session state after the events noted so far."""
        return self.session_log.session

    async def abandon(self) -> None:
        """Stop writing and discard what is pending: the session's folder was removed."""
        self.session_log.abandon()
        await asyncio.to_thread(self.session_log.flush)
        self._notify_written()

    async def wait_for_write(self, limit_s: float) -> bool:
        """Wait up to *limit_s* seconds until all events noted so far are in the log; whether they are."""
        return await self._wait_for_count(self.session_log.noted, limit_s)

    async def wait_for_disk(self) -> bool:
        """Wait until all events noted so far are on disk; true once they are. False if the disk refuses to write."""
        count = self.session_log.noted
        while not await self._wait_for_count(count, WRITTEN_S):
            if self.session_log.trouble:
                return False
        return True

    async def wait_for_space(self) -> None:
        """Wait until few enough events are unwritten. Until then read nothing more from the agent."""
        while self.session_log.unwritten >= UNWRITTEN:
            await self._wait_for_count(self.session_log.noted - UNWRITTEN + 1, LONGEST_PAUSE_S)

    async def aclose(self, limit_s: float | None) -> bool:
        """Stop writing once all is written, or after *limit_s* seconds; false if something is unwritten. Idempotent."""
        done = await self._wait_for_count(self.session_log.noted, limit_s)
        await cancel_and_wait(self._task)
        return done

    async def _wait_for_count(self, count: int, limit_s: float | None) -> bool:
        if self.session_log.written >= count:
            return True
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, reached))
        await asyncio.wait([reached], timeout=limit_s)
        return self.session_log.written >= count

    async def _run(self) -> None:
        failed_at, why, pause_s = 0.0, "", 0.0
        while True:
            await (asyncio.sleep(pause_s) if pause_s else self._wake.wait())
            self._wake.clear()
            is_done = await asyncio.to_thread(self.session_log.flush)
            self._notify_written()
            if not is_done:
                if not pause_s:
                    failed_at, why = time.monotonic(), self.session_log.trouble
                pause_s = min(max(pause_s * 2, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            elif pause_s:
                pause_s, took_s = 0.0, time.monotonic() - failed_at
                text = f"The log could not be written for {took_s:.0f} s ({why}). Nothing is missing from it."
                self.note(NoticeRaised(at=time.time(), text=text, level="warning"))

    def _notify_written(self) -> None:
        written = self.session_log.written
        for count, reached in self._waiting:
            if count <= written and not reached.done():
                reached.set_result(None)
        self._waiting = [(count, reached) for count, reached in self._waiting if count > written]
