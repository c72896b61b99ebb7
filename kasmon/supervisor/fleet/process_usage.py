"""Processor time and memory of the processes of sessions: `read_usage`. Blocks.

All processes are read once. Memory is the proportional set size (Linux), in which shared pages count once for all
processes, else the resident set size.
"""

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from kasmon import system
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.system.base import ProcessUsage


class SessionUsage(NamedTuple):
    """What the processes of one session use."""

    memory_bytes: int
    processor_s: float
    """The processor time of those that run; it decreases when one ends."""
    processes: int


class ProcessTree:
    """All processes at one moment."""

    def __init__(self, processes: Mapping[int, ProcessUsage]) -> None:
        self.processes = processes
        self._children: dict[int, list[int]] = {}
        for pid, process in processes.items():
            self._children.setdefault(process.parent, []).append(pid)

    def below(self, pid: int, but: frozenset[int] = frozenset()) -> list[int]:
        """Return *pid* and its descendants, except for those in *but* with their own descendants."""
        found, known = [pid] * (pid in self.processes), {pid}
        for one in found:
            children = [child for child in self._children.get(one, ()) if child not in known and child not in but]
            found += children
            known.update(children)
        return found


class MemoryCache:
    """The memory of processes as read before.

    It is read again if the resident memory of the process differs, and if any process started or ended: shared pages
    then count for others. To read it, the system walks all pages of the process.
    """

    def __init__(self) -> None:
        self._pids: frozenset[int] = frozenset()
        self._read: dict[int, tuple[int, int]] = {}

    def begin(self, pids: frozenset[int]) -> None:
        if pids != self._pids:
            self._pids = pids
            self._read.clear()

    def read(self, pid: int, tree: ProcessTree) -> int:
        """Return the memory of *pid*, in bytes."""
        process = tree.processes.get(pid)
        resident = 0 if process is None else process.resident_bytes
        known, memory = self._read.get(pid, (-1, 0))
        if known != resident:
            memory = _proportional(pid, tree)
            self._read[pid] = resident, memory
        return memory


def read_usage(sessions: Iterable[Session], cache: MemoryCache | None = None) -> dict[SessionId, SessionUsage]:
    """Return what each of *sessions* uses whose processes run on this machine.

    A structured session counts with its host. The processes of a session that another one started count for that alone.
    Who reads again and again passes the same *cache*.
    """
    roots = {session.id: pid for session in sessions if (pid := find_root(session)) is not None}
    if not roots:
        return {}
    tree, starts = read_processes(), frozenset(roots.values()) | {os.getpid()}
    pids = {s: tree.below(pid, starts - {pid}) for s, pid in roots.items() if pid in tree.processes}
    cache = cache or MemoryCache()
    cache.begin(frozenset(chain.from_iterable(pids.values())))
    usages = {}
    for session, own in pids.items():
        spent_s = sum(tree.processes[pid].processor_s for pid in own)
        usages[session] = SessionUsage(sum(cache.read(pid, tree) for pid in own), spent_s, len(own))
    return usages


def find_root(session: Session) -> int | None:
    """Return the first process of *session*; None if none runs on this machine."""
    if session.via or session.state not in ALIVE:
        return None
    if session.mode is not Mode.TMUX and session.host is not None and session.host.alive:
        return session.host.pid
    return session.pid


def read_processes() -> ProcessTree:
    return ProcessTree(dict(system.HERE.measure_processes()))


def read_memory(pids: Iterable[int], tree: ProcessTree) -> int:
    """Return the memory of *pids*, in bytes."""
    return sum(_proportional(pid, tree) for pid in pids)


def _proportional(pid: int, tree: ProcessTree) -> int:
    if (shared := system.HERE.measure_shared_memory(pid)) is not None:
        return shared
    process = tree.processes.get(pid)
    return 0 if process is None else process.resident_bytes
