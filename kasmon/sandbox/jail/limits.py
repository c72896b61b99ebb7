"""What a jail may use: said to the kernel by those of its programs that everything inside descends from.

The limits are set inside, in front of the first program there: so they count for this jail alone. (Set outside, a limit
on processes would count all that its user runs anywhere.) None can be raised again inside.
"""

from pathlib import Path
from typing import Final

from kasmon.model.sandbox.policy import MIB, SandboxSize

PRLIMIT: Final = "/usr/bin/prlimit"
FILES: Final = 4096
"""Open at once, for each process."""


AGENT_BYTES: Final = 16384 * MIB
"""What a process of an agent may allocate at least: some of them reserve much more than they use, or do not start."""


def limited(size: SandboxSize, *, data_bytes: int = 0) -> list[str]:
    """The words in front of a command inside that hold it and all that it starts to *size*.

    *data_bytes* is what each process may allocate; 0 where a control group holds the memory of all of them together.
    """
    held = {"core": 0, "nproc": size.processes, "fsize": size.disk_bytes, "nofile": FILES, "memlock": 65536}
    if data_bytes:
        held["data"] = data_bytes
    return [PRLIMIT, *(f"--{name}={value}:{value}" for name, value in held.items()), "--"]


def missing() -> str:
    """Why the limits cannot be set on this machine; empty where they can."""
    return "" if Path(PRLIMIT).exists() else f"{PRLIMIT} is missing"
