"""The id of this machine's current boot. After a reboot, process ids and times since boot refer to other processes."""

from functools import cache

from kasmon import system
from kasmon.system.base import System


def boot() -> str:
    """Return the id of this boot; empty where the system does not provide one.

    There (macOS) process start times are times of day, which distinguish processes without it.
    """
    return _boot_of(system.HERE)


@cache
def _boot_of(here: System) -> str:
    return here.read_boot_id()
