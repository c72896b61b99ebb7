"""Which hosts are alive, by the lock they hold.

A host holds the flock on its session's `host.lock` until it exits, so the system itself reports its exit.
"""

import fcntl
import os
import time
from pathlib import Path

PROBE_S = 0.2
"""How long a probe of a lock may hold it at most."""


class HostLock:
    """The lock that a host holds until it exits. Closing it, or exiting, releases it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self, wait_s: float = PROBE_S) -> bool:
        """Acquire it; False if another process holds it. This process's pid is written into it, for people.

        A probe (`lock_holder`) holds it for a moment, so the attempt is repeated for *wait_s* seconds before that
        counts as held.
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
        """Release it; idempotent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def lock_holder(path: Path) -> int | None:
    """Return the pid of the process that holds the lock at *path*; None if it is free, 0 if the pid is not readable.

    Raises:
        OSError: if it cannot be probed (no file handles left, say): then nothing is known about the host.
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
