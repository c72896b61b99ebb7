"""Starts a child process: in its own session, inheriting only the named files; without `subprocess`."""

import contextlib
import os
import resource
import signal
from collections.abc import Mapping


def end_family(leader: int) -> None:
    """Kill *leader* and all processes of its session."""
    end_members(leader)
    with contextlib.suppress(OSError):
        os.kill(leader, signal.SIGKILL)


def end_members(leader: int) -> None:
    """Kill all processes of *leader*'s session but *leader*, which may have ended."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to import
            if name.isdigit() and int(name) != leader and _session(name) == leader:
                with contextlib.suppress(OSError):
                    os.kill(int(name), signal.SIGKILL)


def _session(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[3])
    except (OSError, IndexError, ValueError):
        return 0


OURS = frozenset({"KASMON_LISTEN_FD", "KASMON_READY_FD", "KASMON_CONTROL", "KASMON_RUN"})
"""Variables between the guest program and its parent, or its children."""
DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
"""Signals that Python, or the guest program's parent, may have ignored."""
LOWEST, HIGHEST = 100, 1000


def numbers(count: int) -> list[int]:
    """Return descriptor numbers for a child that code does not use by chance: high, and different each time."""
    top = min(HIGHEST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1)
    bottom = min(LOWEST, top // 2)
    found: list[int] = []
    while len(found) < count:
        number = bottom + int.from_bytes(os.urandom(2), "big") % (top - bottom)
        if number not in found and number != 200 and not is_open(number):  # 200: scripts often use it for a lock
            found.append(number)
    return found


def is_open(number: int) -> bool:
    """Whether this process has an open file of that number."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def build_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the guest program's environment without the variables in `OURS`, and with *more*."""
    return {name: value for name, value in os.environ.items() if name not in OURS} | dict(more)


def spawn(
    argv: list[str], environ: Mapping[str, str], files: Mapping[int, int], *, terminal: str = "", deaf: bool = False
) -> int:
    """Start *argv* in its own session, and return its pid.

    *files*: the child's descriptor -> this process's. Its stdin is *terminal*, as its controlling one, or /dev/null.
    stdout and stderr that are not in *files* go to /dev/null. *deaf*: it ignores SIGINT until it changes that itself.

    Raises:
        OSError: if it cannot be started.
    """
    stdin = (os.POSIX_SPAWN_OPEN, 0, terminal or "/dev/null", os.O_RDWR if terminal else os.O_RDONLY, 0)
    given: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in sorted(files.items())
    ]
    given += [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_WRONLY, 0) for number in (1, 2) if number not in files]
    usual = DEFAULT if deaf else (*DEFAULT, signal.SIGINT)
    return os.posix_spawn(
        argv[0], argv, environ, file_actions=[stdin, *given], setsid=True, setsigmask=(), setsigdef=usual
    )
