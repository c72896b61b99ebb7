"""Follows a fleet from a thread that refreshes it on each hint and once a second, and publishes it to asyncio."""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.supervisor.fleet.file_hints import StopEvent, hints

RECONCILE_S: Final = 1.0
"""How often everything is refreshed, with or without hints, in seconds."""
TICK_S: Final = 0.5
"""How long the thread waits for a hint at most; a reconcile is never later by more."""
GAP_S: Final = 0.1
"""The shortest time between two published fleets, in seconds; a change of requests is published at once."""
SHORTEST_REST_S, LONGEST_REST_S = 0.01, 0.1
"""The limits of the pause between two refreshes, in seconds: `RESTS` times as long as the refresh took."""
RESTS: Final = 20


class FollowedView(Protocol):
    """What is followed; its calls access files and are made in the follower's thread."""

    places: Paths

    def look(self) -> Fleet: ...

    def glance(self, sessions: Iterable[SessionId]) -> Fleet: ...

    @property
    def asked(self) -> int:
        """How many times requests appeared or went away."""
        ...


class Follower:
    """Refreshes *watched* in a thread of its own and publishes the newest fleet that differs from the previous one."""

    def __init__(self, watched: FollowedView, gap_s: float = GAP_S) -> None:
        """*gap_s*: the shortest time between two fleets, in seconds."""
        self._watched, self._gap_s = watched, gap_s
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._newest = Fleet()
        self._told_at = -math.inf
        self._telling: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self._stop = StopEvent()
        self._is_closed = False
        threading.Thread(target=self._run, name="follows the fleet", daemon=True).start()

    async def next(self) -> Fleet:
        """Wait for a fleet that was not returned yet, and return the newest one."""
        await self._news.wait()
        self._news.clear()
        if self._error is not None:
            raise self._error
        return self._newest

    async def aclose(self) -> None:
        """End the thread; idempotent, done after at most one more refresh."""
        self._stop.set()
        if self._telling is not None:
            self._telling.cancel()
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
        known, asked = self._watched.look(), self._watched.asked
        self._on_loop(self._publish, known, True)
        reconciled_at = rested_at = time.monotonic()
        for hinted in hints(self._watched.places, self._stop, TICK_S):
            if self._stop.wait(max(0.0, rested_at - time.monotonic())):
                return
            looked_at = time.monotonic()
            if looked_at >= reconciled_at + RECONCILE_S:
                fleet, reconciled_at = self._watched.look(), looked_at
            else:
                fleet = self._watched.glance(hinted)
            ended_at = time.monotonic()
            rested_at = ended_at + min(max(RESTS * (ended_at - looked_at), SHORTEST_REST_S), LONGEST_REST_S)
            if fleet.sessions is not known.sessions or fleet.read_only != known.read_only:
                presses, asked = self._watched.asked != asked, self._watched.asked
                known = fleet
                self._on_loop(self._publish, known, presses)

    def _publish(self, fleet: Fleet, presses: bool) -> None:
        """Publish *fleet*: at once if it *presses* or the last one is long enough ago."""
        self._newest = fleet
        if presses:
            self._tell()
        elif self._telling is None:
            self._telling = self._loop.call_at(self._told_at + self._gap_s, self._tell)

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._telling, self._told_at = None, self._loop.time()
        self._news.set()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._news.set()

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(call, *arguments)
