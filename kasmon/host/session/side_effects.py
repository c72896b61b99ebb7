"""Effects of an agent's work without events: files written in its folder, and work of its child processes.

Both are observed from outside, blocking and bounded: call them in a thread.
"""

import os
import time
from collections import deque
from typing import Final

ENTRIES: Final = 20_000
LOOK_S: Final = 0.2
"""The limits of one folder scan: entries and seconds; the nearest entries are scanned first."""
PASSED_BY: Final = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".cache", "objects", "target"})
"""Folders with many writes and little work."""
BUSY: Final = 0.02
"""The share of one core since the last look from which children count as working."""


def written_since(folder: str, since: float) -> float | None:
    """Return when something in *folder* was written after *since*, in seconds since the epoch; None if nothing was.

    Links are not followed. What cannot be read counts as unwritten.
    """
    until, left = time.monotonic() + LOOK_S, ENTRIES
    folders = deque([folder])
    while folders and left > 0:
        try:
            with os.scandir(folders.popleft()) as entries:
                for entry in entries:
                    left -= 1
                    if left <= 0 or time.monotonic() > until:
                        return None
                    at = entry.stat(follow_symlinks=False).st_mtime
                    if at > since:
                        return at
                    if entry.is_dir(follow_symlinks=False) and entry.name not in PASSED_BY:
                        folders.append(entry.path)
        except OSError:
            continue
    return None


class ChildActivity:
    """The work of one process's children, from look to look."""

    def __init__(self) -> None:
        self._before: tuple[int, float, float] | None = None
        """Their parent, how long they had worked, and when that was, by the monotonic clock."""

    def work(self, pid: int) -> bool | None:
        """Whether the children of process *pid* worked since the last look; None at the first, which cannot decide."""
        now, spent = time.monotonic(), _spent(pid)
        before, self._before = self._before, (pid, spent, now)
        if before is None or before[0] != pid:
            return None
        return spent - before[1] >= BUSY * (now - before[2])

    def forget(self) -> None:
        """Make the next look the first."""
        self._before = None


def _spent(pid: int) -> float:
    """Return the processor time of all descendants of *pid*, also of ended ones, in seconds."""
    import psutil  # only once a session may be stuck: hosts are small

    try:
        agent = psutil.Process(pid)
        ended = agent.cpu_times()
        spent: float = ended.children_user + ended.children_system
        children = agent.children(recursive=True)
    except (psutil.Error, AttributeError):
        return 0.0
    for child in children:
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        spent += times.user + times.system + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0)
    return spent
