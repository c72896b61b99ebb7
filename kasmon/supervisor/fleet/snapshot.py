"""Read the whole fleet once: the cache, the events added since, and which processes are alive.

`kasmon ls` imports this: nothing here may import asyncio, psutil or watchfiles.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kasmon.errors import UnavailableError
from kasmon.host.journal.fleet_index import MUCH_BYTES, save_index
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.process_identity import is_running
from kasmon.store.fleet_cache import load_cache
from kasmon.store.fleet_index import FleetIndex
from kasmon.supervisor.fleet.liveness import Liveness, derive

ROOM_BYTES: Final = 1 << 20
"""With less free space than this, log lines are about to tear: the disk counts as full."""


class LivenessProbe:
    """Finds out which processes are alive. Call `check` before each round of reads."""

    def __init__(self, places: Paths) -> None:
        self.write_problem = ""
        """Why events cannot be written, as `check` found; empty if they can."""
        self._places = places
        self._locks: dict[SessionId, Path] = {}

    def check(self) -> None:
        """Make sure that probes are possible: a lock that cannot be opened would look like a free one.

        Raises:
            OSError: if the system refuses: an unreadable folder, no file handles left.
        """
        self.write_problem = find_write_problem(self._places)
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(self._places.sessions, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def read(self, fleet_index: FleetIndex, session: SessionId) -> Liveness:
        """Bring *session* up to date in *fleet_index*, and return which of its processes are alive then.

        A host logs its last events before it frees its lock. So if the lock is free, the log is read once more.

        Raises:
            OSError: if the log exists and cannot be read.
        """
        fleet_index.read_session(session)
        folded = fleet_index.sessions[session].session
        if folded.state is SessionState.ENDED:
            return Liveness()
        liveness = self._probe(folded)
        if liveness.host is None and fleet_index.read_session(session):
            liveness = self._probe(fleet_index.sessions[session].session)
        return liveness

    def _probe(self, session: Session) -> Liveness:
        lock = self._locks.get(session.id) or self._lock(session.id)
        host = lock_holder(lock)
        if host is not None:
            return Liveness(host, write_problem=self.write_problem)
        if session.generation == 0:
            return Liveness(is_folder_missing=not lock.parent.is_dir())
        agent_runs = is_running(session.pid, session.pid_started, session.pid_boot)
        return Liveness(None, agent_runs, self._last_write_at(session))

    def _lock(self, session: SessionId) -> Path:
        """Return the path of the host's lock, cached: building a path takes longer than probing it."""
        return self._locks.setdefault(session, self._places.host_lock(session))

    def _last_write_at(self, session: Session) -> float:
        try:
            return self._places.log(session.id).stat().st_mtime
        except FileNotFoundError:
            return session.since


def read_fleet(places: Paths, clock: Callable[[], float] = time.time) -> Fleet:
    """Return the current fleet; needs no running process.

    It writes nothing but the cache, and only after it read much of the logs while no dashboard updates the cache.

    Raises:
        UnavailableError: if the logs exist and cannot be read.
    """
    fleet_index, probe, now = FleetIndex(places), LivenessProbe(places), clock()
    load_cache(places.index, fleet_index)
    try:
        fleet_index.read_fleet()
        probe.check()
        derived: list[Session] = []
        for session in list(fleet_index.sessions):
            try:
                liveness = probe.read(fleet_index, session)
            except OSError as error:
                liveness = Liveness(unreadable=error.strerror or str(error))
            derived.append(derive(fleet_index.sessions[session].session, liveness, now))
    except OSError as error:
        raise UnavailableError(
            f"cannot read {str(error.filename or places.state)!r}: {error.strerror}.",
            hint="Run `kasmon doctor` for a diagnosis.",
        ) from error
    if fleet_index.folded_bytes >= MUCH_BYTES:
        save_index(places, fleet_index)
    return Fleet(sessions=tuple(derived), at=now, read_only=probe.write_problem)


def find_write_problem(places: Paths) -> str:
    """Return why events cannot be written now, according to the file system; empty if they can."""
    try:
        stats = _file_system_stats(places.state)
    except OSError as error:
        return f"cannot see {str(places.state)!r}: {error.strerror}"
    if stats.f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    free_blocks = stats.f_bfree if os.geteuid() == 0 else stats.f_bavail
    return os.strerror(errno.ENOSPC) if stats.f_blocks and free_blocks * stats.f_frsize < ROOM_BYTES else ""


def _file_system_stats(folder: Path) -> os.statvfs_result:
    """Return the statistics of the file system that *folder* is on, or will be on once it is created."""
    for place in (folder, *folder.parents):
        with contextlib.suppress(FileNotFoundError):
            return os.statvfs(place)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
