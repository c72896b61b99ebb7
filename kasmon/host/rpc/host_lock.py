"""Which hosts are alive, by the lock they hold.

A host holds the flock on its session's `host.lock` for life, so the system itself says when it is gone.
"""

import fcntl
import os
import time
from pathlib import Path

PROBE_S = 0.2
"""How long a look at a lock may hold it at most."""


class HostLock:
    """The lock that a host holds for life. Closing it, or dying, lets it go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self, wait_s: float = PROBE_S) -> bool:
        """Take it; False if another process holds it. Our pid is written into it, for people.

        Who only looks (`lock_holder`) holds it for a moment, so it is tried for *wait_s* seconds before that counts as
        held.
        """
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    os.close(handle)
                    return False
                time.sleep(0.002)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle
        return True

    def let_go(self) -> None:
        """Let it go; idempotent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def lock_holder(path: Path) -> int | None:
    """The pid of the process that holds the lock at *path*; None if nobody does. 0 if it did not say who it is.

    Raises:
        OSError: if it cannot be looked at (no file handles left, say): then it is not known, and nobody is "gone".
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        written = os.pread(handle, 32, 0).strip()
        return int(written) if written.isdigit() else 0
    else:
        return None
    finally:
        os.close(handle)
