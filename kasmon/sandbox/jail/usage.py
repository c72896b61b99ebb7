"""Resource usage of a jail, with its limits, for meters: cheap, and never blocks for long."""

import os
from pathlib import Path
from typing import Final

from kasmon.model.sandbox.policy import SandboxSize
from kasmon.sandbox.base import UsageReport
from kasmon.sandbox.jail.cgroup import Cgroup
from kasmon.sandbox.shared.processes import PROC, tree
from kasmon.sandbox.shared.safe_tree import measure_tree

PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def measure_usage(init: int, folders: tuple[Path, ...], size: SandboxSize, group: Cgroup | None = None) -> UsageReport:
    """Return the usage of the jail whose first process is *init* and whose files are in *folders*."""
    processes = tree(init)
    together = group.number("memory.current") if group is not None else None
    return UsageReport(
        memory_bytes=sum(map(_own_memory, processes)) if together is None else together,
        disk_bytes=measure_tree(*folders).bytes,
        processes=len(processes),
        allowed=size,
    )


def _own_memory(pid: int) -> int:
    try:
        _, resident, shared, *_ = (PROC / f"{pid}/statm").read_bytes().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE
