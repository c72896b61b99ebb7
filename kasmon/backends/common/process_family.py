"""All processes that an agent started, in any session of the system: found while it runs, killed after it ends.

A process belongs to the family in one of two ways. It descends from the agent: this is visible only while each parent
lives, so it is scanned now and then. Or it carries the agent's mark, an inherited environment variable: this is visible
at any time, so it also finds processes started since the last scan.

A process that left the family while the agent lived (its parent ended, and it kept running) is a deliberate daemon. It
is not ended with the agent, provided that a scan has seen it.
"""

import contextlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import Final

import psutil

from kasmon import system
from kasmon.launch import RUN
from kasmon.process_identity import find_processes_with, started_at

END_S: Final = 2.0
"""How long the processes may take to end, in seconds."""
ROUNDS: Final = 5
"""How often to scan again for processes that started while the others were killed."""


class ProcessFamily:
    """All processes that descend from the process *pid* or carry *mark*."""

    def __init__(self, pid: int, mark: str) -> None:
        self.descendants: Sequence[psutil.Process] = ()
        self._pid = pid
        self._mark = mark
        self.daemons: frozenset[psutil.Process] = frozenset()
        """Those that had left the family by the last scan."""

    def scan(self) -> None:
        """Scan for the processes; blocks for some milliseconds. Changes nothing once the agent has ended."""
        try:
            agent = psutil.Process(self._pid)
            descendants = agent.children(recursive=True)
            marked = set(self._marked())
            if agent.status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.Error:
            return
        self.descendants = descendants
        self.daemons = frozenset(marked.difference(descendants))

    def end(self) -> None:
        """Kill those that still run, with their new children, and wait for their end; blocks for `END_S` at most.

        The agent itself must have ended. psutil distinguishes the processes from later ones with the same id.
        Members of the agent's process group are waited for too: one that its caller has killed shows no mark while it
        ends.
        """
        until = time.monotonic() + END_S
        known = list(self.descendants)
        for _ in range(ROUNDS):
            left = [process for process in self._marked() if process not in self.daemons]
            family = {member for process in (*known, *left) for member in (*_descendants(process), process)}
            running = [member for member in family - self.daemons if _runs(member)]
            if not running:
                break
            for member in running:
                with contextlib.suppress(psutil.Error):
                    member.kill()
            while any(_runs(member) for member in running) and time.monotonic() < until:
                time.sleep(0.005)
        while self._has_group() and time.monotonic() < until:
            time.sleep(0.005)

    def _marked(self) -> Iterator[psutil.Process]:
        """Yield the processes that carry the mark, without the agent itself."""
        for pid, mark in find_processes_with(RUN):
            if pid != self._pid and mark == self._mark:
                with contextlib.suppress(psutil.Error):
                    yield psutil.Process(pid)

    def _has_group(self) -> bool:
        """Whether a process of the agent's group runs, unless the calling process is in that group."""
        if self._pid == os.getpgrp():
            return False
        try:
            os.killpg(self._pid, 0)
        except OSError:  # usually: there is no such group
            return False
        return any(started_at(pid) is not None for pid in system.HERE.list_pids() if _group_of(pid) == self._pid)


def family_of(pid: int) -> ProcessFamily:
    """Return the current family of the agent *pid*; its mark is read from its environment. Blocks."""
    family = ProcessFamily(pid, system.HERE.read_variables(pid).get(RUN, "") or token_hex(16))
    family.scan()
    return family


def end_remains(session: str, since: float = 0.0) -> None:
    """Kill what the agents of structured session *session* left; blocks for some seconds at most.

    Only for a session without a host. *since*: only agents whose processes all began then or later, in seconds since
    the epoch.
    """
    began: dict[str, float] = {}
    for pid, mark in find_processes_with(RUN):
        if mark.startswith(f"{session}.") and pid != os.getpid():
            began[mark] = min(began.get(mark, math.inf), started_at(pid) or math.inf)
    for mark, at in began.items():
        if system.HERE.convert_start(at) >= since - system.HERE.start_resolution_s:
            ProcessFamily(os.getpid(), mark).end()


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        descendants: list[psutil.Process] = process.children(recursive=True)
    except psutil.Error:
        return []
    return descendants


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
