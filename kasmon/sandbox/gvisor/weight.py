"""How much disk the memory of a sandbox may take, before it is written."""

import contextlib
import shutil
from pathlib import Path
from typing import Final

import psutil

from kasmon.errors import SandboxError
from kasmon.model.sandbox import MIB
from kasmon.sandbox.jail.process import tree

BLOCK_BYTES: Final = 512
"""What files are counted in."""
FILE: Final = "memfd:runsc-memory"
"""What the kernel in user space calls the file that is the memory of all that runs on it."""


def at_most_bytes(pid: int) -> int:
    """So much, or less: what the kernel in user space *pid* and its processes have here, mapped or put away."""
    return max(sum(map(_resident, tree(pid))), _filed(pid))


def must_fit(session: str, pid: int, folder: Path) -> None:
    """
    Raises:
        SandboxError: if the memory of *session*, whose kernel is *pid*, may not fit into *folder*: one whose memory
            could not be written whole is gone.
    """
    wanted, free = at_most_bytes(pid), shutil.disk_usage(folder).free
    if free < wanted:
        why = f"it may take {wanted // MIB} MiB, and the disk has {free // MIB} MiB left"
        raise SandboxError(f"the memory of {session!r} was not kept", why)


def _resident(pid: int) -> int:
    """The memory that process *pid* has here; what it shares counts."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _filed(pid: int) -> int:
    """The file of *pid*, mapped now or not."""
    held = 0
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if link.readlink().name.startswith(FILE):
                held = max(held, link.stat().st_blocks * BLOCK_BYTES)
    return held
