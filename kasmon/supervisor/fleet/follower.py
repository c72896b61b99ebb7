"""Follows a fleet from a thread that refreshes it on each hint and once a second, and publishes it to asyncio."""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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

    def __init__(self, watched: "FleetWatch", gap_s: float = GAP_S) -> None:
        """*gap_s*: the shortest time between two fleets, in seconds."""
        self._watched, self._gap_s = watched, gap_s
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._published_at = -math.inf
        self._publish_timer: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self._stop = StopEvent()
        self._is_closed = False
        threading.Thread(target=self._run, name="follows the fleet", daemon=True).start()

    async def wait_for_change(self) -> Fleet:
        """Wait for a fleet that was not returned yet, and return the newest one."""
        await self._changed.wait()
        self._changed.clear()
        if self._error is not None:
            raise self._error
        return self._watched.fleet

    async def aclose(self) -> None:
        """End the thread; idempotent, done after at most one more refresh."""
        self._stop.set()
        if self._publish_timer is not None:
            self._publish_timer.cancel()
        await self._ended.wait()
        if not self._is_closed:
            self._is_closed = True
            self._stop.close()

    def _run(self) -> None:
        try:
            self._follow()
        except BaseException as error:  # noqa: BLE001  # noqa: BLE001  # must reach the caller of `next`
            self._on_loop(self._fail, error)
        self._on_loop(self._ended.set)

    def _follow(self) -> None:
        watched = self._watched
        watched.refresh()
        published, urgent = (watched.version, watched.read_only), watched.urgent_changes
        self._on_loop(self._publish, True)
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
                is_urgent, urgent, published = watched.urgent_changes != urgent, watched.urgent_changes, newest
                if is_urgent or self._publish_timer is None:
                    self._on_loop(self._publish, is_urgent)
            if self._stop.wait(rest_s):
                return

    def _publish(self, is_urgent: bool) -> None:
        """Publish the fleet: at once if *is_urgent*, or if the last one is long enough ago."""
        if is_urgent:
            self._publish_now()
        elif self._publish_timer is None:
            self._publish_timer = self._loop.call_at(self._published_at + self._gap_s, self._publish_now)

    def _publish_now(self) -> None:
        if self._publish_timer is not None:
            self._publish_timer.cancel()
        self._publish_timer, self._published_at = None, self._loop.time()
        self._changed.set()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._changed.set()

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(call, *arguments)
