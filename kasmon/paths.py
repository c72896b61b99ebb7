"""Every location on disk, in one place.

Reading the environment happens here and only here: two sets of XDG variables are two kasmons that never meet.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kasmon.errors import UnsafeFolderError

SOCKET_PATH_BYTES = 103
"""The longest path that a unix socket takes on every system we run on (macOS: 104 with the final NUL)."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where one kasmon keeps its things. Making a `Places` touches nothing; `make()` does."""

    state: Path
    runtime: Path
    config: Path

    @property
    def sessions(self) -> Path:
        return self.state / "sessions"

    @property
    def fleet_log(self) -> Path:
        return self.state / "fleet.jsonl"

    @property
    def fleet_lock(self) -> Path:
        return self.state / "fleet.lock"

    @property
    def index(self) -> Path:
        return self.state / "index.db"

    @property
    def own_log(self) -> Path:
        return self.state / "kasmon.log"

    @property
    def demos(self) -> Path:
        """One file per demo that runs; swept by the next start."""
        return self.state / "demos"

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def themes(self) -> Path:
        return self.config / "themes"

    @property
    def tmux_socket(self) -> Path:
        return self.runtime / "t.sock"

    @property
    def tmux_host_socket(self) -> Path:
        return self.runtime / "h.sock"

    @property
    def tmux_host_lock(self) -> Path:
        return self.state / "tmux-host.lock"

    @property
    def tmux_host_log(self) -> Path:
        return self.state / "tmux-host.log"

    def folder(self, session: str) -> Path:
        return self.sessions / session

    def log(self, session: str) -> Path:
        return self.sessions / session / "events.jsonl"

    def launch(self, session: str) -> Path:
        return self.sessions / session / "launch.json"

    def environment(self, session: str) -> Path:
        """The session's own variables, NUL-separated `K=V`, 0600."""
        return self.sessions / session / "env"

    def host_lock(self, session: str) -> Path:
        return self.sessions / session / "host.lock"

    def host_log(self, session: str) -> Path:
        return self.sessions / session / "host.log"

    def blobs(self, session: str) -> Path:
        return self.sessions / session / "blobs"

    def socket(self, session: str) -> Path:
        """The socket of a structured session's host."""
        return self.runtime / f"{session}.sock"

    def make(self) -> None:
        """Create the state and runtime folders, 0700.

        Raises:
            UnsafeFolderError: if one of them is a link, another user's, or writable by others.
        """
        for folder in (self.state, self.sessions, self.runtime):
            private_folder(folder)

    def environment_variables(self) -> dict[str, str]:
        """The XDG variables under which another process finds the same places."""
        return {
            "XDG_STATE_HOME": str(self.state.parent),
            "XDG_RUNTIME_DIR": str(self.runtime.parent),
            "XDG_CONFIG_HOME": str(self.config.parent),
        }


def places(environment: Mapping[str, str] | None = None) -> Places:
    """The places of the kasmon that *environment* (default: this process's) names.

    Without a usable XDG_RUNTIME_DIR, or where a socket's path would be too long, the runtime folder is a 0700 folder
    of random name under the system's temporary folder, recorded in the state folder.

    Raises:
        UnsafeFolderError: if the recorded folder is not ours alone.
    """
    variables = os.environ if environment is None else environment
    home = Path(variables.get("HOME") or Path.home())
    state = _xdg(variables, "XDG_STATE_HOME", home / ".local" / "state") / "kasmon"
    config = _xdg(variables, "XDG_CONFIG_HOME", home / ".config") / "kasmon"
    runtime_home = variables.get("XDG_RUNTIME_DIR", "")
    runtime = Path(runtime_home) / "kasmon" if runtime_home and Path(runtime_home).is_absolute() else None
    if (
        runtime is None
        or len(os.fsencode(runtime / "12345678.sock")) > SOCKET_PATH_BYTES
        or not runtime.parent.is_dir()
    ):
        runtime = _recorded_runtime(state)
    return Places(state=state, runtime=runtime, config=config)


def private_folder(folder: Path) -> Path:
    """*folder*, made 0700 with its parents if it was not there.

    Raises:
        UnsafeFolderError: if it is a link, another user's, or writable by others.
    """
    if not folder.is_symlink() and not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if stat.S_ISLNK(facts.st_mode):
        raise UnsafeFolderError(str(folder), "it is a link")
    if facts.st_uid != os.geteuid():
        raise UnsafeFolderError(str(folder), "it belongs to another user")
    if facts.st_mode & 0o022:
        raise UnsafeFolderError(str(folder), "others can write to it")
    return folder


def write_private(path: Path, content: bytes) -> None:
    """Put *content* at *path*, 0600, whole or not at all; a reader never sees half of it."""
    import tempfile  # only where something is written: it takes 4 ms to load

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _xdg(variables: Mapping[str, str], name: str, fallback: Path) -> Path:
    value = variables.get(name, "")
    return Path(value) if value and Path(value).is_absolute() else fallback


def _recorded_runtime(state: Path) -> Path:
    record = state / "runtime"
    try:
        recorded = Path(record.read_text("utf-8").strip())
    except OSError:
        recorded = None
    if recorded is not None and recorded.is_dir():
        return private_folder(recorded) / "kasmon"
    import tempfile  # only where something is written: it takes 4 ms to load

    private_folder(state)
    made = Path(tempfile.mkdtemp(prefix="kasmon-"))
    write_private(record, f"{made}\n".encode())
    return made / "kasmon"
