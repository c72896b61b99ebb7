"""Writes the memory of a stopped machine to a file, and removes credentials from it."""

import errno
import os
from pathlib import Path
from typing import Final

from kasmon.errors import SandboxError
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.sandbox.microvm.qmp import QmpClient
from kasmon.sandbox.shared.credentials import looked_up
from kasmon.sandbox.shared.memory_scrub import scrub_file

WRITE_S: Final = 60.0
LITTLE_BYTES: Final = 1 << 20
"""A disk with less free space counts as full."""


def write_memory(qmp: QmpClient, path: Path) -> None:
    """Write the memory of a stopped machine to *path*.

    Raises:
        OSError: if the disk is full.
        SandboxError: if it cannot be written.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        qmp.do("migrate-set-parameters", words={"max-bandwidth": 1 << 40})
        qmp.do("getfd", [handle], fdname="memory")
        qmp.do("migrate", uri="fd:memory")
        qmp.moved(WRITE_S)
    except SandboxError as error:
        if os.fstatvfs(handle).f_bavail * os.fstatvfs(handle).f_frsize < LITTLE_BYTES:
            raise OSError(errno.ENOSPC, error.message) from error
        raise
    finally:
        os.close(handle)


def remove_credentials(policy: SandboxPolicy, path: Path) -> None:
    """Remove remaining values of credentials from the memory at *path*: node does not clear freed memory."""
    if policy.credentials:
        scrub_file(path, looked_up(policy.credentials))
