"""Every location on disk.

Only this module reads the environment for paths. Two sets of XDG variables are two separate kasmons.
"""

import errno
import os
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kasmon.errors import NOT_REGULAR, UnsafeFolderError, UsageError

TMUX_HOST_SOCKET = "h.sock"
SOCKET_PATH_BYTES = 103
"""The longest path that a unix socket takes on every supported system (macOS: 104 with the final NUL)."""


class Paths(msgspec.Struct, frozen=True):
    """The locations of one kasmon installation. Creating a `Paths` touches no file; `make()` does."""

    state: Path
    config: Path
    given_runtime: Path | None = None
    """The runtime folder from the environment; None where that is missing or unusable, and kasmon needs its own."""

    @property
    def runtime(self) -> Path:
        """The folder of kasmon's sockets; until `make()` creates it, a path that does not exist.

        Where the environment names none, it is a 0700 folder with a random name, which a file in the state folder
        records.

        Raises:
            UnsafeFolderError: if that folder is not private to the user.
        """
        return self.given_runtime or _recorded(self.runtime_record) or self.runtime_record / "kasmon"

    @property
    def has_runtime(self) -> bool:
        """Whether the location of `runtime` is settled; otherwise `make()` settles it."""
        return self.given_runtime is not None or _recorded(self.runtime_record) is not None

    @property
    def runtime_record(self) -> Path:
        """The file that names kasmon's own runtime folder, where the environment names none."""
        return self.state / "runtime"

    @property
    def sessions(self) -> Path:
        return self.state / "sessions"

    @property
    def discarded(self) -> Path:
        """The folder with a git bundle for each discarded worktree whose work is nowhere else."""
        return self.state / "discarded"

    @property
    def pull_requests(self) -> Path:
        """The folder with what `gh` and `glab` answered last, a file for each repository; may be deleted."""
        return self.state / "pull-requests"

    @property
    def fleet_log(self) -> Path:
        """The event log of the fleet: which sessions exist, and their names."""
        return self.state / "fleet.jsonl"

    @property
    def fleet_lock(self) -> Path:
        """The lock for writing the fleet's files."""
        return self.state / "fleet.lock"

    @property
    def index(self) -> Path:
        """The SQLite cache of the states reduced from all logs; may be deleted."""
        return self.state / "index.db"

    @property
    def search_index(self) -> Path:
        """The SQLite full-text index of all logs; may be deleted."""
        return self.state / "search.db"

    @property
    def split(self) -> Path:
        """The split of the dashboard's window; may be deleted."""
        return self.state / "split.json"

    @property
    def list_layout(self) -> Path:
        """How the list of the dashboard is arranged; may be deleted."""
        return self.state / "list.json"

    @property
    def own_log(self) -> Path:
        return self.state / "kasmon.log"

    @property
    def demos(self) -> Path:
        """One file per running demo; the next start removes stale ones."""
        return self.state / "demos"

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
    def acp_registry(self) -> Path:
        """The registry of ACP agents that the user got last; may be deleted."""
        return self.state / "acp-registry.json"

    @property
    def themes(self) -> Path:
        return self.config / "themes"

    @property
    def tmux_socket(self) -> Path:
        return self.runtime / "t.sock"

    @property
    def tmux_host_socket(self) -> Path:
        return self.runtime / TMUX_HOST_SOCKET

    @property
    def tmux_host_lock(self) -> Path:
        return self.state / "tmux-host.lock"

    @property
    def fork_server_lock(self) -> Path:
        """The lock of a client that starts a fork server."""
        return self.state / "fork-server.lock"

    @property
    def tmux_host_log(self) -> Path:
        return self.state / "tmux-host.log"

    def folder(self, session: str) -> Path:
        return self.sessions / session

    def log(self, session: str) -> Path:
        return self.sessions / session / "events.jsonl"

    def fetched(self, session: str) -> Path:
        """Return the file with the state of a plan task's folder at its last copy to, or fetch from, its sandbox."""
        return self.folder(session) / "fetched.json"

    def launch(self, session: str) -> Path:
        """Return the launch description, as JSON."""
        return self.sessions / session / "launch.json"

    def environment(self, session: str) -> Path:
        """Return the session's own variables, NUL-separated `K=V`, 0600."""
        return self.sessions / session / "env"

    def host_lock(self, session: str) -> Path:
        """Return the lock that a host holds while it runs; this lock, not a pid, shows whether it is alive."""
        return self.sessions / session / "host.lock"

    def host_log(self, session: str) -> Path:
        return self.sessions / session / "host.log"

    def blobs(self, session: str) -> Path:
        """Return the folder of texts that an event only has the beginning of, each file named by its SHA-256."""
        return self.sessions / session / "blobs"

    def images(self, session: str) -> Path:
        """Return the folder of the pictures of prompts, each file named by its SHA-256 and its kind's suffix."""
        return self.sessions / session / "images"

    def turns(self, session: str) -> Path:
        """Return the git repository of kasmon's own with the files before and after each turn of the session."""
        return self.sessions / session / "turns.git"

    def hunks(self, session: str) -> Path:
        """Return the folder with the patches of hunks that were reverted or staged, for their undo."""
        return self.sessions / session / "hunks"

    def record(self, session: str) -> Path:
        """Return the folder with the recorded output of the session's terminal."""
        return self.sessions / session / "terminal"

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

    def context(self, session: str) -> Path:
        """Return the context that the agent inside may read; the plan's runner keeps it up to date."""
        return self.sessions / session / "context.json"

    def sandbox(self, session: str) -> Path:
        """Return the description of the session's sandbox; it contains no secret's value."""
        return self.sessions / session / "sandbox.json"

    def checkpoints(self, session: str) -> Path:
        return self.sessions / session / "checkpoints"

    def inherited(self, session: str) -> Path:
        """Return the state that the session's interpreters start from: that of the session it was forked from."""
        return self.sessions / session / "inherited.state"

    def origin(self, session: str) -> Path:
        """Return which sandbox a forked session's is a copy of, and whether that copy is complete."""
        return self.sessions / session / "origin.json"

    @property
    def machines(self) -> Path:
        """The folder with a folder for each registered machine: how it is reached, and what its link reported last."""
        return self.state / "remotes"

    def machine(self, name: str) -> Path:
        return self.machines / name

    def machine_lock(self, name: str) -> Path:
        """Return the lock that the link to a registered machine holds while it runs."""
        return self.machines / name / "link.lock"

    def machine_socket(self, name: str) -> Path:
        """Return the socket of the link to a registered machine; its name is short, as socket paths are limited."""
        return self.runtime / f"m{zlib.crc32(name.encode()):08x}.sock"

    @property
    def identities(self) -> Path:
        """The folder with a file for each role that this machine has in a cluster."""
        return self.state / "identities"

    @property
    def drained(self) -> Path:
        """The file that exists while no more tasks of plans are placed on this machine."""
        return self.state / "drained"

    def via(self, session: str) -> Path:
        """Return the file that names the registered machine whose session it is, and the log that is copied.

        It exists only for such sessions.
        """
        return self.sessions / session / "via"

    @property
    def notifications(self) -> Path:
        """The folder with what was pushed, its log, and when the user last pressed a key in a dashboard."""
        return self.state / "notifications"

    @property
    def notifier_lock(self) -> Path:
        """The lock of the process that pushes notifications."""
        return self.notifications / "notifier.lock"

    @property
    def mcp(self) -> Path:
        """The folder of locks that show which `kasmon mcp` servers are running."""
        return self.state / "mcp"

    @property
    def request_links(self) -> Path:
        """The records of links to requests: what each opens, until when, and what became of it."""
        return self.state / "request-links.json"

    @property
    def request_links_key(self) -> Path:
        """The key that signs links to requests, and logins, 0600."""
        return self.state / "request-links.key"

    @property
    def web_logins(self) -> Path:
        """The records of browsers that are logged in to the list of sessions, and of links that log one in."""
        return self.state / "web-logins.json"

    @property
    def web_passkeys(self) -> Path:
        """The public keys of passkeys that log in to the list of sessions."""
        return self.state / "web-passkeys.json"

    @property
    def web_push(self) -> Path:
        """The browsers that are subscribed to Web Push; their addresses are secrets."""
        return self.state / "web-push.json"

    @property
    def web_push_key(self) -> Path:
        """The private key that signs what is pushed to browsers, 0600."""
        return self.state / "web-push.key"

    @property
    def web_lock(self) -> Path:
        """The lock that a `kasmon web` holds while it runs; the file contains the address of its server."""
        return self.state / "web.lock"

    @property
    def limits(self) -> Path:
        """The folder with the log of resumptions after usage limits."""
        return self.state / "limits"

    @property
    def watch(self) -> Path:
        """The folder with the log of what watcher sessions were told."""
        return self.state / "watch"

    @property
    def feeder_lock(self) -> Path:
        """The lock of the process that feeds watcher sessions."""
        return self.watch / "feeder.lock"

    @property
    def resumer_lock(self) -> Path:
        """The lock of the process that resumes sessions after usage limits."""
        return self.limits / "resume.lock"

    @property
    def commands(self) -> Path:
        """The last folder on a session's PATH: it contains `kasmon` and no other program."""
        return self.state / "bin"

    @property
    def plans(self) -> Path:
        return self.state / "plans"

    @property
    def plan_tasks(self) -> Path:
        """The folder with the claims and worktrees of tasks whose plans run on other machines."""
        return self.state / "plan-tasks"

    @property
    def repositories(self) -> Path:
        """The folder of bare git repositories for the worktrees of such tasks, each named by its first commit."""
        return self.state / "repositories"

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
        told = {"XDG_STATE_HOME": str(self.state.parent), "XDG_CONFIG_HOME": str(self.config.parent)}
        if self.has_runtime:
            told["XDG_RUNTIME_DIR"] = str(self.runtime.parent)
        return told


def places(environment: Mapping[str, str] | None = None) -> Paths:
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
    here = Paths(state=state, config=config, given_runtime=given)
    if given is None:
        _recorded(here.runtime_record)
    return here


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


def _recorded(record: Path) -> Path | None:
    """Return the runtime folder in the folder that *record* names; None if that does not exist.

    Raises:
        UnsafeFolderError: if it is not private to the user.
    """
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
        if _recorded(record) is None:
            name = Path(tempfile.gettempdir(), "kasmon-12345678")
            made = tempfile.mkdtemp(prefix="kasmon-", dir=None if _fits(name) else "/tmp")
            write_private(record, f"{made}\n".encode())
    finally:
        os.close(handle)
