"""Sockets and files that a starting sandbox inherits."""

import fcntl
import os
import socket
from pathlib import Path
from typing import Final

from kasmon.paths import SOCKET_PATH_BYTES

LOG_BYTES: Final = 64 * 1024


def listen(path: Path) -> socket.socket:
    """Return a socket that listens at *path*, for this user alone; a file there is replaced.

    Raises:
        OSError: if that fails, or *path* is too long for a socket.
    """
    path.unlink(missing_ok=True)
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise OSError(f"the socket's path {str(path)!r} has more than {SOCKET_PATH_BYTES} bytes")
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(os.fspath(path))
        path.chmod(0o600)  # no umask: that is the whole process's, and other threads create folders meanwhile
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def open_log() -> int:
    """Return a file in memory for the output of a process; it takes at most `LOG_BYTES`, and more fails to write."""
    handle = os.memfd_create("kasmon", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(handle, LOG_BYTES)
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return handle


def open_memory_file(content: bytes) -> int:
    """Return a file in memory to read *content* from."""
    handle = os.memfd_create("kasmon", os.MFD_CLOEXEC)
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
