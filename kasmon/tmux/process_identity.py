"""Identity of a tmux server process: its pid and start time, so that no other process is mistaken for it."""

import contextlib
import os
import socket
from pathlib import Path

import msgspec

from kasmon import system
from kasmon.boot_id import boot


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process, distinguishable from a later one with the same pid."""

    pid: int
    started: str
    """Its start time in the system's own format, and the boot id; equal only for the same process."""


def identify(pid: int) -> ProcessIdentity | None:
    """Return the process that has *pid* now; None if there is none or it is a zombie."""
    started = system.HERE.read_start_text(pid)
    return ProcessIdentity(pid, f"{started}@{boot()}") if started else None


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
            pid = system.HERE.identify_peer(client).pid
        except OSError:
            return None
    return identify(pid)
