"""macOS, and the BSDs: processes are read by psutil and `ps`. It was never run on a Mac by kasmon's authors.

psutil is imported where it is needed: it takes as long to import as the rest of `kasmon ls`.
"""

import contextlib
import fcntl
import os
import select
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from kasmon.system.base import ExitHandle, PeerProcess, ProcessEntry, ProcessStat, ProcessUsage

if TYPE_CHECKING:
    import socket

    import psutil

Answer = TypeVar("Answer")

SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID = 0, 1, 2
"""Of <sys/un.h>; Python names none of them."""
XUCRED_BYTES: Final = 76
"""The size of `struct xucred` of <sys/ucred.h>: version, uid, number of groups, sixteen groups."""
F_GETPATH: Final = 50
PATH_BYTES: Final = 1024
CALL_S: Final = 5.0
LIST: Final = (
    "ps",
    "-axww",
    *(word for name in ("pid", "ppid", "pgid", "tpgid", "stat", "comm") for word in ("-o", f"{name}=")),
)
"""BSD's `ps` takes all behind a `=` for the header, so each column needs an option. Without -ww it cuts long lines."""
RESTING: Final = frozenset({"sleeping", "stopped", "idle"})
ZOMBIE: Final = "zombie"
"""As psutil names it."""


class MacOS:
    """A `System` without /proc."""

    has_namespaces: ClassVar[bool] = False
    can_continue_after_fork: ClassVar[bool] = False
    has_inotify: ClassVar[bool] = False
    start_resolution_s: ClassVar[float] = 0.0
    start_tolerance_s: ClassVar[float] = 0.05
    reports_ticks: ClassVar[bool] = False
    service_supervisor: ClassVar[Literal["systemd", "launchd"]] = "launchd"
    openers: ClassVar[Sequence[str]] = ("open",)
    has_keychain: ClassVar[bool] = True
    npm_name: ClassVar[str] = "darwin"
    limits: ClassVar[Mapping[str, tuple[str, str]]] = {
        "terminals": ("kern.tty.ptmx_max", "`sudo sysctl kern.tty.ptmx_max=999`."),
        "processes": ("kern.maxprocperuid", "`sudo sysctl kern.maxprocperuid=2048`."),
    }

    def read_boot_id(self) -> str:
        return ""

    def list_pids(self) -> list[int]:
        import psutil

        return psutil.pids()

    def read_stat(self, pid: int) -> ProcessStat | None:
        def read(process: "psutil.Process") -> ProcessStat:
            return ProcessStat(process.ppid(), os.getpgid(pid), os.getsid(pid), process.status() == ZOMBIE)

        return _ask(pid, read, None) if pid > 0 else None

    def read_start(self, pid: int) -> float | None:
        return _ask(pid, lambda process: None if process.status() == ZOMBIE else process.create_time(), None)

    def convert_start(self, started: float) -> float:
        return started

    def read_start_text(self, pid: int) -> str:
        state, _, started = _call(["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]).strip().partition(" ")
        return "" if state.startswith("Z") else started.strip()

    def read_variables(self, pid: int) -> dict[str, str]:
        return _ask(pid, lambda process: process.environ(), {})

    def find_variable(self, pid: int, name: str) -> str | None:
        return self.read_variables(pid).get(name)

    def read_arguments(self, pid: int) -> Sequence[str]:
        return _ask(pid, lambda process: process.cmdline(), [])

    def is_waiting(self, pid: int) -> bool:
        return _ask(pid, lambda process: process.status() in RESTING, False)

    def is_in_foreground(self, pid: int) -> bool:
        group, _, foreground = _call(["ps", "-o", "pgid=", "-o", "tpgid=", "-p", str(pid)]).strip().partition(" ")
        return bool(group) and group == foreground.strip()

    def read_folder(self, pid: int) -> str:
        return _ask(pid, lambda process: process.cwd(), "")

    def locate_folder(self, pid: int) -> tuple[int, int] | None:
        try:
            facts = os.stat(self.read_folder(pid))  # noqa: PTH116
        except OSError:
            return None
        return facts.st_dev, facts.st_ino

    def list_open_files(self, pid: int) -> Iterator[tuple[str, str]]:
        import psutil

        try:
            for file in psutil.Process(pid).open_files():
                yield file.path, file.path
        except psutil.Error as error:
            raise ProcessLookupError(str(error)) from error

    def count_open_files(self, pid: int) -> int:
        return 0

    def read_control_group(self, pid: int) -> bytes:
        return b""

    def list_processes(self) -> Iterator[tuple[int, ProcessEntry]]:
        for line in _call(LIST).splitlines():
            with contextlib.suppress(ValueError):
                pid, parent, group, foreground, state, path = line.split(None, 5)
                if not state.startswith("Z"):
                    name = path.rstrip().rpartition("/")[2]
                    yield int(pid), ProcessEntry(int(parent), int(group), int(foreground), name, state.startswith("T"))

    def measure_processes(self) -> Iterator[tuple[int, ProcessUsage]]:
        import psutil

        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error), process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
                yield process.pid, ProcessUsage(process.ppid(), times.user + times.system, memory.rss)

    def measure_shared_memory(self, pid: int) -> int | None:
        return None

    def identify_peer(self, connection: "socket.socket") -> PeerProcess:
        _, uid = struct.unpack_from("II", connection.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, XUCRED_BYTES))
        try:
            (pid,) = struct.unpack("i", connection.getsockopt(SOL_LOCAL, LOCAL_PEERPID, 4))
        except OSError:  # the BSDs report the user alone
            pid = 0
        return PeerProcess(uid, pid)

    def open_exit_handle(self, pid: int) -> ExitHandle:
        queue: Any = select.kqueue()  # type: ignore[attr-defined, unused-ignore]
        ended = select.kevent(  # type: ignore[attr-defined, unused-ignore]
            pid,
            select.KQ_FILTER_PROC,  # type: ignore[attr-defined, unused-ignore]
            select.KQ_EV_ADD,  # type: ignore[attr-defined, unused-ignore]
            select.KQ_NOTE_EXIT,  # type: ignore[attr-defined, unused-ignore]
        )
        try:
            queue.control([ended], 0)
        except OSError:
            queue.close()
            raise
        opened: ExitHandle = queue
        return opened

    def find_path(self, handle: int) -> str:
        return os.fsdecode(fcntl.fcntl(handle, F_GETPATH, bytes(PATH_BYTES)).partition(b"\0")[0])

    def read_setting(self, name: str) -> int | None:
        try:
            return int(_call(["sysctl", "-n", name]))
        except ValueError:
            return None


def _ask(pid: int, read: Callable[["psutil.Process"], Answer], otherwise: Answer) -> Answer:
    """Return what *read* returns of process *pid*; *otherwise* if that cannot be read."""
    import psutil

    try:
        return read(psutil.Process(pid))
    except (psutil.Error, OSError):
        return otherwise


def _call(argv: Sequence[str]) -> str:
    """Return what *argv* prints in the C locale, where dates have one form; empty if it fails."""
    import subprocess  # most calls need none

    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=CALL_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")
