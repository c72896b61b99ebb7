"""Paths inside a sandbox, the same in each tier, and what of this machine is mounted at one."""

from typing import Final

import msgspec

HOME: Final = "/home/sandbox"
WORKSPACE: Final = "/workspace"
PROJECT: Final = "/project"
INSIDE: Final = "/opt/kasmon"
PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
TOP_MOUNTS: Final = frozenset({"/", "/dev", "/etc", "/opt", "/proc", "/run", "/sys", "/usr", INSIDE, HOME, "/home"})
"""Targets that nothing of this machine may be mounted over."""


class BindMount(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder of this machine that is visible inside."""

    source: str
    target: str
    writable: bool = False
