"""Linux: processes are read from /proc."""

import contextlib
import io
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from kasmon.system.base import ExitHandle, PeerProcess, ProcessEntry, ProcessStat, ProcessUsage

if TYPE_CHECKING:
    import socket

TICKS: Final = os.sysconf("SC_CLK_TCK")
"""How many ticks /proc counts in a second."""
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
EXEC_S: Final = 1.0
"""How long to wait for a process to show its environment while it executes a new program, in seconds."""
ENDED: Final = (b"Z", b"X")
CLOCK_READS: Final = 5
"""How often two clocks are read: on a busy machine this process may be interrupted between the two."""
NAMESPACES: Final = ("mnt", "net", "pid", "user", "ipc", "uts")


class Linux:
    """A `System` of any processor and C library."""

    has_namespaces: ClassVar[bool] = True
    can_continue_after_fork: ClassVar[bool] = True
    has_inotify: ClassVar[bool] = True
    start_resolution_s: ClassVar[float] = 1 / TICKS
    start_tolerance_s: ClassVar[float] = 0.5 / TICKS
    reports_ticks: ClassVar[bool] = True
    service_supervisor: ClassVar[Literal["systemd", "launchd"]] = "systemd"
    openers: ClassVar[Sequence[str]] = ("xdg-open", "wslview")
    has_keychain: ClassVar[bool] = False
    npm_name: ClassVar[str] = "linux"
    limits: ClassVar[Mapping[str, tuple[str, str]]] = {
        "terminals": ("kernel.pty.max", "`sysctl kernel.pty.max=4096`."),
        "file watches": (
            "fs.inotify.max_user_watches",
            "`sysctl fs.inotify.max_user_watches=65536`; without, changes show a few seconds later.",
        ),
        "file watchers": (
            "fs.inotify.max_user_instances",
            "`sysctl fs.inotify.max_user_instances=512`; without, changes show a few seconds later.",
        ),
    }

    def __init__(self, settings: str = "/proc/sys") -> None:
        self._settings = settings
        """The folder of the kernel's settings."""

    def read_boot_id(self) -> str:
        with contextlib.suppress(OSError):
            return read_proc(f"{self._settings}/kernel/random/boot_id").decode("ascii").strip()
        return ""

    def list_pids(self) -> list[int]:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - half the cost

    def read_stat(self, pid: int) -> ProcessStat | None:
        if pid <= 0 or (stat := fields(pid)) is None:
            return None
        return ProcessStat(int(stat[1]), int(stat[2]), int(stat[3]), stat[0] in ENDED)

    def read_start(self, pid: int) -> float | None:
        stat = fields(pid)
        return None if stat is None or stat[0] in ENDED else int(stat[19]) / TICKS

    def convert_start(self, started: float) -> float:
        _, booted_at = min(_read_boot_time() for _ in range(CLOCK_READS))
        return started + booted_at

    def read_start_text(self, pid: int) -> str:
        stat = fields(pid)
        return "" if stat is None or stat[0] in ENDED else stat[19].decode()

    def read_variables(self, pid: int) -> dict[str, str]:
        try:
            entries = read_environ(pid).split(b"\0")
        except OSError:
            return {}
        return dict(os.fsdecode(entry).partition("=")[::2] for entry in entries if b"=" in entry)

    def find_variable(self, pid: int, name: str) -> str | None:
        begin = os.fsencode(f"{name}=")
        try:
            entries = read_environ(pid)
        except OSError:
            return None
        if begin not in entries:  # of hundreds of processes, a few have it
            return None
        # a process that changed what is shown of it may leave thousands of empty entries at the end
        values = [entry for entry in entries.rstrip(b"\0").split(b"\0") if entry.startswith(begin)]
        return os.fsdecode(values[-1].removeprefix(begin)) if values else None

    def read_arguments(self, pid: int) -> Sequence[str]:
        try:
            return [os.fsdecode(argument) for argument in read_proc(f"/proc/{pid}/cmdline").split(b"\0")][:-1]
        except OSError:
            return []

    def is_waiting(self, pid: int) -> bool:
        stat = fields(pid)
        return stat is not None and stat[0] in (b"S", b"T", b"I")

    def is_in_foreground(self, pid: int) -> bool:
        stat = fields(pid)
        return stat is not None and stat[2] == stat[5]

    def read_folder(self, pid: int) -> str:
        try:
            return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115
        except OSError:
            return ""

    def locate_folder(self, pid: int) -> tuple[int, int] | None:
        return _locate(f"/proc/{pid}/cwd")  # also of a folder that was renamed or deleted

    def list_open_files(self, pid: int) -> Iterator[tuple[str, str]]:
        folder = f"/proc/{pid}/fd"
        for handle in os.listdir(folder):  # noqa: PTH208
            with contextlib.suppress(OSError):
                yield os.readlink(f"{folder}/{handle}"), f"{folder}/{handle}"  # noqa: PTH115

    def count_open_files(self, pid: int) -> int:
        try:
            return os.stat(f"/proc/{pid}/fd").st_size  # noqa: PTH116 - 0 before Linux 6.2
        except OSError:
            return 0

    def read_control_group(self, pid: int) -> bytes:
        try:
            return read_proc(f"/proc/{pid}/cgroup")
        except OSError:
            return b""

    def list_processes(self) -> Iterator[tuple[int, ProcessEntry]]:
        for pid in self.list_pids():
            with contextlib.suppress(OSError, ValueError, IndexError):
                head, _, tail = read_proc(f"/proc/{pid}/stat").rpartition(b")")
                stat = tail.split()
                if stat[0] in ENDED:
                    continue
                name = head.partition(b"(")[2].decode("utf-8", "replace")
                yield pid, ProcessEntry(int(stat[1]), int(stat[2]), int(stat[5]), name, stat[0] == b"T")

    def measure_processes(self) -> Iterator[tuple[int, ProcessUsage]]:
        for pid in self.list_pids():
            if (stat := fields(pid)) is not None:
                spent_s = (int(stat[11]) + int(stat[12])) / TICKS
                yield pid, ProcessUsage(int(stat[1]), spent_s, int(stat[21]) * PAGE_BYTES)

    def measure_shared_memory(self, pid: int) -> int | None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(read_proc(f"/proc/{pid}/smaps_rollup").partition(b"\nPss:")[2].split(None, 1)[0]) * 1024
        return None

    def identify_peer(self, connection: "socket.socket") -> PeerProcess:
        import socket  # most callers have no connection
        import struct

        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return PeerProcess(uid, pid)

    def open_exit_handle(self, pid: int) -> ExitHandle:
        return io.FileIO(os.pidfd_open(pid))

    def find_path(self, handle: int) -> str:
        return os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115

    def read_setting(self, name: str) -> int | None:
        try:
            return int(read_proc(f"{self._settings}/{name.replace('.', '/')}"))
        except (OSError, ValueError):
            return None


def _read_boot_time() -> tuple[float, float]:
    """Return how long the reading took, in seconds, and when this machine booted, late by that at most."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = time.time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - before, now - before


def _locate(path: str) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def fields(pid: int, task: int = 0) -> list[bytes] | None:
    """Return what /proc reports of process *pid* (or one of its threads), from its state on; None if there is none.

    0 is the state's letter, 1 its parent, 2 its group, 5 the foreground group of its terminal, 11 and 12 its own ticks,
    13 and 14 those of ended children, 19 its start.
    """
    path = f"/proc/{pid}/task/{task}/stat" if task else f"/proc/{pid}/stat"
    try:
        return read_proc(path).rpartition(b")")[2].split()
    except OSError:
        return None


def read_environ(pid: int) -> bytes:
    """Return the initial environment of process *pid* from /proc: entries that end in NUL. Blocks for `EXEC_S` at most.

    While a process executes a new program, Linux reports an empty environment until the new stack is filled; both ends
    of the environment in its line of /proc (see proc_pid_stat(5)) are 0 for as long. It is read again then.

    Raises:
        OSError: there is no such process, or it belongs to another user.
    """
    until = time.monotonic() + EXEC_S
    while not (entries := read_proc(f"/proc/{pid}/environ")) and _is_in_exec(pid) and time.monotonic() < until:
        time.sleep(0.0001)
    return entries


def read_proc(path: str) -> bytes:
    """Return the content of a file of /proc: a scan reads hundreds, and a `Path` takes three times as long.

    Raises:
        OSError: if it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while piece := os.read(handle, 1 << 16):
            content += piece
        return content
    finally:
        os.close(handle)


def read_inherited() -> list[object]:
    """Return what this process passes on to a child that /proc alone reports: control group, signals, namespaces."""
    status = read_proc("/proc/self/status").decode().splitlines()
    return [
        read_proc("/proc/self/cgroup").decode(),
        [line for line in status if line.startswith(("SigBlk", "SigIgn"))],
        [os.readlink(f"/proc/self/ns/{each}") for each in NAMESPACES],  # noqa: PTH115
    ]


def set_title(arguments: Sequence[str]) -> None:
    """Have /proc show this process as `kasmon` with *arguments*, as far as its command line reaches."""
    stat_fields = fields(os.getpid())
    assert stat_fields is not None
    start, end = int(stat_fields[45]), int(stat_fields[46])
    title = b"\0".join(map(os.fsencode, [sys.executable, "-P", "-m", "kasmon", *arguments]))
    memory = os.open("/proc/self/mem", os.O_RDWR)
    os.pwrite(memory, title[: end - start - 1].ljust(end - start, b"\0"), start)
    os.close(memory)


def _is_in_exec(pid: int) -> bool:
    """Whether the empty environment of *pid* may be that of a program that is just being executed.

    An empty environment that stays has equal ends that are not 0. Kernel threads and zombies have no program.
    """
    try:
        os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    except OSError:
        return False
    stat_fields = fields(pid)
    return stat_fields is not None and not stat_fields[47] == stat_fields[48] != b"0"
