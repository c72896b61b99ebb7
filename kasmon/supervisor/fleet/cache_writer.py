"""The writer of the fleet cache: the one watch that holds `fleet.lock` writes the changes every few seconds."""

import contextlib
import time
from collections.abc import Iterable
from typing import Final

from kasmon.errors import UnavailableError
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.fleet_cache import FleetCache
from kasmon.store.fleet_index import FleetIndex

WRITE_S: Final = 5.0
"""How often the cache is updated, and how often a watch without the lock tries to get it, in seconds."""


class FleetCacheWriter:
    """Updates the cache while this process holds `fleet.lock`; does nothing while another process does."""

    def __init__(self, paths: Paths, *, every_s: float = WRITE_S) -> None:
        self.problem = ""
        """Why the last write failed; empty if it succeeded."""
        self._lock = HostLock(paths.fleet_lock)
        self._index = FleetCache(paths.index)
        self.has_lock = False
        """Whether this process holds `fleet.lock` through this writer."""
        self._every_s = every_s
        self._due_at = time.monotonic() + every_s
        self._changed: set[SessionId] = set()
        self._gone: set[SessionId] = set()

    def note(self, changed: Iterable[SessionId], gone: Iterable[SessionId]) -> None:
        """Record the sessions that the next write must update."""
        self._changed.update(changed)
        self._gone.update(gone)

    def write(self, fleet_index: FleetIndex) -> None:
        """Write the recorded changes if a write is due and this process holds the lock."""
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + self._every_s
        if not self.has_lock:
            with contextlib.suppress(OSError):  # a folder that takes no file: no cache either
                self.has_lock = self._lock.acquire()
            if not self.has_lock:
                return
            self._changed.update(fleet_index.sessions)
        self._write(fleet_index)

    def close(self, fleet_index: FleetIndex) -> None:
        """Write a last time and release the lock; idempotent."""
        if self.has_lock:
            self._write(fleet_index)
        self._index.close()
        self._lock.let_go()
        self.has_lock = False
        self._due_at = time.monotonic() + self._every_s

    def _write(self, fleet_index: FleetIndex) -> None:
        if not (self._changed or self._gone):
            return
        try:
            if self._index.write(fleet_index, self._changed, self._gone):
                self._changed.clear()
                self._gone.clear()
            self.problem = ""
        except UnavailableError as error:
            self.problem = error.message
