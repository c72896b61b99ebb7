"""The identity of a process: its id, its start time, and the boot; and its environment.

A name or an id alone never identifies a process: ids are reused, and after a reboot so are times since boot.
"""

from collections.abc import Iterator

from kasmon import system
from kasmon.boot_id import boot


def find_processes_with(name: str) -> Iterator[tuple[int, str]]:
    """Yield the id of each process that has *name* in its initial environment, with its value there. Blocks.

    A process that is not read yet may start another one and end. So the list is read again until it has no new id.
    """
    read: set[int] = set()
    while new := set(system.HERE.list_pids()) - read:
        read |= new
        for pid in new:
            if (value := system.HERE.find_variable(pid, name)) is not None:
                yield pid, value


def started_at(pid: int) -> float | None:
    """Return when process *pid* started; compare it only with other results. None if it does not exist or is a zombie.

    Linux: seconds since boot. Elsewhere: seconds since the epoch.
    """
    return system.HERE.read_start(pid)


def is_running(pid: int | None, started: float | None, of_boot: str = "") -> bool:
    """Whether the process *pid* that started at *started* (by `started_at`) in boot *of_boot* still runs.

    Without a known start time it counts as ended: its id may belong to another process now. An empty *of_boot* is this
    boot.
    """
    if pid is None or started is None or (of_boot and of_boot != boot()):
        return False
    now = started_at(pid)
    return now is not None and abs(now - started) < system.HERE.start_tolerance_s
