"""The interface of an operating system: its processes, its sockets, and what it can do."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    import socket


class ProcessStat(NamedTuple):
    """Where one process belongs."""

    parent: int
    group: int
    session: int
    has_ended: bool
    """Whether it is a zombie."""


class ProcessEntry(NamedTuple):
    """One process of the list of all."""

    parent: int
    group: int
    foreground: int
    """The foreground process group of its terminal; -1 or 0 without a terminal."""
    name: str
    is_stopped: bool = False
    """Whether a stop signal stopped it, as Ctrl-Z does."""


class ProcessUsage(NamedTuple):
    """What one process has used."""

    parent: int
    processor_s: float
    resident_bytes: int


class PeerProcess(NamedTuple):
    """The process that connected, and its user; `pid` is 0 if the system does not report it."""

    uid: int
    pid: int


class ExitHandle(Protocol):
    """A file that is readable once a process has ended."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class System(Protocol):
    """An operating system. Each method blocks for some milliseconds at most."""

    has_namespaces: ClassVar[bool]
    """Whether a process can have its own view of files and network, as a jail needs."""
    can_continue_after_fork: ClassVar[bool]
    """Whether a process may go on after a fork without executing a program; macOS's libraries may crash then."""
    has_inotify: ClassVar[bool]
    start_resolution_s: ClassVar[float]
    """A start time may be early by this."""
    start_tolerance_s: ClassVar[float]
    """Start times that differ by less than this are equal."""
    reports_ticks: ClassVar[bool]
    """Whether `read_start_text` returns a number of clock ticks since boot."""
    service_supervisor: ClassVar[Literal["systemd", "launchd"]]
    openers: ClassVar[Sequence[str]]
    """Programs that open a file or an address as the desktop does; the first that is installed."""
    has_keychain: ClassVar[bool]
    """Whether agents keep log-ins in a keychain rather than in files."""
    npm_name: ClassVar[str]
    """The system's name in npm's packages, as in `codex-linux-x64`."""
    limits: ClassVar[Mapping[str, tuple[str, str]]]
    """Kind of thing -> the kernel's setting that limits it, and how to raise that."""

    def __hash__(self) -> int: ...

    def read_boot_id(self) -> str:
        """Return the id of this boot; empty where start times are times of day, which need none."""

    def list_pids(self) -> list[int]:
        """Return the ids of all processes."""

    def read_stat(self, pid: int) -> ProcessStat | None:
        """Return where process *pid* belongs; None if it does not exist."""

    def read_start(self, pid: int) -> float | None:
        """Return when *pid* started, comparable with other results; None if it does not exist or is a zombie."""

    def convert_start(self, started: float) -> float:
        """Return *started*, a result of `read_start`, in seconds since the epoch, as the clock is set now."""

    def read_start_text(self, pid: int) -> str:
        """Return the start of *pid* in the system's own format; empty if it does not exist or is a zombie."""

    def read_variables(self, pid: int) -> dict[str, str]:
        """Return the initial environment of *pid*; empty if it is not readable."""

    def find_variable(self, pid: int, name: str) -> str | None:
        """Return the value of the variable *name* in the initial environment of *pid*; None without it."""

    def read_arguments(self, pid: int) -> Sequence[str]:
        """Return the command line of *pid*; empty if it is not readable."""

    def is_waiting(self, pid: int) -> bool:
        """Whether *pid* waits or is stopped; False while it computes, and if it does not exist."""

    def is_in_foreground(self, pid: int) -> bool:
        """Whether the process group of *pid* is the foreground one of its terminal."""

    def read_folder(self, pid: int) -> str:
        """Return the working directory of *pid*; empty if it is not readable."""

    def locate_folder(self, pid: int) -> tuple[int, int] | None:
        """Return the device and inode of the working directory of *pid*; None if they are not readable."""

    def list_open_files(self, pid: int) -> Iterator[tuple[str, str]]:
        """Yield each open file: its path for *pid*, and one that opens it from here. Raises `OSError` if unreadable."""

    def count_open_files(self, pid: int) -> int:
        """Return how many files *pid* has open, which takes one system call; 0 if that is not known."""

    def read_control_group(self, pid: int) -> bytes:
        """Return the control group of *pid*, as the system writes it; empty if there is none."""

    def list_processes(self) -> Iterator[tuple[int, ProcessEntry]]:
        """Yield all processes but zombies. Raises `OSError` if they cannot be read."""

    def measure_processes(self) -> Iterator[tuple[int, ProcessUsage]]:
        """Yield what each process has used; those of other users may be missing."""

    def measure_shared_memory(self, pid: int) -> int | None:
        """Return the memory of *pid* in bytes with its share of shared pages; None if the system does not report it."""

    def identify_peer(self, connection: "socket.socket") -> PeerProcess:
        """Return the process that connected by *connection*, as it was then. Raises `OSError` if it is unknown."""

    def open_exit_handle(self, pid: int) -> ExitHandle:
        """Return a file, to be closed, that is readable once *pid* ends. Raises `OSError` if it does not exist."""

    def find_path(self, handle: int) -> str:
        """Return the path of the open folder or file *handle*. Raises `OSError` if it has none."""

    def read_setting(self, name: str) -> int | None:
        """Return the kernel's setting *name*, as `sysctl` calls it; None if there is none."""
