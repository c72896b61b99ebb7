"""Which hosts are alive, by the lock they hold.

A host holds the flock on its session's `host.lock` until it exits, so the system itself reports its exit.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

PROBE_S = 0.2
"""How long a lock that is held is tried again."""
STALLED_S: Final = 10.0
"""How long probes of a lock may hold it at most: on a busy machine each may be interrupted for long."""


class HostLock:
    """The lock that a host holds until it exits. Closing it, or exiting, releases it.

    A starter may take it for the host that it starts, so that no second one is started: it passes `handle` on.
    """

    def __init__(self, path: Path, handle: int | None = None) -> None:
        """*handle*: the file handle by which this process's starter has taken it."""
        self.path = path
        self.handle = handle
        if handle is not None:
            os.set_inheritable(handle, False)

    def acquire(self, wait_s: float = PROBE_S, pid: int | None = None) -> bool:
        """Acquire it; False if another process holds it. *pid*, by default this process's, is written into it.

        The attempt is repeated for *wait_s* seconds, and while only probes (`lock_holder`) hold it.
        """
        if self.handle is None and not self._lock(wait_s):
            return False
        self.write_pid(os.getpid() if pid is None else pid)  # also where a starter took it, which can be interrupted
        return True

    def _lock(self, wait_s: float) -> bool:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                late_s = time.monotonic() - until
                if late_s > STALLED_S or (late_s > 0 and _is_exclusive(handle)):
                    os.close(handle)
                    return False
                time.sleep(0.002)
        self.handle = handle
        return True

    def write_pid(self, pid: int) -> None:
        """Write the *pid* of who holds the lock, or is about to, into it; 0 while that has none."""
        if self.handle is not None:
            os.ftruncate(self.handle, 0)
            os.pwrite(self.handle, f"{pid}\n".encode(), 0)

    def let_go(self) -> None:
        """Release it; idempotent."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def _is_exclusive(handle: int) -> bool:
    """Whether another process holds the lock of the file *handle*, and not only probes it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(handle, fcntl.LOCK_UN)
    return False


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


def seconds_since_taken(path: Path) -> float:
    """Return how long ago the lock at *path* was taken, which writes to it.

    Raises:
        OSError: if the system does not say, or the file is gone.
    """
    return max(0.0, time.time() - path.stat().st_mtime)
