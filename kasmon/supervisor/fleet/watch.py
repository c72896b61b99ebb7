"""Follow the fleet: read all logs, probe which processes are alive, and yield one frozen `Fleet` after the other.

A change on disk is noticed at once if the system reports it, but that is a hint. Once a second, every session that
has not ended is refreshed; if there are hundreds, in turns within eight seconds. All others follow every few seconds.

Logs of other machines are copies here, which `kasmon.bus.mirror` writes.
"""

import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import Final

from kasmon.errors import LogMissingError, UnavailableError
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.events import Event
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import OVER
from kasmon.paths import Paths
from kasmon.store.event_log import START, Cursor, EventLog
from kasmon.store.fleet_cache import FleetCache, load_cache
from kasmon.store.fleet_index import FleetChange, FleetIndex
from kasmon.store.machines import MachineStatus
from kasmon.supervisor.fleet.follower import GAP_S, Follower
from kasmon.supervisor.fleet.liveness import Liveness, derive
from kasmon.supervisor.fleet.snapshot import LivenessProbe

AT_ONCE: Final = 50
"""A refresh covers at least this many sessions that have not ended. If there are more, it covers a share of them:"""
TURNS: Final = 8
"""after this many refreshes, at 1 Hz, each of them had its turn."""
ENDED_AT_ONCE: Final = 250
"""How many ended sessions a refresh covers in turn (one may be restarted): at 1 Hz all of 1,000 within 4 s."""
WRITE_S: Final = 5.0
"""How often the cache is updated, and how often a watch without the lock tries to get it, in seconds."""


class FleetWatch:
    """A self-updating view of one kasmon. Its methods may be called from any thread.

    An unchanged session is the same object in the next `Fleet`. The watch that holds `fleet.lock` writes the cache;
    with *writes* false this one never does.
    """

    def __init__(self, paths: Paths, *, clock: Callable[[], float] = time.time, writes: bool = True) -> None:
        self.paths = paths
        self._clock = clock
        self._busy = threading.RLock()
        self._fleet_index = FleetIndex(paths)
        self._probe = LivenessProbe(paths)
        self._cache_writer = FleetCacheWriter(paths) if writes else None
        self._refreshed_at = 0.0
        self._listed: tuple[int, tuple[Session, ...]] = 0, ()
        """The displayed sessions, and the `version` from which on they were."""
        self._shown: dict[SessionId, Session] = {}
        self._derived_from: dict[SessionId, tuple[Session, Liveness]] = {}
        """What each displayed session was derived from."""
        self._active: set[SessionId] = set()
        self._waiting: list[SessionId] = []
        """Those of them still to be refreshed in this round."""
        self._ended: list[SessionId] = []
        """The ended sessions still to be refreshed in this round."""
        self._is_new = True
        self.read_only = ""
        """As in `Fleet`."""
        self.version = 0
        """How many refreshes changed a displayed session."""
        self.urgent_changes = 0
        """How many times a state changed, or requests appeared or went away."""

    @property
    def fleet(self) -> Fleet:
        """The fleet as last refreshed. Never blocks: in the middle of a refresh, some sessions are newer."""
        version, (listed, sessions) = self.version, self._listed
        if listed != version:  # thousands of sessions are not listed after each of a hundred changes a second
            sessions = tuple(self._shown.values())
            self._listed = version, sessions
        return Fleet(sessions=sessions, at=self._refreshed_at, read_only=self.read_only)

    def refresh(self) -> Fleet:
        """Refresh all sessions whose turn it is and return the fleet; accesses files, so call it in a thread.

        If a file cannot be read, the sessions keep their last known state, and `Fleet.read_only` gives the reason.
        """
        with self._busy:
            if self._is_new:
                load_cache(self.paths.index, self._fleet_index)
                requested: Iterable[SessionId] = ()
            else:
                if not self._ended:
                    self._ended = [session for session in self._shown if session not in self._active]
                requested = {*self._pop_turn(self._clock()), *self._ended[-ENDED_AT_ONCE:]}
                del self._ended[-ENDED_AT_ONCE:]
            self.refresh_only(requested, probes_all=True)
            if self._cache_writer is not None:
                self._cache_writer.write(self._fleet_index)
        return self.fleet

    def refresh_all(self) -> Fleet:
        """Refresh every session, not only those whose turn it is, and return the fleet; accesses files."""
        with self._busy:
            if self._is_new:
                load_cache(self.paths.index, self._fleet_index)
            self.refresh_only(list(self._shown), probes_all=True)
        return self.fleet

    def refresh_only(self, requested: Iterable[SessionId], *, probes_all: bool = False) -> None:
        """Refresh *requested*, and the sessions changed in the fleet's log. Does nothing before the first `refresh`.

        *probes_all*: probe all machines, not only theirs. The sessions of machines that became unreachable, or are no
        longer so, are refreshed too: otherwise hundreds of them would follow in turns.
        """
        with self._busy:
            if self._is_new and not probes_all:
                return
            now, problem = self._clock(), ""
            try:
                self._probe.check()
                moved = self._fleet_index.read_fleet()
            except OSError as error:
                self._note(now, False, _why(error))
                return
            folded = self._fleet_index.sessions
            sessions = dict.fromkeys(folded if self._is_new else moved.changed.union(requested))  # in their order
            vias = {via for id_ in sessions if id_ in folded and (via := folded[id_].session.via)}
            if cut := self._probe.check_machines(None if probes_all else vias):
                sessions |= dict.fromkeys(
                    id_ for id_ in self._active if id_ in folded and folded[id_].session.via in cut
                )
            self._is_new = False
            extended: list[SessionId] = []
            differs = self._drop(moved)
            for session in sessions:
                if session not in folded:
                    continue
                try:
                    before = folded[session]
                    liveness = self._probe.read(self._fleet_index, session)
                except OSError as error:
                    problem = _why(error)
                    self._active.add(session)  # to be looked at again with the next reconcile
                    if session not in self._shown:
                        differs |= self._show(session, Liveness(unreadable=error.strerror or str(error)), now)
                    continue
                if folded[session] is not before:
                    extended.append(session)
                differs |= self._show(session, liveness, now)
            if self._cache_writer is not None:
                self._cache_writer.note(moved.changed.union(extended), moved.removed)
            self._note(now, differs, problem)

    @property
    def machines(self) -> tuple[MachineStatus, ...] | None:
        """What is known of each registered machine, by name, since the last refresh; None before the first."""
        return None if self._is_new else tuple(self._probe.machines[name] for name in sorted(self._probe.machines))

    def events(self, session: SessionId, since: Cursor = START) -> Iterator[tuple[Event, Cursor]]:
        """Yield the session's events after *since*, each with the cursor behind it; none while it has no log."""
        try:
            yield from EventLog(self.paths.log(session)).read(since)
        except LogMissingError:
            return

    def evidence(self) -> dict[SessionId, tuple[Session, Liveness]]:
        """Return each session as its log has it, with the liveness that its displayed state was derived from."""
        with self._busy:
            return dict(self._derived_from)

    def log_size(self, session: SessionId) -> int:
        """Return the size of the session's log, in bytes, when it was last read for `evidence`; 0 without a session."""
        with self._busy:
            folded = self._fleet_index.sessions.get(session)
            return folded.log_size if folded is not None else 0

    def changes(self, gap_s: float = GAP_S) -> AsyncGenerator[Fleet, None]:
        """Yield the fleet now, then after each change, at most every *gap_s* seconds. Never ends by itself.

        A reader that is slow gets the newest fleet, never a backlog. All file work is done in a thread.
        """
        return Follower(self, gap_s).changes()

    @property
    def is_writer(self) -> bool:
        """Whether this watch writes the fleet cache, because it holds `fleet.lock`."""
        return self._cache_writer is not None and self._cache_writer.has_lock

    def close(self) -> None:
        """Update the cache and release its lock, so that another process can write it; idempotent.

        A later `refresh` tries to get the lock again.
        """
        with self._busy:
            if self._cache_writer is not None:
                self._cache_writer.close(self._fleet_index)

    def _pop_turn(self, now: float) -> list[SessionId]:
        """Return the unended sessions whose turn it is, and those whose state depends on time and is due by *now*."""
        if not self._waiting:
            self._waiting = list(self._active)
        size = max(AT_ONCE, -(-len(self._active) // TURNS))
        turn = self._waiting[-size:]
        del self._waiting[-size:]
        return turn + [
            id_
            for id_ in self._active
            if (at := (folded := self._fleet_index.sessions[id_].session).recheck_at)
            and at <= now + self._probe.clock_offset_s(folded.via)
        ]

    def _show(self, session: SessionId, liveness: Liveness, now: float) -> bool:
        """Derive the displayed state of *session* from *liveness*; return whether it changed."""
        folded = self._fleet_index.sessions[session].session
        folded_before, liveness_before = self._derived_from.get(session, (None, None))
        is_due = folded.recheck_at is not None and folded.recheck_at <= now + liveness.clock_offset_s
        if folded is folded_before and liveness == liveness_before and folded.generation and not is_due:
            return False
        self._derived_from[session] = (folded, liveness)
        (self._active.discard if folded.state in OVER else self._active.add)(session)
        derived, shown = derive(folded, liveness, now), self._shown.get(session)
        if derived == shown:
            return False
        if shown is None or (derived.state, derived.requests) != (shown.state, shown.requests):
            self.urgent_changes += 1
        self._shown[session] = derived
        return True

    def _drop(self, moved: FleetChange) -> bool:
        for session in moved.removed:
            self._active.discard(session)
            self._derived_from.pop(session, None)
            self._shown.pop(session, None)
        return bool(moved.removed)

    def _note(self, now: float, differs: bool, problem: str) -> None:
        self.version += differs
        self._refreshed_at = now
        kept = self._cache_writer.problem if self._cache_writer is not None else ""
        self.read_only = problem or kept or self._probe.write_problem


def _why(error: OSError) -> str:
    return f"cannot read {str(error.filename or 'the logs')!r}: {error.strerror}"


class FleetCacheWriter:
    """Updates the cache every few seconds while this process holds `fleet.lock`; else does nothing."""

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
