"""Whether a process belongs to an agent: by its ancestors, and by the variable that every agent's process carries."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from kasmon.process import HAS_PROC, fields

MARK = b"KASMON_SESSION="
"""Every agent gets this variable; nothing else that kasmon starts does."""
GENERATIONS = 64


def is_agents_own(pid: int, agents: Collection[int] = ()) -> bool:
    """Whether process *pid* is one of *agents*, or descends from one of them, from us, or from any session's agent.

    What cannot be looked at counts as an agent's. A process that took care to lose its parents and its environment is
    not recognised.
    """
    ours = {*agents, os.getpid()}
    seen = 0
    for ancestor, is_marked in _line(pid):
        if is_marked or ancestor in agents or (seen and ancestor in ours):
            return True
        seen += 1
    return seen == 0


def _line(pid: int) -> Iterator[tuple[int, bool]]:
    """*pid* and its ancestors, each with whether it carries the mark; ends where nothing more can be seen."""
    for _ in range(GENERATIONS):
        if pid <= 0:
            return
        looked = _look(pid)
        if looked is None:
            return
        parent, is_marked = looked
        yield pid, is_marked
        pid = parent


def _look(pid: int) -> tuple[int, bool] | None:
    """The parent of *pid*, and whether its environment carries the mark; None if it is not there."""
    if HAS_PROC:
        if (told := fields(pid)) is None:
            return None
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # another user's, for example init
            variables = []
        return int(told[1]), any(variable.startswith(MARK) for variable in variables)
    import psutil  # only here, where there is no /proc

    try:
        process = psutil.Process(pid)
        parent = process.ppid()
    except psutil.Error:
        return None
    try:
        return parent, MARK.decode()[:-1] in process.environ()
    except (psutil.Error, OSError):
        return parent, False
