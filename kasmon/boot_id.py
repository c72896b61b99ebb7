"""Which boot of this machine it is. After another one, process ids and the times since boot mean other processes."""

from functools import cache
from pathlib import Path


@cache
def boot() -> str:
    """What tells this boot from every other; empty where the system does not say it.

    There (macOS) the start times of processes are times of day, which tell them apart without it.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
