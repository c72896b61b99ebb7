"""The processes of a session, found by its leader. A process that created its own session is not found."""

import contextlib
import os
import signal


def end_family(leader: int) -> None:
    """Kill *leader* and all processes of its session."""
    for pid in [*members(leader), leader]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def members(leader: int) -> list[int]:
    """Return the processes of *leader*'s session, without *leader*."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return []
    return [int(name) for name in names if int(name) != leader and _session(name) == leader]


def _session(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[3])
    except (OSError, IndexError, ValueError):
        return 0
