"""Identity of a tmux server process: its pid and start time, so that no other process is mistaken for it."""

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
    """A process, distinguishable from a later one with the same pid."""

    pid: int
    started: str
    """Its start time in the system's own format, and the boot id; equal only for the same process."""


def identify(pid: int) -> ProcessIdentity | None:
    """Return the process that has *pid* now; None if there is none or it is a zombie."""
    try:
        if sys.platform == "linux":
            stat_fields = fields(pid)
            started = "" if stat_fields is None or stat_fields[0] == b"Z" else f"{stat_fields[19].decode()}@{boot()}"
        else:
            command = ["ps", "-o", "lstart=", "-p", str(pid)]
            started = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return ProcessIdentity(pid, started) if started else None


def signal(process: ProcessIdentity, number: int) -> bool:
    """Send signal *number* to *process*; return False, without sending it, if that process is gone."""
    if identify(process.pid) != process:
        return False
    with contextlib.suppress(OSError):
        os.kill(process.pid, number)
        return True
    return False


def listener(path: Path) -> ProcessIdentity | None:
    """Return the process that answers at the unix socket *path*; None if none does."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        try:
            client.connect(str(path))
            if sys.platform == "linux":
                pid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            else:
                pid = struct.unpack("i", client.getsockopt(SOL_LOCAL, LOCAL_PEERPID, 4))[0]
        except OSError:
            return None
    return identify(pid)
