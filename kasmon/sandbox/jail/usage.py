"""Resource usage of a jail, with its limits, for meters: cheap, and never blocks for long."""

import os
from pathlib import Path
from typing import Final

import msgspec

from kasmon.model.sandbox.policy import SandboxSize
from kasmon.sandbox.jail.cgroup import Cgroup
from kasmon.sandbox.shared.processes import PROC, tree
from kasmon.sandbox.shared.safe_tree import weigh

PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class JailUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that a jail uses."""

    memory_bytes: int
    """Memory of its control group; without a group, the memory of its processes that is not shared."""
    disk_bytes: int
    """Size of its workspace and home; a lower bound if there are too many files to count."""
    processes: int
    allowed: SandboxSize
    """Its memory limit is for all processes together if a control group holds it; otherwise for each process."""


def measure_usage(init: int, folders: tuple[Path, ...], size: SandboxSize, group: Cgroup | None = None) -> JailUsage:
    """Return the usage of the jail whose first process is *init* and whose files are in *folders*."""
    processes = tree(init)
    together = group.number("memory.current") if group is not None else None
    return JailUsage(
        memory_bytes=sum(map(_own_memory, processes)) if together is None else together,
        disk_bytes=weigh(*folders).bytes,
        processes=len(processes),
        allowed=size,
    )


def _own_memory(pid: int) -> int:
    try:
        _, resident, shared, *_ = (PROC / f"{pid}/statm").read_bytes().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE
