"""Which process a tmux server is: its pid, and since when, so that no other process is ever taken for it."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import msgspec

from kasmon.boot_id import boot
from kasmon.process_identity import fields

SOL_LOCAL, LOCAL_PEERPID = 0, 2


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process that can be told from a later one with the same pid."""

    pid: int
    started: str
    """When it started, in the system's own words, and in which boot; equal only for the same process."""


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has *pid* now; None if there is none, or if it has ended and only waits for its parent."""
    try:
        if sys.platform == "linux":
            told = fields(pid)
            started = "" if told is None or told[0] == b"Z" else f"{told[19].decode()}@{boot()}"
        else:
            command = ["ps", "-o", "lstart=", "-p", str(pid)]
            started = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return ProcessIdentity(pid, started) if started else None


def signal(process: ProcessIdentity, number: int) -> bool:
    """Send signal *number* to *process*; False if it is gone, and nobody got the signal."""
    if identify(process.pid) != process:
        return False
    with contextlib.suppress(OSError):
        os.kill(process.pid, number)
        return True
    return False


def listener(path: Path) -> ProcessIdentity | None:
    """The process that answers at the unix socket *path*; None if nobody does."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(2)
        try:
            asking.connect(str(path))
            if sys.platform == "linux":
                pid = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            else:
                pid = struct.unpack("i", asking.getsockopt(SOL_LOCAL, LOCAL_PEERPID, 4))[0]
        except OSError:
            return None
    return identify(pid)
