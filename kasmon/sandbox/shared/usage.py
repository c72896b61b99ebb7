"""Measures what a sandbox uses of this machine: memory, disk and processes."""

import os
from pathlib import Path
from typing import Final

from kasmon.model.sandbox.policy import SandboxSize
from kasmon.sandbox.base import UsageReport
from kasmon.sandbox.shared.processes import PROC, tree
from kasmon.sandbox.shared.safe_tree import measure_tree

PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def measure_usage(
    init: int, folders: tuple[Path, ...], size: SandboxSize, memory_bytes: int | None = None
) -> UsageReport:
    """Return the usage of the sandbox whose first process is *init* and whose files are in *folders*.

    Its memory is *memory_bytes*, or the sum of what each of its processes has for itself.
    """
    processes = tree(init)
    return UsageReport(
        memory_bytes=sum(map(_own_memory, processes)) if memory_bytes is None else memory_bytes,
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
