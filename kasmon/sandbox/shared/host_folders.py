"""The folders and user that a jail has on this machine, and access to the folders that it is given.

Without root, the jail runs as the current user and its folders are in kasmon's state folder. Root gives its jails a
user id that nothing else uses, and a folder that this user can reach: in the state folder if it may pass there, else
below `/var/lib/kasmon`. Folders that only root may read are copied there; files are refused.
"""

import contextlib
import fcntl
import functools
import grp
import hashlib
import os
import pwd
import stat
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import RefusedError, SandboxError, UnsafeFolderError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import MIB, SandboxPolicy
from kasmon.paths import SOCKET_PATH_BYTES, Paths, private_folder, write_private
from kasmon.sandbox.shared.safe_tree import copy, give, remove_tree

USERS: Final = range(0x7000_0000, 0x7FFF_FFFF)
"""The range of user ids for root's jails: no system assigns them."""
FEW_USERS: Final = range(61_003, 61_184)
"""The range if `USERS` is not mapped; earlier versions used its first id for all. The first unused id is taken."""

INSIDE: Final = Path(__file__).parent.with_name("guest")
OF_ROOT: Final = Path("/var/lib/kasmon")
OF: Final = ".of"
"""In a base below `OF_ROOT`: the path of the state folder of the kasmon that owns it."""
PYTHON: Final = "/usr/bin/python3"
"""The Python of a sandbox: this machine's."""
COPY_BYTES: Final = 256 * MIB
COPY_ENTRIES: Final = 50_000
ETC: Final = {
    "passwd": "root:x:0:0::/:/usr/sbin/nologin\nsandbox:x:1000:1000::/home/sandbox:/bin/bash\n",
    "group": "root:x:0:\nsandbox:x:1000:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "hostname": "sandbox\n",
}
"""Files of a jail's /etc."""


class ResolvedFolder(NamedTuple):
    """The real path of a folder that a jail was given, and a notice for the user."""

    path: Path
    notice: str = ""


@functools.cache
def jail_owner(state: Path) -> tuple[int, int]:
    """Return the user and group of all sandbox processes of one kasmon, as this machine numbers them. Never root.

    If kasmon runs as root, each state folder has an id of its own, derived from its path: files left by a sandbox, and
    a process that escapes from one, belong to no other kasmon's.

    Raises:
        SandboxError: if root finds no unused id.
    """
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    numbers = USERS if _is_mapped(USERS) else FEW_USERS
    start = int.from_bytes(hashlib.sha256(os.fsencode(state)).digest()[:8], "big")
    for step in range(len(FEW_USERS)):
        number = numbers[(start + step) % len(numbers)]
        if _is_unused(number):
            return number, number
    raise SandboxError("cannot create a jail", f"the user ids {numbers.start} to {numbers.stop - 1} are all in use")


def _is_unused(number: int) -> bool:
    for known in (pwd.getpwuid, grp.getgrgid):
        with contextlib.suppress(KeyError):
            known(number)
            return False
    return True


def _is_mapped(numbers: range) -> bool:
    """Whether all *numbers* are mapped as users and groups: a container may have few."""
    try:
        return all(covers(Path(f"/proc/self/{kind}").read_text("ascii"), numbers) for kind in ("uid_map", "gid_map"))
    except OSError:
        return False


def covers(mapped: str, numbers: range) -> bool:
    """Whether one line of *mapped*, the map of a user namespace as the kernel writes it, covers *numbers*. Pure."""
    lines = [[int(word) for word in line.split()] for line in mapped.splitlines()]
    return any(first <= numbers.start and numbers.stop <= first + count for first, _, count in lines)


class HostFolders:
    """The folders of all jails of one kasmon. Constructing this has no side effects."""

    def __init__(self, paths: Paths, inside: Path | None = None) -> None:
        """*inside*: the folder of the programs that run in a sandbox, by default kasmon's own."""
        self.paths = paths
        self.inside = inside or INSIDE
        self._things: Path | None = None
        self.owner = jail_owner(paths.state)

    @functools.cached_property
    def base(self) -> Path:
        own, state = self.paths.state / "jails", self.paths.state
        if os.geteuid() != 0 or (
            state.is_dir() and may_pass(own, self.owner)
        ):  # a new state folder is closed to others
            return own
        return OF_ROOT / hashlib.sha256(os.fsencode(self.paths.state)).hexdigest()[:16]

    def of(self, session: SessionId) -> Path:
        return self.base / session

    def home(self, session: SessionId) -> Path:
        """Return the folder that is the home inside; it outlives each jail."""
        return self.of(session) / "home"

    def workspace(self, policy: SandboxPolicy) -> Path:
        """Return the folder that is `/workspace` inside: the policy's, kasmon's copy of it, or a new one."""
        own = self.of(policy.session) / "workspace"
        return own if not policy.workspace or own.is_dir() else Path(policy.workspace)

    def gate(self, session: SessionId) -> Path:
        """Return the folder of a session's egress proxy. It contains sockets, so its path is short."""
        return self.of(session) / "gate" if os.geteuid() == 0 else self.socket(session, "gate")

    def socket(self, session: SessionId, kind: str = "box") -> Path:
        """Return the socket of a jail's guest agent. Raises `SandboxError` if its path is too long for a socket."""
        path = self.paths.runtime / f"{session}.{kind}"
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
            raise SandboxError(
                "cannot create a jail",
                f"the path of its socket, {str(path)!r}, has more than {SOCKET_PATH_BYTES} bytes",
                "Set XDG_RUNTIME_DIR to a folder with a shorter name.",
            )
        return path

    def make(self, session: SessionId) -> Path:
        """Create the folder of *session*, with its home and its lock file.

        Raises:
            OSError, UnsafeFolderError: if that fails.
        """
        self.paths.make()
        with self.locked():
            folder = _make_passable(self.of(session))
            self._own_files(folder)
            self._own(folder / "home")
            lock = folder / "lock"
            if not lock.exists():
                write_private(lock, b"")
                os.chown(lock, *self.owner)
        return folder

    def own_workspace(self, session: SessionId) -> Path:
        """Create the `/workspace` of a sandbox that was given no folder; it is removed with the session."""
        return self._own(self.of(session) / "workspace")

    def things(self) -> Path:
        """Return the folder of programs that run inside and of `etc`, readable for the jail's user and shared."""
        if self._things is not None and self._things.is_dir():
            return self._things
        contents = {f"opt/{path.name}": path.read_bytes() for path in list_program_files(self.inside)}
        contents |= {f"etc/{name}": text.encode() for name, text in ETC.items()}
        digest = hashlib.sha256()
        for name in sorted(contents):
            digest.update(b"%d %s %d\n" % (len(name), name.encode(), len(contents[name])) + contents[name])
        folder = self.base / f"things-{digest.hexdigest()[:16]}"
        with contextlib.nullcontext() if folder.is_dir() else self.locked():
            if not folder.is_dir():
                fresh = self.base / f".things-{os.getpid()}"
                remove_tree(fresh)
                for part in (fresh, fresh / "opt", fresh / "etc"):
                    part.mkdir(mode=0o700)
                for name, content in contents.items():
                    write_private(fresh / name, content)
                _compile(fresh / "opt")
                if os.geteuid() == 0:
                    _make_readable(fresh)
                fresh.rename(folder)
        self._things = folder
        return folder

    def settle(self, policy: SandboxPolicy, source: Path, name: str, *, writable: bool) -> ResolvedFolder:
        """Return *source* as the jail's user can use it: itself, or a copy named *name* in the session folder.

        An existing copy is used as it is. Changes in it are not copied back.

        Raises:
            RefusedError: if it can neither be used nor copied.
        """
        if not os.path.lexists(source):
            raise RefusedError(f"{str(source)!r} does not exist.", hint="Create it before you start the sandbox.")
        if may_use(source, self.owner, writable=writable):
            return ResolvedFolder(source.resolve())
        if os.geteuid() != 0:
            raise RefusedError(f"{str(source)!r} is not accessible{' for writing' if writable else ''}.")
        whose = "may write to" if writable else "may read"
        notice = f"{str(source)!r} is a folder that only root {whose}: the sandbox gets a copy, {{}}"
        target = self.of(policy.session) / name
        if not source.is_dir():
            raise RefusedError(
                f"{str(source)!r} is a file that only root {whose}, and a sandbox never runs as root.",
                hint="Make it readable for others, or give a folder: folders are copied.",
            )
        if not target.is_dir():
            try:
                copy(source, target, self.owner, limit_bytes=COPY_BYTES, limit_entries=COPY_ENTRIES)
            except (OSError, RefusedError) as error:
                raise RefusedError(
                    f"{str(source)!r} is a folder that only root {whose}, and a sandbox never runs as root:"
                    f" it cannot be copied ({error}).",
                    hint=f"Up to {COPY_BYTES // MIB} MiB in {COPY_ENTRIES} files are copied."
                    f" Or use a folder that another user owns (`chown -R {self.owner[0]}` changes its owner).",
                ) from error
        return ResolvedFolder(target, notice.format(repr(str(target))))

    def clear(self, session: SessionId, but: Collection[str] = ("home", "workspace")) -> None:
        """Remove what an ended jail left, *but* non-empty folders of these names. Raises `OSError` if some is left."""
        folder = self.of(session)
        if not self.base.is_dir():
            return
        with self.locked():
            for each in sorted(folder.iterdir()) if folder.is_dir() else ():
                if each.name in but and any(each.iterdir()):
                    continue
                if each.is_dir() and not each.is_symlink():
                    remove_tree(each)
                else:
                    each.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()
            others = (path for path in self.base.iterdir() if not path.name.startswith(("things-", ".")))
            if "home" not in but and not any(others):
                remove_tree(self.base)
        if self.base.parent == OF_ROOT:
            with contextlib.suppress(OSError):
                OF_ROOT.rmdir()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out other processes that create or clear session folders."""
        while True:
            for folder in (OF_ROOT, self.base) if self.base.parent == OF_ROOT else (self.base,):
                _make_passable(folder)
            with contextlib.suppress(FileNotFoundError):
                handle = os.open(self.base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                break
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(UnsafeFolderError):
                _make_passable(self.base)  # the former holder may have removed it
            if self.base.parent == OF_ROOT and not (self.base / OF).exists():
                write_private(self.base / OF, os.fsencode(self.paths.state))
            yield
        finally:
            os.close(handle)

    def _own_files(self, folder: Path) -> None:
        """Change the owner of files in *folder* that an earlier version left under the id shared by every kasmon."""
        for each in folder.iterdir() if os.geteuid() == 0 else ():
            if (user := each.lstat().st_uid) in FEW_USERS and user != self.owner[0]:
                give(each, self.owner)

    def _own(self, folder: Path) -> Path:
        """Return *folder*, created for the jail's user alone."""
        if not folder.is_dir():
            folder.mkdir(mode=0o700)
            os.chown(folder, *self.owner)
        return folder


def may_pass(folder: Path, owner: tuple[int, int]) -> bool:
    """Whether *owner* may reach *folder* through its parents, as far as they exist."""
    return all(_may(each, owner, 1) for each in folder.parents if each.exists())


def may_use(path: Path, owner: tuple[int, int], *, writable: bool) -> bool:
    """Whether *owner* may reach *path* and read it, or also write to it; for a folder, its direct content."""
    real = Path(os.path.realpath(path))
    access = 4 | (2 if writable else 0) | (1 if real.is_dir() else 0)
    return may_pass(real, owner) and _may(real, owner, access)


def _may(path: Path, owner: tuple[int, int], access: int) -> bool:
    """Whether *path*'s mode grants *owner* the access *access*: 4 read, 2 write, 1 pass."""
    if owner[0] == os.geteuid():
        return os.access(path, access)
    try:
        facts = path.stat()
    except OSError:
        return False
    shift = 6 if facts.st_uid == owner[0] else 3 if facts.st_gid == owner[1] else 0
    return (stat.S_IMODE(facts.st_mode) >> shift) & access == access


def list_program_files(folder: Path) -> list[Path]:
    """Return the files of *folder* that belong inside a sandbox."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.suffix != ".pyc")


def _compile(folder: Path) -> None:
    """Compile the modules in *folder*, which is read-only inside, for the Python that runs there.

    Without this each start takes some milliseconds longer; nothing else.
    """
    into = ["-d", "/opt/kasmon", "--invalidation-mode", "unchecked-hash", os.fspath(folder)]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run([PYTHON, "-I", "-S", "-m", "compileall", "-q", *into], env={}, timeout=10, capture_output=True)


def _make_passable(folder: Path) -> Path:
    """Return *folder*, created if missing; as root, others may pass through, but not list or write."""
    private_folder(folder)
    if os.geteuid() == 0 and not folder.stat().st_mode & 0o001:
        folder.chmod(0o711)
    return folder


def _make_readable(folder: Path) -> None:
    """Let others read *folder* and its content; only root may write."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
