"""The id of this machine's current boot. After a reboot, process ids and times since boot refer to other processes."""

from functools import cache
from pathlib import Path


@cache
def boot() -> str:
    """Return the id of this boot; empty where the system does not provide one.

    There (macOS) process start times are times of day, which distinguish processes without it.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
