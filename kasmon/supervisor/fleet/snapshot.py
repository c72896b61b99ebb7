"""Read the whole fleet once: the cache, the events added since, and which processes are alive.

`kasmon ls` imports this: nothing here may import asyncio, psutil or watchfiles.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import LaunchError, RefusedError, UnavailableError
from kasmon.host.journal.fleet_index import MUCH_BYTES, save_index
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, OVER, SessionState
from kasmon.paths import Paths
from kasmon.process_identity import is_running
from kasmon.store.fleet_cache import load_cache
from kasmon.store.fleet_index import FleetIndex
from kasmon.store.machines import HostPresence, MachineReader, MachineStatus, machine_folders
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.fleet.liveness import Liveness, derive

ROOM_BYTES: Final = 1 << 20
"""With less free space than this, log lines are about to tear: the disk counts as full."""


class LivenessProbe:
    """Finds out which processes are alive. Call `check` before each round of reads."""

    def __init__(self, paths: Paths) -> None:
        self.write_problem = ""
        """Why events cannot be written, as `check` found; empty if they can."""
        self._paths = paths
        self._locks: dict[SessionId, Path] = {}
        self._link_locks: dict[str, Path] = {}
        self._machine_reader = MachineReader(paths)
        self.machines: dict[str, MachineStatus] = {}
        """What is known of each registered machine, as `check_machines` found."""

    def check(self) -> None:
        """Make sure that probes are possible: a lock that cannot be opened would look like a free one.

        Raises `OSError` if the system refuses: an unreadable folder, no file handles left.
        """
        self.write_problem = find_write_problem(self._paths)
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(self._paths.sessions, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def read(self, fleet_index: FleetIndex, session: SessionId) -> Liveness:
        """Bring *session* up to date in *fleet_index*, and return which of its processes are alive then.

        A host logs its last events before it frees its lock. So if the lock is free, the log is read once more. Raises
        `OSError` if the log exists and cannot be read.
        """
        fleet_index.read_session(session)
        folded = fleet_index.sessions[session].session
        if folded.state in OVER:
            return Liveness(clock_offset_s=self.clock_offset_s(folded.via))
        liveness = self._probe(folded)
        if liveness.host is None and fleet_index.read_session(session):
            liveness = self._probe(fleet_index.sessions[session].session)
        return liveness

    def check_machines(self, names: Iterable[str] | None = None) -> set[str]:
        """Find out which machines of *names* (None: all) are reachable; return those for which that changed."""
        before, machines = self.machines, {} if names is None else dict(self.machines)
        for name in machine_folders(self._paths) if names is None else names:
            if (status := self._check_machine(name)) is None:
                machines.pop(name, None)
            else:
                machines[name] = status
        self.machines = machines
        return {
            name
            for name in before.keys() | machines.keys()
            if (now := machines.get(name)) is not (was := before.get(name))
            and (now is None or was is None or _find_shown_state(now) != _find_shown_state(was))
        }

    def clock_offset_s(self, machine: str) -> float:
        """Return how far the clock of *machine* is ahead; 0 if it is this one, or that is unknown."""
        return self.machines[machine].presence.clock_offset_s if machine in self.machines else 0.0

    def _check_machine(self, name: str) -> MachineStatus | None:
        before, report = self.machines.get(name), self._machine_reader.read(name)
        if report is None:
            return None
        lock = self._link_locks.get(name) or self._link_locks.setdefault(name, self._paths.machine_lock(name))
        try:
            link = lock_holder(lock)
        except OSError:  # no file handles are left, say: nothing new is known
            return before
        machine, presence, reported_at = report
        if before is not None and before.presence is presence and before.machine is machine and before.link == link:
            return before
        return MachineStatus(machine=machine, presence=presence, link=link, reported_at=reported_at)

    def _probe_remote(self, session: Session) -> Liveness:
        """Return what is known of a session of a registered machine."""
        machine = self.machines.get(session.via)
        if machine is None:
            return Liveness(unreachable="it is no longer registered", unreachable_since=session.since)
        if why := machine.why_unreachable:
            since = machine.unreachable_since or session.since
            return Liveness(unreachable=why, unreachable_since=since, clock_offset_s=machine.presence.clock_offset_s)
        presence = machine.presence.sessions.get(session.id, HostPresence())
        liveness = Liveness(*msgspec.structs.astuple(presence))
        ahead_s = machine.presence.clock_offset_s
        return liveness._replace(clock_offset_s=ahead_s) if ahead_s else liveness

    def _probe(self, session: Session) -> Liveness:
        if session.via:
            return self._probe_remote(session)
        # Each path is built once: that takes longer than to probe the lock.
        lock = self._locks.get(session.id) or self._locks.setdefault(session.id, self._paths.host_lock(session.id))
        host = lock_holder(lock)
        if host is not None:
            return Liveness(host, write_problem=self.write_problem)
        if session.generation == 0:
            return Liveness(is_folder_missing=not lock.parent.is_dir())
        agent_runs = is_running(session.pid, session.pid_started, session.pid_boot)
        return Liveness(None, agent_runs, self._last_write_at(session))

    def _last_write_at(self, session: Session) -> float:
        try:
            return self._paths.log(session.id).stat().st_mtime
        except FileNotFoundError:
            return session.since


def _find_shown_state(machine: MachineStatus) -> tuple[str, float]:
    return machine.why_unreachable, machine.presence.clock_offset_s


def read_fleet(paths: Paths, clock: Callable[[], float] = time.time) -> Fleet:
    """Return the current fleet; needs no running process. Raises `UnavailableError` if the logs cannot be read.

    It writes nothing but the cache, and only after it read much of the logs while no dashboard updates the cache.
    """
    fleet_index, probe, now = FleetIndex(paths), LivenessProbe(paths), clock()
    load_cache(paths.index, fleet_index)
    try:
        fleet_index.read_fleet()
        probe.check()
        probe.check_machines()
        derived: list[Session] = []
        for session in list(fleet_index.sessions):
            try:
                liveness = probe.read(fleet_index, session)
            except OSError as error:
                liveness = Liveness(unreadable=error.strerror or str(error))
            derived.append(derive(fleet_index.sessions[session].session, liveness, now))
    except OSError as error:
        raise UnavailableError(
            f"cannot read {str(error.filename or paths.state)!r}: {error.strerror}.",
            hint="Run `kasmon doctor` for a diagnosis.",
        ) from error
    if fleet_index.folded_bytes >= MUCH_BYTES:
        save_index(paths, fleet_index)
    return Fleet(sessions=tuple(derived), at=now, read_only=probe.write_problem)


def find_write_problem(paths: Paths) -> str:
    """Return why events cannot be written now, according to the file system; empty if they can."""
    try:
        stats = _file_system_stats(paths.state)
    except OSError as error:
        return f"cannot see {str(paths.state)!r}: {error.strerror}"
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


def read_session(paths: Paths, session: SessionId) -> Session:
    """Return the current state of *session*. Raises `SessionNotFoundError` if it no longer exists."""
    return read_fleet(paths).require(session)


def require_free_conversation(paths: Paths, conversation: str, besides: SessionId | None = None) -> None:
    """Raise `RefusedError` if a session but *besides* has *conversation*, and its agent runs or will resume it. Blocks.

    Two agents would write to one conversation.
    """
    for each in read_fleet(paths).here:
        if each.id == besides or not (each.state in {*ALIVE, SessionState.HIBERNATED} or each.handed_over):
            continue
        known = each.resume_id
        if known is None and each.state in ALIVE:  # its agent has not reported it yet
            with contextlib.suppress(LaunchError):
                known = load_launch(paths, each.id).resume
        if known == conversation:
            raise RefusedError(f"session {each.label!r} has the conversation {conversation!r}.", hint="Stop it first.")
