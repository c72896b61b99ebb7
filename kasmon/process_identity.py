"""The identity of a process: its id, its start time, and the boot; its line in /proc, and its environment.

A name or an id alone never identifies a process: ids are reused, and after a reboot so are times since boot.
"""

import os
import time
from pathlib import Path
from typing import Final

from kasmon.boot_id import boot

HAS_PROC: Final = Path("/proc/self/stat").exists()
TICKS: Final = os.sysconf("SC_CLK_TCK")
"""How many ticks /proc counts in a second."""
EXEC_S: Final = 1.0
"""How long to wait for a process to show its environment while it executes a new program, in seconds."""
SAME_S: Final = 0.5 / TICKS if HAS_PROC else 0.05
"""Start times that differ by less than this are equal: half a tick; without /proc they are times of day."""


def fields(pid: int, task: int = 0) -> list[bytes] | None:
    """Return what /proc reports of process *pid* (or one of its threads), from its state on; None if there is none.

    0 is the state's letter, 1 its parent, 2 its group, 5 the foreground group of its terminal, 11 and 12 its own ticks,
    13 and 14 those of ended children, 19 its start.
    """
    path = f"/proc/{pid}/task/{task}/stat" if task else f"/proc/{pid}/stat"
    try:
        return Path(path).read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None


def read_environ(pid: int) -> bytes:
    """Return the initial environment of process *pid* from /proc: entries that end in NUL. Blocks for `EXEC_S` at most.

    While a process executes a new program, Linux reports an empty environment until the new stack is filled; both ends
    of the environment in its line of /proc (see proc_pid_stat(5)) are 0 for as long. It is read again then.

    Raises:
        OSError: there is no such process, it belongs to another user, or there is no /proc.
    """
    path = Path(f"/proc/{pid}/environ")
    until = time.monotonic() + EXEC_S
    while not (entries := path.read_bytes()) and _is_in_exec(pid) and time.monotonic() < until:
        time.sleep(0.0001)
    return entries


def variables_of(pid: int) -> dict[str, str]:
    """Return the initial environment of process *pid*; empty if it is not readable."""
    if HAS_PROC:
        try:
            entries = read_environ(pid).split(b"\0")
        except OSError:
            return {}
        return dict(os.fsdecode(entry).partition("=")[::2] for entry in entries if b"=" in entry)
    import psutil  # only here, where there is no /proc

    try:
        return psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return {}


def started_at(pid: int) -> float | None:
    """Return when process *pid* started; compare it only with other results. None if it does not exist or is a zombie.

    Linux: seconds since boot, from /proc. Elsewhere: seconds since the epoch, from psutil.
    """
    if HAS_PROC:
        told = fields(pid)
        return None if told is None or told[0] in (b"Z", b"X") else int(told[19]) / TICKS
    import psutil  # only here: it takes as long to import as the rest of `kasmon ls`

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def epoch_of(started: float) -> float:
    """Return *started*, a result of `started_at`, in seconds since the epoch, as the clock is set now.

    It may be early by one tick (1 / `TICKS` seconds), the resolution of /proc.
    """
    return started + time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) if HAS_PROC else started


def is_running(pid: int | None, started: float | None, of_boot: str = "") -> bool:
    """Whether the process *pid* that started at *started* (by `started_at`) in boot *of_boot* still runs.

    Without a known start time it counts as ended: its id may belong to another process now. An empty *of_boot* is this
    boot.
    """
    if pid is None or started is None or (of_boot and of_boot != boot()):
        return False
    now = started_at(pid)
    return now is not None and abs(now - started) < SAME_S


def _is_in_exec(pid: int) -> bool:
    """Whether the empty environment of *pid* may be that of a program that is just being executed.

    An empty environment that stays has equal ends that are not 0. Kernel threads and zombies have no program.
    """
    stat_fields = fields(pid)
    if stat_fields is None or (stat_fields[47] == stat_fields[48] != b"0"):
        return False
    try:
        Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        return False
    return True
