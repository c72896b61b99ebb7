"""Writes the memory of a stopped machine to a file, and removes credentials from it."""

import errno
import mmap
import os
from pathlib import Path
from typing import Final, TypeAlias

from kasmon.errors import SandboxError
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.sandbox.microvm.qemu import QmpClient
from kasmon.sandbox.shared.credentials import SHORTEST, CredentialFindings, forms, look_up

WRITE_S: Final = 60.0
LITTLE_BYTES: Final = 1 << 20
"""A disk with less free space counts as full."""

Image: TypeAlias = bytearray | mmap.mmap


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
        qmp.wait_for_migration(WRITE_S)
    except SandboxError as error:
        if os.fstatvfs(handle).f_bavail * os.fstatvfs(handle).f_frsize < LITTLE_BYTES:
            raise OSError(errno.ENOSPC, error.message) from error
        raise
    finally:
        os.close(handle)


def remove_credentials(policy: SandboxPolicy, path: Path) -> None:
    """Remove remaining values of credentials from the memory at *path*: node does not clear freed memory."""
    if policy.credentials:
        scrub_file(path, look_up(policy.credentials))


def scrub(image: Image, findings: CredentialFindings) -> int:
    """Overwrite each value of *findings* in *image*, except for those too short to search; return how many."""
    count = 0
    for form in sorted({form for value in findings.secrets for form in forms(value)}, key=len, reverse=True):
        if len(form) < SHORTEST:
            continue
        at = image.find(form)
        while at >= 0:
            image[at : at + len(form)] = bytes(len(form))
            count += 1
            at = image.find(form, at + len(form))
    return count


def scrub_file(path: Path, findings: CredentialFindings) -> int:
    """Do the same in the file at *path*, without reading it as a whole.

    Raises:
        OSError: if it cannot be read and written.
    """
    if not path.stat().st_size:
        return 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        return scrub(memory, findings)
