"""Every location on disk.

Only this module reads the environment for paths. Two sets of XDG variables are two separate kasmons.
"""

import errno
import os
import stat
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from kasmon.errors import NOT_REGULAR, UnsafeFolderError, UsageError

Value = TypeVar("Value")
Default = TypeVar("Default")
TMUX_HOST_SOCKET = "h.sock"
SOCKET_PATH_BYTES = 103
"""The longest path that a unix socket takes on every supported system (macOS: 104 with the final NUL)."""


class _InState:
    """A file or folder of `Paths.state`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: "Paths", kind: type) -> Path:
        return paths.state / self._name


class _OfSession:
    """A file or folder of each session: a method that returns it for a session's id."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: "Paths", kind: type) -> Callable[[str], Path]:
        return lambda session: paths.sessions / session / self._name


class Paths(msgspec.Struct, frozen=True):
    """The locations of one kasmon installation. Creating a `Paths` touches no file; `make()` does."""

    state: Path
    config: Path
    given_runtime: Path | None = None
    """The runtime folder from the environment; None where that is missing or unusable, and kasmon needs its own."""

    runtime_record = _InState("runtime")
    """The file that names kasmon's own runtime folder, where the environment names none."""
    sessions = _InState("sessions")
    discarded = _InState("discarded")
    """The folder with a git bundle for each discarded worktree whose work is nowhere else."""
    pull_requests = _InState("pull-requests")
    """The folder with what `gh` and `glab` answered last, a file for each repository; may be deleted."""
    fleet_log = _InState("fleet.jsonl")
    """The event log of the fleet: which sessions exist, and their names."""
    fleet_lock = _InState("fleet.lock")
    """The lock for writing the fleet's files."""
    index = _InState("index.db")
    """The SQLite cache of the states reduced from all logs; may be deleted."""
    search_index = _InState("search.db")
    """The SQLite full-text index of all logs; may be deleted."""
    split = _InState("split.json")
    """The split of the dashboard's window; may be deleted."""
    list_layout = _InState("list.json")
    """How the list of the dashboard is arranged; may be deleted."""
    own_log = _InState("kasmon.log")
    demos = _InState("demos")
    """One file per running demo; the next start removes stale ones."""
    acp_registry = _InState("acp-registry.json")
    """The registry of ACP agents that the user got last; may be deleted."""
    tmux_host_lock = _InState("tmux-host.lock")
    fork_server_lock = _InState("fork-server.lock")
    """The lock of a client that starts a fork server."""
    tmux_host_log = _InState("tmux-host.log")
    machines = _InState("remotes")
    """The folder with a folder for each registered machine: how it is reached, and what its link reported last."""
    identities = _InState("identities")
    """The folder with a file for each role that this machine has in a cluster."""
    drained = _InState("drained")
    """The file that exists while no more tasks of plans are placed on this machine."""
    notifications = _InState("notifications")
    """The folder with what was pushed, its log, and when the user last pressed a key in a dashboard."""
    notifier_lock = _InState("notifications/notifier.lock")
    """The lock of the process that pushes notifications."""
    mcp = _InState("mcp")
    """The folder of locks that show which `kasmon mcp` servers are running."""
    request_links = _InState("request-links.json")
    """The records of links to requests: what each opens, until when, and what became of it."""
    request_links_key = _InState("request-links.key")
    """The key that signs links to requests, and logins, 0600."""
    web_logins = _InState("web-logins.json")
    """The records of browsers that are logged in to the list of sessions, and of links that log one in."""
    web_passkeys = _InState("web-passkeys.json")
    """The public keys of passkeys that log in to the list of sessions."""
    web_push = _InState("web-push.json")
    """The browsers that are subscribed to Web Push; their addresses are secrets."""
    web_push_key = _InState("web-push.key")
    """The private key that signs what is pushed to browsers, 0600."""
    web_lock = _InState("web.lock")
    """The lock that a `kasmon web` holds while it runs; the file contains the address of its server."""
    limits = _InState("limits")
    """The folder with the log of resumptions after usage limits."""
    watch = _InState("watch")
    """The folder with the log of what watcher sessions were told."""
    feeder_lock = _InState("watch/feeder.lock")
    """The lock of the process that feeds watcher sessions."""
    resumer_lock = _InState("limits/resume.lock")
    """The lock of the process that resumes sessions after usage limits."""
    commands = _InState("bin")
    """The last folder on a session's PATH: it contains `kasmon` and no other program."""
    plans = _InState("plans")
    plan_tasks = _InState("plan-tasks")
    """The folder with the claims and worktrees of tasks whose plans run on other machines."""
    repositories = _InState("repositories")
    """The folder of bare git repositories for the worktrees of such tasks, each named by its first commit."""

    log = _OfSession("events.jsonl")
    fetched = _OfSession("fetched.json")
    """The file with the state of a plan task's folder at its last copy to, or fetch from, its sandbox."""
    launch = _OfSession("launch.json")
    """The launch description, as JSON."""
    environment = _OfSession("env")
    """The session's own variables, NUL-separated `K=V`, 0600."""
    host_lock = _OfSession("host.lock")
    """The lock that a host holds while it runs; this lock, not a pid, shows whether it is alive."""
    host_log = _OfSession("host.log")
    blobs = _OfSession("blobs")
    """The folder of texts that an event only has the beginning of, each file named by its SHA-256."""
    images = _OfSession("images")
    """The folder of the pictures of prompts, each file named by its SHA-256 and its kind's suffix."""
    turns = _OfSession("turns.git")
    """The git repository of kasmon's own with the files before and after each turn of the session."""
    hunks = _OfSession("hunks")
    """The folder with the patches of hunks that were reverted or staged, for their undo."""
    record = _OfSession("terminal")
    """The folder with the recorded output of the session's terminal."""
    context = _OfSession("context.json")
    """The context that the agent inside may read; the plan's runner keeps it up to date."""
    sandbox = _OfSession("sandbox.json")
    """The description of the session's sandbox; it contains no secret's value."""
    checkpoints = _OfSession("checkpoints")
    inherited = _OfSession("inherited.state")
    """The state that the session's interpreters start from: that of the session it was forked from."""
    origin = _OfSession("origin.json")
    """Which sandbox a forked session's is a copy of, and whether that copy is complete."""
    via = _OfSession("via")
    """The file that names the registered machine of the session, and the copied log; other sessions have none."""

    @property
    def runtime(self) -> Path:
        """The folder of kasmon's sockets; until `make()` creates it, a path that does not exist.

        Where the environment names none, it is a 0700 folder with a random name, which a file in the state folder
        records.

        Raises:
            UnsafeFolderError: if that folder is not private to the user.
        """
        return self.given_runtime or _read_record(self.runtime_record) or self.runtime_record / "kasmon"

    @property
    def has_runtime(self) -> bool:
        """Whether the location of `runtime` is settled; otherwise `make()` settles it."""
        return self.given_runtime is not None or _read_record(self.runtime_record) is not None

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def rules(self) -> Path:
        """The standing rules; kasmon writes this file, users may read it."""
        return self.config / "rules.toml"

    @property
    def agents(self) -> Path:
        """The folders of agents that the user added."""
        return self.config / "agents"

    @property
    def themes(self) -> Path:
        return self.config / "themes"

    @property
    def tmux_socket(self) -> Path:
        return self.runtime / "t.sock"

    @property
    def tmux_host_socket(self) -> Path:
        return self.runtime / TMUX_HOST_SOCKET

    def folder(self, session: str) -> Path:
        return self.sessions / session

    def socket(self, session: str) -> Path:
        """Return the socket of a structured session's host."""
        return self.runtime / f"{session}.sock"

    def shared_server(self, session: str) -> Path:
        """Return the socket at which the agent of a structured session serves its own screen, where it can."""
        return self.runtime / f"{session}.app"

    @property
    def pasted(self) -> Path:
        """The folder with the pictures that were pasted into prompts."""
        return self.runtime / "pasted"

    def waiting(self, session: str) -> Path:
        """Return the file with the queued prompts that contain a secret, 0600; it exists only while there are any."""
        return self.runtime / f"{session}.waiting"

    def machine(self, name: str) -> Path:
        return self.machines / name

    def machine_lock(self, name: str) -> Path:
        """Return the lock that the link to a registered machine holds while it runs."""
        return self.machines / name / "link.lock"

    def machine_socket(self, name: str) -> Path:
        """Return the socket of the link to a registered machine; its name is short, as socket paths are limited."""
        return self.runtime / f"m{zlib.crc32(name.encode()):08x}.sock"

    def plan(self, plan: str) -> Path:
        """Return the folder of one plan's run: its agreed text, its log, its notes, its worktrees."""
        return self.plans / plan

    def make(self) -> None:
        """Create the state and runtime folders, 0700.

        Raises:
            UnsafeFolderError: if one of them is a link, another user's, or writable by others.
        """
        for folder in (self.state, self.sessions):
            private_folder(folder)
        if self.given_runtime is None:
            _record_runtime(self.runtime_record)
        private_folder(self.runtime)

    def environment_variables(self) -> dict[str, str]:
        """Return the XDG variables that lead another process to the same paths, as far as these are settled."""
        variables = {"XDG_STATE_HOME": str(self.state.parent), "XDG_CONFIG_HOME": str(self.config.parent)}
        if self.has_runtime:
            variables["XDG_RUNTIME_DIR"] = str(self.runtime.parent)
        return variables


def user_paths(environment: Mapping[str, str] | None = None) -> Paths:
    """Return the paths of the kasmon that *environment* (default: this process's) names. Nothing is created.

    Without a usable XDG_RUNTIME_DIR (see `no_runtime_dir`), the runtime folder is kasmon's own.

    Raises:
        UnsafeFolderError: if that exists and is not private to the user.
    """
    variables = os.environ if environment is None else environment
    home = Path(variables.get("HOME") or Path.home())
    state = _xdg(variables, "XDG_STATE_HOME", home / ".local" / "state") / "kasmon"
    config = config_folder(variables)
    given = None if no_runtime_dir(variables) else Path(variables["XDG_RUNTIME_DIR"]) / "kasmon"
    paths = Paths(state=state, config=config, given_runtime=given)
    if given is None:
        _read_record(paths.runtime_record)
    return paths


def config_folder(variables: Mapping[str, str]) -> Path:
    """Return the folder with the user's settings, as *variables* name it. Nothing is created."""
    home = Path(variables.get("HOME") or Path.home())
    return _xdg(variables, "XDG_CONFIG_HOME", home / ".config") / "kasmon"


def no_runtime_dir(variables: Mapping[str, str]) -> str:
    """Return why XDG_RUNTIME_DIR in *variables* is not used; empty if it is."""
    given = variables.get("XDG_RUNTIME_DIR", "")
    if not given:
        return "it is not set"
    if not Path(given).is_absolute():
        return f"{given!r} is not an absolute path"
    if not _fits(Path(given)):
        return f"a socket path in {given!r} would be longer than {SOCKET_PATH_BYTES} bytes"
    if not Path(given).is_dir():
        return f"{given!r} is not a folder"
    return "" if os.access(given, os.R_OK | os.W_OK | os.X_OK) else f"{given!r} is not accessible"


def private_folder(folder: Path) -> Path:
    """Return *folder*, created 0700 with its parents if it did not exist.

    Raises:
        UnsafeFolderError: if it is a symbolic link, another user's, or writable by others.
        FileExistsError: if it is a file, a FIFO or a device.
    """
    if not folder.is_symlink() and not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if stat.S_ISLNK(facts.st_mode):
        raise UnsafeFolderError(str(folder), "it is a symbolic link", is_link=True)
    if not stat.S_ISDIR(facts.st_mode):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
    if facts.st_uid != os.geteuid():
        raise UnsafeFolderError(str(folder), "it belongs to another user")
    if facts.st_mode & 0o022:
        raise UnsafeFolderError(str(folder), "others can write to it")
    return folder


def write_private(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write *content* to *path*, 0600, atomically: a reader never sees half of it.

    Args:
        durable: return only when the content and its name are on disk.
    """
    name = path.with_name(f".{path.name}.{os.urandom(6).hex()}")  # `tempfile` would take 4 ms to load
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(handle)
        name.replace(path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_json(path: Path, kind: type[Value], default: Default) -> Value | Default:
    """Return the content of the JSON file at *path* as a *kind*; *default* if the file is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return default


def open_regular(path: str | Path, flags: int) -> int:
    """Open the regular file at *path* and return the descriptor; never block on a FIFO. *flags* may create it, 0600.

    Raises:
        OSError: if it cannot be opened, or is a FIFO, a device or a folder.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    try:
        check_regular(path, os.fstat(handle))
    except OSError:
        os.close(handle)
        raise
    return handle


def read_stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes with the file at *path*: its modification time in ns, its size and its inode; else zeros.

    The time has the resolution of the kernel's clock, some milliseconds: a file that was read between its creation and
    its first bytes changes in size alone.
    """
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino


def check_regular(path: str | Path, status: os.stat_result) -> None:
    """Check that *status*, that of *path*, is of a regular file. Raises `OSError` if it is not."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, NOT_REGULAR, str(path))


def expanded(name: str) -> Path:
    """Return the path *name* with a leading `~` expanded to the home folder; unchanged where there is no such home."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 (the other one raises)


def find_program(name: str, path: str) -> str | None:
    """Return the executable file that *name* is on the PATH *path*; as `shutil.which`, which takes 2 ms to load."""
    folders = [""] if "/" in name else path.split(os.pathsep) if path else []
    files = (os.path.join(folder, name) for folder in folders)  # noqa: PTH118 - `Path` would drop a leading `./`
    try:
        return next((each for each in files if os.access(each, os.F_OK | os.X_OK) and not os.path.isdir(each)), None)  # noqa: PTH112
    except ValueError:  # a NUL, or a character that no file name has
        return None


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal. Raises `OSError` if it cannot be read."""
    import hashlib  # few commands need it, and it takes 4 ms to load

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_folder(name: str) -> Path:
    """Return the absolute path of the folder *name*, as `expanded`.

    Raises:
        UsageError: if there is no such folder.
    """
    folder = expanded(name or ".").absolute()
    if not folder.is_dir():
        if folder.exists():
            raise UsageError(f"{str(folder)!r} is not a folder.", hint="Give a folder.")
        hint = "Create it first, or choose another folder."
        raise UsageError(f"the folder {str(folder)!r} does not exist.", hint=hint)
    return folder


def _xdg(variables: Mapping[str, str], name: str, fallback: Path) -> Path:
    value = variables.get(name, "")
    return Path(value) if value and Path(value).is_absolute() else fallback


def _fits(runtime_home: Path) -> bool:
    return len(os.fsencode(runtime_home / "kasmon" / "12345678.sock")) <= SOCKET_PATH_BYTES


def _read_record(record: Path) -> Path | None:
    """Return the runtime folder in the folder that *record* names; None if that is missing. Raises as `paths`."""
    try:
        recorded = Path(record.read_text("utf-8").strip())
    except (OSError, ValueError):
        return None
    return private_folder(recorded) / "kasmon" if recorded.is_absolute() and recorded.is_dir() else None


def _record_runtime(record: Path) -> None:
    """Create a runtime folder and name it in *record*, unless one exists. Of concurrent calls, one creates it."""
    import fcntl  # only where something is written
    import tempfile  # likewise

    handle = os.open(record.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _read_record(record) is None:
            name = Path(tempfile.gettempdir(), "kasmon-12345678")
            made = tempfile.mkdtemp(prefix="kasmon-", dir=None if _fits(name) else "/tmp")
            write_private(record, f"{made}\n".encode())
    finally:
        os.close(handle)
