"""From a fleet that is asked for to one that tells: a thread that looks when there is a hint or a second has passed."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.paths import Places
from kasmon.supervisor.hint import hints

RECONCILE_S: Final = 1.0
"""How often everything is looked at, hint or no hint, in seconds."""
TICK_S: Final = 0.5
"""How long the thread waits for a hint at most, so that a reconcile is never late by more."""
GAP_S: Final = 0.1
"""The shortest time between two looks, in seconds."""


class Watched(Protocol):
    """What is followed; its calls do file work and are made in the follower's thread."""

    places: Places

    def look(self) -> Fleet: ...

    def glance(self, sessions: Iterable[SessionId]) -> Fleet: ...


class Follower:
    """Looks at *watched* in a thread of its own and hands over the newest fleet that differs from the one before."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._newest = Fleet()
        self._error: BaseException | None = None
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="follows the fleet", daemon=True).start()

    async def next(self) -> Fleet:
        """The newest fleet that was not handed over yet, once there is one."""
        await self._news.wait()
        self._news.clear()
        if self._error is not None:
            raise self._error
        return self._newest

    async def aclose(self) -> None:
        """End the thread; idempotent, done after at most one more look."""
        self._stop.set()
        await self._ended.wait()

    def _run(self) -> None:
        try:
            self._follow()
        except BaseException as error:  # noqa: BLE001  # whoever waits for news has to hear of it
            self._on_loop(self._fail, error)
        self._on_loop(self._ended.set)

    def _follow(self) -> None:
        known = self._watched.look()
        self._on_loop(self._publish, known)
        reconciled_at = looked_at = time.monotonic()
        for hinted in hints(self._watched.places, self._stop, TICK_S):
            if self._stop.wait(max(0.0, looked_at + GAP_S - time.monotonic())):
                return
            looked_at = time.monotonic()
            if looked_at >= reconciled_at + RECONCILE_S:
                fleet, reconciled_at = self._watched.look(), looked_at
            else:
                fleet = self._watched.glance(hinted)
            if fleet.sessions is not known.sessions or fleet.read_only != known.read_only:
                known = fleet
                self._on_loop(self._publish, known)

    def _publish(self, fleet: Fleet) -> None:
        self._newest = fleet
        self._news.set()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._news.set()

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(call, *arguments)
