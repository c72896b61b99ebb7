"""How much a jail uses now, beside what it may: for meters, so it is cheap and never waits."""

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
    """What a jail uses."""

    memory_bytes: int
    """What its processes hold for themselves, without what they share with others."""
    disk_bytes: int
    """Of its workspace and its home; it uses more where there are too many files to count all of them."""
    processes: int
    allowed: SandboxSize
    """Its memory is for all of them together where their group can hold it; otherwise it is for each process."""


def usage(init: int, folders: tuple[Path, ...], size: SandboxSize, group: Cgroup | None = None) -> JailUsage:
    """What the jail uses whose first process is *init* and whose files lie in *folders*."""
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
