"""Processes of this machine, read from /proc, signals to them, and how helper processes and sandboxes are started."""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kasmon.boot_id import boot
from kasmon.paths import SOCKET_PATH_BYTES
from kasmon.process_identity import is_running
from kasmon.process_identity import started_at as started_at
from kasmon.system.linux import Linux, fields

LOG_BYTES: Final = 64 * 1024
READY: Final = b"R"
"""What a helper process writes to its pipe `ready` once it serves."""


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


def start_helper(
    module: str, config: Mapping[str, object], files: Mapping[str, int], variables: Sequence[str], limit_s: float
) -> int:
    """Start *module* as a process that outlives this one; return its pid once it serves.

    It reads one line of JSON: *config*, the descriptors *files* that it inherits, and `ready`, the pipe for `READY`.

    Args:
        variables: the names of the variables that it inherits, where they are set.
        limit_s: how long it may take.

    Raises:
        OSError: if it does not serve by then.
    """
    ready, tells = os.pipe()
    with os.fdopen(ready, "rb", buffering=0) as pipe:
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=None if os.environ.get("KASMON_DEV") else subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in variables if name in os.environ},
                pass_fds=(*files.values(), tells),
                start_new_session=True,
            )
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError), child.stdin:
                child.stdin.write(json.dumps({**config, **files, "ready": tells}).encode() + b"\n")
        finally:
            os.close(tells)
        threading.Thread(target=child.wait, name=f"reaps {module} {child.pid}", daemon=True).start()
        is_heard = bool(select.select([pipe], [], [], limit_s)[0])
        if is_heard and pipe.read(1) == READY:
            return child.pid
    child.kill()
    raise OSError("it exited immediately" if is_heard else f"it took longer than {limit_s:g} s")


PROC: Final = Path("/proc")
TELLS_CHILDREN: Final = (PROC / "thread-self/children").exists()
"""Whether this kernel lists a process's children; otherwise all processes are read for their parent."""
FLOCK: Final = "hhqqi4x"
"""`struct flock` on the machines that support jails."""
LOOK_S: Final = 0.002


def lives(pid: int, started: float, of_boot: str) -> bool:
    """Whether process *pid* is the one that started at *started* in boot *of_boot*, and no zombie."""
    return pid > 0 and of_boot == boot() and is_running(pid, started)


def threads(pid: int) -> list[int]:
    """Return the threads of process *pid*; empty if it is gone."""
    try:
        return [int(task) for task in os.listdir(PROC / f"{pid}/task")]  # noqa: PTH208
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """Return the children of *pid*; processes that start meanwhile may be missing."""
    if not TELLS_CHILDREN:
        every = [(int(name), fields(int(name))) for name in os.listdir(PROC) if name.isdecimal()]  # noqa: PTH208
        return [each for each, stat in every if stat and int(stat[1]) == pid]
    found: list[int] = []
    for task in threads(pid):
        with contextlib.suppress(OSError):
            found += map(int, (PROC / f"{pid}/task/{task}/children").read_bytes().split())
    return found


def tree(pid: int) -> list[int]:
    """Return *pid* and all its descendants, each parent before its children; zombies too."""
    found = [pid] if fields(pid) is not None else []
    for each in found:
        found += children(each)
    return found


def is_inside(pid: int) -> bool:
    """Whether *pid* is in a child PID namespace, and not its first process."""
    return name_inside(pid) not in ("", "1")


def name_inside(pid: int) -> str:
    """Return the number of *pid* in a child PID namespace; empty if it is in none, or gone."""
    try:
        status = (PROC / f"{pid}/status").read_text()
    except OSError:
        return ""
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return numbers[-1] if len(numbers) > 1 else ""


def send_signal(pid: int, number: signal.Signals, started: float | None = None) -> bool:
    """Send the signal to the process that now has *pid*; return whether it was sent.

    With *started* (as from `started_at`), a later process with the same id is not signalled.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        now = started_at(pid)
        if now is None or (started is not None and abs(now - started) >= Linux.start_tolerance_s):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def holder(lock: Path) -> int | None:
    """Return the process that holds an `fcntl` lock on a byte of the file *lock*; None if there is none, or no file."""
    try:
        handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    finally:
        os.close(handle)
    return None if kind == fcntl.F_UNLCK or pid <= 0 else pid


def gone(pid: int, started: float, limit_s: float) -> bool:
    """Wait for the end of process *pid* that started at *started*; return whether it ended within *limit_s*."""
    until = time.monotonic() + limit_s
    while lives(pid, started, boot()):
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_S)
    return True
