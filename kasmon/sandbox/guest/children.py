"""How a child is started: in a session of its own, with nothing inherited but what is named; without `subprocess`."""

import os
import resource
import signal
from collections.abc import Mapping

OURS = frozenset({"KASMON_LISTEN_FD", "KASMON_READY_FD", "KASMON_CONTROL", "KASMON_RUN"})
"""Between the agent and what started it, or what it starts."""
DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
"""Signals that Python, or who started the agent, may have set aside."""
LOWEST, HIGHEST = 100, 1000


def numbers(count: int) -> list[int]:
    """So many numbers for a child's files that nobody meets by chance: high, different ones each time."""
    top = min(HIGHEST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1)
    bottom = min(LOWEST, top // 2)
    found: list[int] = []
    while len(found) < count:
        number = bottom + int.from_bytes(os.urandom(2), "big") % (top - bottom)
        if number not in found and number != 200 and not is_open(number):  # 200: a favourite of scripts for a lock
            found.append(number)
    return found


def is_open(number: int) -> bool:
    """Whether we have a file of that number."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def surroundings(more: Mapping[str, str]) -> dict[str, str]:
    """The agent's own environment without what is between others and us, and *more*."""
    return {name: value for name, value in os.environ.items() if name not in OURS} | dict(more)


def spawn(
    argv: list[str], environ: Mapping[str, str], files: Mapping[int, int], *, terminal: str = "", deaf: bool = False
) -> int:
    """Start *argv* in a session of its own; the pid.

    *files*: which of our files it gets as which of its own. Its stdin is *terminal*, which then is its controlling one,
    or at its end at once. stdout and stderr that are not given go nowhere. *deaf*: it ignores interrupts until it says
    otherwise.

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
