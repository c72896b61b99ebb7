"""Who is alive: processes by id, start time and boot, hosts by the lock they hold.

A process is never known by its name or its id alone: ids are used again, and after a reboot so are times since boot. A
host holds the flock on its session's `host.lock` for life, so the system itself says when it is gone.
"""

import fcntl
import os
import time
from pathlib import Path

from kasmon.boot import boot

HAS_PROC = Path("/proc/self/stat").exists()
PROBE_S = 0.2
"""How long a look at a lock may hold it at most."""


def started_at(pid: int) -> float | None:
    """When process *pid* started, on a clock that only compares with itself; None if there is none or it is a zombie.

    Linux: seconds since boot, from /proc. Elsewhere: seconds since the epoch, from psutil.
    """
    if HAS_PROC:
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if fields[0] in (b"Z", b"X") else int(fields[19]) / os.sysconf("SC_CLK_TCK")
    import psutil  # only here: it takes as long to import as the rest of `kasmon ls`

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def is_running(pid: int | None, started: float | None, of_boot: str = "") -> bool:
    """Whether the process *pid* that started at *started* (by `started_at`) in boot *of_boot* still runs.

    One of which nobody knows when it started counts as gone: whoever has its id now may be a stranger. An empty
    *of_boot* is this boot.
    """
    if pid is None or started is None or (of_boot and of_boot != boot()):
        return False
    now = started_at(pid)
    return now is not None and abs(now - started) < 0.05


class HostLock:
    """The lock that a host holds for life. Closing it, or dying, lets it go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Take it; False if another process holds it. Our pid is written into it, for people.

        Who only looks (`lock_holder`) holds it for a moment, so it is tried for `PROBE_S` before that counts as held.
        """
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        until = time.monotonic() + PROBE_S
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
