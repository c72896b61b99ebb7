"""Resource limits of a jail, set by `prlimit` in front of the first program inside.

Set inside, the limits apply to this jail alone. (Set outside, a limit on processes would count all that its user runs
anywhere.) Programs inside cannot raise them again.
"""

from pathlib import Path
from typing import Final

from kasmon.model.sandbox.policy import MIB, SandboxSize

PRLIMIT: Final = "/usr/bin/prlimit"
FILES: Final = 4096
"""Open files per process."""


AGENT_BYTES: Final = 16384 * MIB
"""The least memory that an agent's process may allocate: some reserve far more than they use, or fail to start."""


def build_limit_prefix(size: SandboxSize, *, data_bytes: int = 0) -> list[str]:
    """Return the prefix of a command inside that limits it and its descendants to *size*.

    *data_bytes* is what each process may allocate; 0 if a control group limits the memory of all of them together.
    """
    held = {"core": 0, "nproc": size.processes, "fsize": size.disk_bytes, "nofile": FILES, "memlock": 65536}
    if data_bytes:
        held["data"] = data_bytes
    return [PRLIMIT, *(f"--{name}={value}:{value}" for name, value in held.items()), "--"]


def find_missing() -> str:
    """Return why limits cannot be set on this machine; empty if they can."""
    return "" if Path(PRLIMIT).exists() else f"{PRLIMIT} is missing"
