"""One look at the whole fleet, for those who ask once: the index, what was added since, and who is alive.

This is on the way of `kasmon ls`: nothing here may import asyncio, psutil or watchfiles.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kasmon.errors import UnavailableError
from kasmon.host.alive import is_running, lock_holder
from kasmon.model.command import Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.state import SessionState
from kasmon.paths import Places
from kasmon.store.fleet import FleetFold
from kasmon.store.index import remember
from kasmon.supervisor.derive import Seen, derive

ROOM_BYTES: Final = 1 << 20
"""With less free than this, logs are about to tear: the disk counts as full."""


class Sight:
    """Sees who is alive. `refresh` it before each look."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._tmux_host: int | None = None
        self._locks: dict[SessionId, Path] = {}

    def refresh(self) -> None:
        """See anew what all sessions share.

        Raises:
            OSError: where the system does not let us see: an unreadable folder, no file handles left.
        """
        self._tmux_host = None
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(self._places.sessions, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            self._tmux_host = lock_holder(self._places.tmux_host_lock)

    def of(self, session: Session) -> Seen:
        """Who of *session* is alive, as far as `derive` wants to know."""
        if session.state is SessionState.ENDED:
            return Seen()
        if session.mode is Mode.TMUX and session.generation > 0:
            host = self._tmux_host
        else:
            host = lock_holder(self._locks.get(session.id) or self._lock(session.id))
        if host is not None or session.generation == 0:
            return Seen(host)
        agent_runs = session.mode is Mode.TMUX and is_running(session.pid, session.pid_started)
        return Seen(None, agent_runs, self._heard_at(session))

    def _lock(self, session: SessionId) -> Path:
        """The host's lock, kept: to put a path together takes longer than to look at it."""
        return self._locks.setdefault(session, self._places.host_lock(session))

    def _heard_at(self, session: Session) -> float:
        try:
            return self._places.log(session.id).stat().st_mtime
        except FileNotFoundError:
            return session.since


def look_once(places: Places, clock: Callable[[], float] = time.time) -> Fleet:
    """The fleet now. Writes nothing and needs no running process.

    Raises:
        UnavailableError: if the logs are there and cannot be read.
    """
    fold, sight, now = FleetFold(places), Sight(places), clock()
    remember(places.index, fold)
    try:
        fold.read_fleet()
        sight.refresh()
        for session in list(fold.sessions):
            fold.read_session(session)
    except OSError as error:
        raise UnavailableError(
            f"cannot read {str(error.filename or places.state)!r}: {error.strerror}.",
            hint="`kasmon doctor` looks into it.",
        ) from error
    sessions = (folded.session for folded in fold.sessions.values())
    return Fleet(
        sessions=tuple(derive(session, sight.of(session), now) for session in sessions),
        at=now,
        read_only=no_room(places),
    )


def no_room(places: Places) -> str:
    """Why facts cannot be written at the moment, as far as the file system says; empty where they can."""
    try:
        room = os.statvfs(places.state)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot see {str(places.state)!r}: {error.strerror}"
    if room.f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    free_blocks = room.f_bfree if os.geteuid() == 0 else room.f_bavail
    return os.strerror(errno.ENOSPC) if room.f_blocks and free_blocks * room.f_frsize < ROOM_BYTES else ""
