"""The warm pool of one machine size: an empty disk, and a stored snapshot of a machine that is booted and warmed up.

A new machine is a copy of that snapshot, over the same read-only disk. If there is none, or one of another version, a
new machine is booted from the empty disk, which takes longer.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import SandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxSize
from kasmon.model.sandbox.snapshot import Snapshot, SnapshotMaker
from kasmon.paths import private_folder
from kasmon.sandbox.microvm.qemu_program import IMAGES, format_disk, run_tool
from kasmon.sandbox.shared.snapshot_store import SnapshotStore
from kasmon.store.file_lock import lock_folder

WARM: Final = SessionId("golden")
"""The session id of the warm machine, which belongs to no session."""
MEMORY, DISK = "memory", "disk.qcow2"


class WarmOrigin(NamedTuple):
    """What a new machine starts from."""

    base: Path
    """Its disk in its initial state."""
    memory: Path | None
    """Its memory; None: it must be booted."""
    why: str = ""
    """Why there is no memory, if there could be."""


class WarmPool:
    """The warm pool for *size* in *folder*. Constructing a `WarmPool` has no side effects."""

    def __init__(self, folder: Path, size: SandboxSize) -> None:
        self.folder = folder / f"{size.memory_bytes >> 20}-{size.disk_bytes >> 20}"
        self._size = size
        self.snapshots = SnapshotStore(self.folder / "warm", WARM, "microvm")
        self.plain = self.folder / "plain.qcow2"
        """An empty, formatted disk."""
        self.nothing = self.folder / "nothing.qcow2"
        """A disk overlay without changes."""

    def make(self) -> None:
        """Create the two empty disks if missing. Raises `SandboxError` or `OSError` if they cannot be created."""
        if self.plain.is_file() and self.nothing.is_file():
            return
        private_folder(self.folder.parent)
        private_folder(self.folder)
        with self.locked(), tempfile.TemporaryDirectory(dir=self.folder) as name:
            raw, plain, nothing = (Path(name) / each for each in ("raw", "plain", "nothing"))
            with raw.open("xb") as file:
                file.truncate(self._size.disk_bytes)
            format_disk("-E", "lazy_itable_init=1,nodiscard", str(raw))
            run_tool(IMAGES, "convert", "-q", "-f", "raw", "-O", "qcow2", str(raw), str(plain))
            run_tool(IMAGES, "create", "-q", "-f", "qcow2", str(nothing), str(self._size.disk_bytes))
            plain.replace(self.plain)
            nothing.replace(self.nothing)

    def origin(self, made_by: SnapshotMaker, *, is_copy: bool = True) -> WarmOrigin:
        """Return what a machine of *made_by* starts from: with *is_copy* the warm snapshot, if it fits and is whole.

        Raises:
            SandboxError, OSError: if there is nothing at all.
        """
        self.make()
        if not is_copy:
            return WarmOrigin(self.plain, None)
        try:
            snapshot = self.snapshots.require_usable(made_by)
        except SandboxError as error:
            return WarmOrigin(self.plain, None, getattr(error, "why", "") if self.snapshots.current() else "")
        return WarmOrigin(self.snapshots.path(snapshot, DISK), self.snapshots.path(snapshot, MEMORY))

    def store(self, machine: Path, memory: Path, made_by: SnapshotMaker) -> Snapshot:
        """Store a warm machine: *machine* over the plain disk, and *memory*. If it raises, the former one stays."""
        with self.locked(), self.snapshots.draft() as draft:
            whole = draft / DISK
            shutil.copyfile(self.plain, whole)
            run_tool(IMAGES, "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", str(whole), str(machine))
            run_tool(IMAGES, "commit", "-q", "-f", "qcow2", str(machine))
            memory.replace(draft / MEMORY)
            return self.snapshots.confirm(draft, made_by)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[bool]:
        """Yield whether this process may store a machine of this size now; if so, others may not meanwhile."""
        private_folder(self.folder.parent)
        claim = private_folder(private_folder(self.folder) / "claim")
        handle = os.open(claim, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        is_ours = True
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_ours = False
            yield is_ours
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out other processes that change the pool."""
        private_folder(self.folder.parent)
        private_folder(self.folder)
        with lock_folder(self.folder):
            yield
