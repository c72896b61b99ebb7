"""Follows a fleet from a thread that refreshes it on each hint and once a second, and publishes it to asyncio."""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from kasmon.asyncio_tasks import wait_within
from kasmon.model.fleet import Fleet
from kasmon.supervisor.fleet.file_hints import StopEvent, hints

if TYPE_CHECKING:
    from kasmon.supervisor.fleet.watch import FleetWatch

RECONCILE_S: Final = 1.0
"""How often everything is refreshed, with or without hints, in seconds."""
TICK_S: Final = 0.5
"""How long the thread waits for a hint at most; a reconcile is never later by more."""
GAP_S: Final = 0.1
"""The shortest time between two published fleets, in seconds; a new state or request is published at once."""
SHORTEST_REST_S, LONGEST_REST_S = 0.015, 0.04
"""The limits of the pause after a refresh on a hint, in seconds: `RESTS` times as long as it took. The shortest one
follows a refresh of everything, which has its own interval: a new state would wait for its end. A change after the
pause is refreshed at once, and all changes during the pause together at its end."""
RESTS: Final = 20


class Follower:
    """Refreshes *watched* in a thread of its own and publishes the newest fleet that differs from the previous one."""

    def __init__(self, watched: "FleetWatch", gap_s: float) -> None:
        """*gap_s*: the shortest time between two fleets, in seconds."""
        self._watched, self._gap_s = watched, gap_s
        self._changed, self._has_urgent, self._ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._error: BaseException | None = None

    async def changes(self) -> AsyncGenerator[Fleet, None]:
        """Yield the newest fleet whenever it differs from the one before. To be iterated once."""
        self._loop, self._stop, published_at = asyncio.get_running_loop(), StopEvent(), -math.inf
        threading.Thread(target=self._run, name="follows the fleet", daemon=True).start()
        try:
            while True:
                await self._changed.wait()
                if (gap_s := published_at + self._gap_s - self._loop.time()) > 0:
                    await wait_within(gap_s, self._has_urgent)
                self._changed.clear()
                self._has_urgent.clear()
                if self._error is not None:
                    raise self._error
                published_at = self._loop.time()
                yield self._watched.fleet
        finally:
            self._stop.set()
            await self._ended.wait()
            self._stop.close()

    def _run(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            try:
                self._follow()
            except BaseException as error:  # noqa: BLE001 - must reach the reader of `changes`
                self._error = error
                self._loop.call_soon_threadsafe(self._has_urgent.set)
                self._loop.call_soon_threadsafe(self._changed.set)
            self._loop.call_soon_threadsafe(self._ended.set)

    def _follow(self) -> None:
        watched = self._watched
        watched.refresh()
        published, urgent = (watched.version, watched.read_only), watched.urgent_changes
        self._loop.call_soon_threadsafe(self._changed.set)
        reconciled_at = time.monotonic()
        for hinted in hints(watched.paths, self._stop, TICK_S):
            refreshed_at = time.monotonic()
            rest_s = SHORTEST_REST_S
            if refreshed_at >= reconciled_at + RECONCILE_S:
                watched.refresh()
                reconciled_at = refreshed_at
            else:
                watched.refresh_only(hinted)
                rest_s = min(max(RESTS * (time.monotonic() - refreshed_at), rest_s), LONGEST_REST_S)
            if (newest := (watched.version, watched.read_only)) != published:
                is_pending = self._changed.is_set()  # the reader waits for the gap or is busy: it will take this fleet
                if watched.urgent_changes != urgent:
                    self._loop.call_soon_threadsafe(self._has_urgent.set)
                if not is_pending:
                    self._loop.call_soon_threadsafe(self._changed.set)
                published, urgent = newest, watched.urgent_changes
            if self._stop.wait(rest_s):
                return
