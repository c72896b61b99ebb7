"""Every location on disk, in one place.

Reading the environment happens here and only here: two sets of XDG variables are two kasmons that never meet.
"""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kasmon.errors import NOT_REGULAR, UnsafeFolderError

TMUX_HOST_SOCKET = "h.sock"
SOCKET_PATH_BYTES = 103
"""The longest path that a unix socket takes on every system we run on (macOS: 104 with the final NUL)."""


class Paths(msgspec.Struct, frozen=True):
    """Where one kasmon keeps its things. Making a `Paths` touches nothing; `make()` does."""

    state: Path
    config: Path
    given_runtime: Path | None = None
    """The runtime folder that the environment gives; None where it gives no usable one, and we need our own."""

    @property
    def runtime(self) -> Path:
        """The folder of our sockets; before `make()` has made it, a path at which there is nothing.

        Where the environment gives none, it is a 0700 folder of random name, which a file in the state folder names.

        Raises:
            UnsafeFolderError: if that folder is not ours alone.
        """
        return self.given_runtime or _recorded(self.runtime_record) or self.runtime_record / "kasmon"

    @property
    def has_runtime(self) -> bool:
        """Whether it is settled where `runtime` is; otherwise `make()` settles it."""
        return self.given_runtime is not None or _recorded(self.runtime_record) is not None

    @property
    def runtime_record(self) -> Path:
        """The file that names our own runtime folder, where the environment gives none."""
        return self.state / "runtime"

    @property
    def sessions(self) -> Path:
        """The folder of the sessions' folders."""
        return self.state / "sessions"

    @property
    def fleet_log(self) -> Path:
        """Which sessions there are, and how they are called: an event log."""
        return self.state / "fleet.jsonl"

    @property
    def fleet_lock(self) -> Path:
        """Held by whoever writes what is kept of the fleet."""
        return self.state / "fleet.lock"

    @property
    def index(self) -> Path:
        """What was folded of all logs, in SQLite; may be deleted."""
        return self.state / "index.db"

    @property
    def search_index(self) -> Path:
        """What is known of the words in all logs, in SQLite; may be deleted."""
        return self.state / "search.db"

    @property
    def split(self) -> Path:
        """How the dashboard's window is split; may be deleted."""
        return self.state / "split.json"

    @property
    def own_log(self) -> Path:
        """What kasmon says of its own troubles."""
        return self.state / "kasmon.log"

    @property
    def demos(self) -> Path:
        """One file per demo that runs; swept by the next start."""
        return self.state / "demos"

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def rules(self) -> Path:
        """The standing rules; kasmon writes this file, a person may read it."""
        return self.config / "rules.toml"

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
    def tmux_host_log(self) -> Path:
        return self.state / "tmux-host.log"

    def folder(self, session: str) -> Path:
        """All that is kept of *session*, by its id."""
        return self.sessions / session

    def log(self, session: str) -> Path:
        """The session's facts."""
        return self.sessions / session / "events.jsonl"

    def fetched(self, session: str) -> Path:
        """How the folder of a plan's task was when its sandbox got a copy of that, or was last fetched from."""
        return self.folder(session) / "fetched.json"

    def launch(self, session: str) -> Path:
        """How it is to be started, as JSON."""
        return self.sessions / session / "launch.json"

    def environment(self, session: str) -> Path:
        """The session's own variables, NUL-separated `K=V`, 0600."""
        return self.sessions / session / "env"

    def host_lock(self, session: str) -> Path:
        """Held by its host for life: that lock, and no pid, says whether it lives."""
        return self.sessions / session / "host.lock"

    def host_log(self, session: str) -> Path:
        return self.sessions / session / "host.log"

    def blobs(self, session: str) -> Path:
        """The whole of what a fact has only the beginning of, each file called by its SHA-256."""
        return self.sessions / session / "blobs"

    def record(self, session: str) -> Path:
        """The folder of what the session's terminal printed."""
        return self.sessions / session / "terminal"

    def socket(self, session: str) -> Path:
        """The socket of a structured session's host."""
        return self.runtime / f"{session}.sock"

    def waiting(self, session: str) -> Path:
        """The words of the prompts that wait for a session and hold a secret, 0600; there only while there are any."""
        return self.runtime / f"{session}.waiting"

    def context(self, session: str) -> Path:
        """What the agent inside may know of its place; kept current by its plan's runner."""
        return self.sessions / session / "context.json"

    def sandbox(self, session: str) -> Path:
        """What the session's sandbox is; no secret's value is in there."""
        return self.sessions / session / "sandbox.json"

    def checkpoints(self, session: str) -> Path:
        """What was kept of the session's sandbox."""
        return self.sessions / session / "checkpoints"

    def inherited(self, session: str) -> Path:
        """What the session's interpreters begin with: what was kept of those of the session that it was forked from."""
        return self.sessions / session / "inherited.state"

    def origin(self, session: str) -> Path:
        """What the sandbox of a forked session is a copy of, and whether that copy is whole."""
        return self.sessions / session / "origin.json"

    @property
    def mcp(self) -> Path:
        """The folder of the locks by which it is known which of `kasmon mcp` still serve."""
        return self.state / "mcp"

    @property
    def commands(self) -> Path:
        """The folder that ends a session's PATH: with `kasmon`, and nothing else that an agent could find there."""
        return self.state / "bin"

    @property
    def plans(self) -> Path:
        return self.state / "plans"

    def plan(self, plan: str) -> Path:
        """The folder of one plan's run: its agreed text, its log, its notes, its worktrees."""
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
        """The XDG variables under which another process finds the same places; of those that are made already."""
        told = {"XDG_STATE_HOME": str(self.state.parent), "XDG_CONFIG_HOME": str(self.config.parent)}
        if self.has_runtime:
            told["XDG_RUNTIME_DIR"] = str(self.runtime.parent)
        return told


def places(environment: Mapping[str, str] | None = None) -> Paths:
    """The places of the kasmon that *environment* (default: this process's) names. Nothing is made.

    Without a usable XDG_RUNTIME_DIR (`no_runtime_dir` says why it is none) the runtime folder is one of our own.

    Raises:
        UnsafeFolderError: if that is there and is not ours alone.
    """
    variables = os.environ if environment is None else environment
    home = Path(variables.get("HOME") or Path.home())
    state = _xdg(variables, "XDG_STATE_HOME", home / ".local" / "state") / "kasmon"
    config = _xdg(variables, "XDG_CONFIG_HOME", home / ".config") / "kasmon"
    given = None if no_runtime_dir(variables) else Path(variables["XDG_RUNTIME_DIR"]) / "kasmon"
    here = Paths(state=state, config=config, given_runtime=given)
    if given is None:
        _recorded(here.runtime_record)
    return here


def no_runtime_dir(variables: Mapping[str, str]) -> str:
    """Why XDG_RUNTIME_DIR, as *variables* have it, is not used; empty where it is."""
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
    """*folder*, made 0700 with its parents if it was not there.

    Raises:
        UnsafeFolderError: if it is a symbolic link, another user's, or writable by others.
    """
    if not folder.is_symlink() and not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if stat.S_ISLNK(facts.st_mode):
        raise UnsafeFolderError(str(folder), "it is a symbolic link", is_link=True)
    if facts.st_uid != os.geteuid():
        raise UnsafeFolderError(str(folder), "it belongs to another user")
    if facts.st_mode & 0o022:
        raise UnsafeFolderError(str(folder), "others can write to it")
    return folder


def write_private(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Put *content* at *path*, 0600, whole or not at all; a reader never sees half of it.

    Args:
        durable: return only when the content and its name are on disk.
    """
    import tempfile  # only where something is written: it takes 4 ms to load

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(handle)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def open_regular(path: str | Path, flags: int) -> int:
    """A descriptor of the regular file at *path*, made 0600 where *flags* say so; never waits for a FIFO's other end.

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


def check_regular(path: str | Path, status: os.stat_result) -> None:
    """
    Raises:
        OSError: if *status*, that of *path*, is not of a regular file.
    """
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, NOT_REGULAR, str(path))


def expanded(name: str) -> Path:
    """The path that *name* says, with a leading `~` as the home that it means; as it is where nobody has that home."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 (the other one raises)


def _xdg(variables: Mapping[str, str], name: str, fallback: Path) -> Path:
    value = variables.get(name, "")
    return Path(value) if value and Path(value).is_absolute() else fallback


def _fits(runtime_home: Path) -> bool:
    """Whether the path of a socket in *runtime_home* is short enough."""
    return len(os.fsencode(runtime_home / "kasmon" / "12345678.sock")) <= SOCKET_PATH_BYTES


def _recorded(record: Path) -> Path | None:
    """The runtime folder in the folder that *record* names; None where that is not there.

    Raises:
        UnsafeFolderError: if it is not ours alone.
    """
    try:
        recorded = Path(record.read_text("utf-8").strip())
    except (OSError, ValueError):
        return None
    return private_folder(recorded) / "kasmon" if recorded.is_absolute() and recorded.is_dir() else None


def _record_runtime(record: Path) -> None:
    """Make a runtime folder and name it in *record*, unless there is one. Of several at once, one does."""
    import fcntl  # only where something is written
    import tempfile  # likewise: it takes 4 ms to load

    handle = os.open(record.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _recorded(record) is None:
            name = Path(tempfile.gettempdir(), "kasmon-12345678")
            made = tempfile.mkdtemp(prefix="kasmon-", dir=None if _fits(name) else "/tmp")
            write_private(record, f"{made}\n".encode())
    finally:
        os.close(handle)
