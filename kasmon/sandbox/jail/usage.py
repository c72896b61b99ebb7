"""How much a jail uses now, beside what it may: for meters, so it is cheap and never waits."""

import os
from pathlib import Path
from typing import Final

import msgspec

from kasmon.model.sandbox import Size
from kasmon.process import TICKS, fields
from kasmon.sandbox.jail.cgroup import Group
from kasmon.sandbox.jail.process import PROC, tree
from kasmon.sandbox.jail.tree import weigh

PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a jail uses."""

    memory_bytes: int
    """What its processes hold for themselves, without what they share with others."""
    disk_bytes: int
    """Of its workspace and its home."""
    disk_is_more: bool = False
    """There are too many files to count all of them: it uses more than `disk_bytes`."""
    processes: int
    cpu_s: float
    """Since it was made, of those that run and those that they waited for."""
    allowed: Size
    memory_is_shared: bool = False
    """The allowed memory is for all of them together; otherwise it is for each process."""


def usage(init: int, folders: tuple[Path, ...], size: Size, group: Group | None = None) -> Usage:
    """What the jail uses whose first process is *init* and whose files lie in *folders*."""
    processes = tree(init)
    weight = weigh(*folders)
    together = group.number("memory.current") if group is not None else None
    return Usage(
        memory_bytes=sum(map(_own_memory, processes)) if together is None else together,
        disk_bytes=weight.bytes,
        disk_is_more=not weight.whole,
        processes=len(processes),
        cpu_s=sum(map(_cpu, processes)),
        allowed=size,
        memory_is_shared=together is not None,
    )


def _own_memory(pid: int) -> int:
    try:
        _, resident, shared, *_ = (PROC / f"{pid}/statm").read_bytes().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE


def _cpu(pid: int) -> float:
    told = fields(pid)
    return sum(map(int, told[11:15])) / TICKS if told else 0.0
