"""What an agent's process started, in whatever session of the system: found while it lives, and ended after it.

A process is of the family in one of two ways. It descends from the agent: that is known only while each one's parent
lives, so it is looked at now and then. Or it carries the agent's mark, a variable of its environment that all it starts
inherit: that can be seen at any time, so what came since the last look is found as well.

What had left the family while the agent lived (its parent ended, and it went on) is a daemon that was started on
purpose. It is no longer ended with the agent, as long as a look has seen that.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Final

import psutil

from kasmon.launch import RUN

END_S: Final = 1.0
"""How long they may take to end, in seconds."""
ROUNDS: Final = 5
"""How often it is looked again for those that came while the others were ended."""
HAS_PROC: Final = Path("/proc/self/environ").exists()


class ProcessFamily:
    """All that descends from the process *pid*, or carries *mark*."""

    def __init__(self, pid: int, mark: str) -> None:
        self.known: Sequence[psutil.Process] = ()
        """The descendants, as last seen."""
        self._pid = pid
        self._mark = mark
        self._daemons: frozenset[psutil.Process] = frozenset()

    def look(self) -> None:
        """See who they are; blocks for some milliseconds. Nothing changes once the agent has ended."""
        try:
            agent = psutil.Process(self._pid)
            descendants = agent.children(recursive=True)
            marked = set(self._marked())
            if agent.status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.Error:
            return
        self.known = descendants
        self._daemons = frozenset(marked.difference(descendants))

    def end(self) -> None:
        """Kill those that still run, with what they started meanwhile, and see them end; blocks for `END_S` at most.

        The agent itself must have ended. psutil tells the processes from later ones of the same id.
        """
        until = time.monotonic() + END_S
        known = list(self.known)
        for _ in range(ROUNDS):
            left = [process for process in self._marked() if process not in self._daemons]
            family = {member for process in (*known, *left) for member in (*_descendants(process), process)}
            running = [member for member in family - self._daemons if _runs(member)]
            if not running:
                return
            for member in running:
                with contextlib.suppress(psutil.Error):
                    member.kill()
            while any(_runs(member) for member in running) and time.monotonic() < until:
                time.sleep(0.005)

    def _marked(self) -> Iterator[psutil.Process]:
        """Who carries the mark; the agent itself left out."""
        for pid in psutil.pids():
            if pid != self._pid and _carries(pid, self._mark):
                with contextlib.suppress(psutil.Error):
                    yield psutil.Process(pid)


def family_of(pid: int) -> ProcessFamily:
    """The family of the agent *pid*, as it is now; its mark is read from its environment. Blocks."""
    try:
        mark = psutil.Process(pid).environ().get(RUN, "")
    except (psutil.Error, OSError):
        mark = ""
    family = ProcessFamily(pid, mark or token_hex(16))
    family.look()
    return family


def _carries(pid: int, mark: str) -> bool:
    """Whether process *pid* has *mark*; false where we may not look."""
    if HAS_PROC:
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return f"{RUN}={mark}".encode() in variables
    try:
        return psutil.Process(pid).environ().get(RUN) == mark
    except (psutil.Error, OSError):
        return False


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        descendants: list[psutil.Process] = process.children(recursive=True)
    except psutil.Error:
        return []
    return descendants


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
