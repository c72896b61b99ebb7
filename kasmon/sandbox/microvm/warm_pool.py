"""What machines of one size are made from: an empty disk, and a machine that is started and warm, put away as it is.

A new machine is a copy of that one, over the same disk, which nobody writes to. Where there is none, or one of another
version, a new machine is started from the empty disk, which takes as long as a start does.
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
from kasmon.sandbox.microvm import debian_packages
from kasmon.sandbox.microvm.qemu_program import IMAGES, tool
from kasmon.sandbox.shared.snapshot_store import SnapshotStore

WARM: Final = SessionId("golden")
"""Whose the warm machine is: nobody's."""
MEMORY, DISK = "memory", "disk.qcow2"


class WarmOrigin(NamedTuple):
    """What a new machine begins with."""

    base: Path
    """Its disk, as it is when it begins."""
    memory: Path | None
    """Its memory; None: it has to be started."""
    why: str = ""
    """Why there is no memory, where there could be one."""


class WarmPool:
    """What machines of *size* are made from, in *folder*. Making a `WarmPool` touches nothing."""

    def __init__(self, folder: Path, size: SandboxSize) -> None:
        self.folder = folder / f"{size.memory_bytes >> 20}-{size.disk_bytes >> 20}"
        self._size = size
        self.memories = SnapshotStore(self.folder / "warm", WARM, "microvm")

    @property
    def plain(self) -> Path:
        """A disk with nothing on it, formatted."""
        return self.folder / "plain.qcow2"

    @property
    def nothing(self) -> Path:
        """What a disk is that did not change yet."""
        return self.folder / "nothing.qcow2"

    def make(self) -> None:
        """Have the two empty disks.

        Raises:
            SandboxError: if they cannot be made.
            OSError: likewise.
        """
        if self.plain.is_file() and self.nothing.is_file():
            return
        private_folder(self.folder.parent)
        private_folder(self.folder)
        with self.locked(), tempfile.TemporaryDirectory(dir=self.folder) as name:
            raw, plain, nothing = (Path(name) / each for each in ("raw", "plain", "nothing"))
            with raw.open("xb") as file:
                file.truncate(self._size.disk_bytes)
            format_ = ["-q", "-t", "ext4", "-O", "^has_journal,^resize_inode", "-m", "0"]
            tool(debian_packages.found("mke2fs") or "mke2fs", *format_, "-E", "lazy_itable_init=1,nodiscard", str(raw))
            tool(IMAGES, "convert", "-q", "-f", "raw", "-O", "qcow2", str(raw), str(plain))
            tool(IMAGES, "create", "-q", "-f", "qcow2", str(nothing), str(self._size.disk_bytes))
            plain.replace(self.plain)
            nothing.replace(self.nothing)

    def origin(self, made_by: SnapshotMaker, *, is_copy: bool = True) -> WarmOrigin:
        """What a machine of *made_by* begins with: the warm one, if it *is_copy*, and that one fits and is whole.

        Raises:
            SandboxError, OSError: if there is nothing at all.
        """
        self.make()
        if not is_copy:
            return WarmOrigin(self.plain, None)
        try:
            snapshot = self.memories.fit(made_by)
        except SandboxError as error:
            return WarmOrigin(self.plain, None, getattr(error, "why", "") if self.memories.current() else "")
        return WarmOrigin(self.memories.path(snapshot, DISK), self.memories.path(snapshot, MEMORY))

    def put_away(self, machine: Path, memory: Path, made_by: SnapshotMaker) -> Snapshot:
        """Keep the warm machine whose disk over the plain one is *machine*, and whose memory is *memory*.

        Raises:
            SandboxError: if that cannot be; the one before counts on.
        """
        with self.locked(), self.memories.draft() as draft:
            whole = draft.folder / DISK
            shutil.copyfile(self.plain, whole)
            tool(IMAGES, "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", str(whole), str(machine))
            tool(IMAGES, "commit", "-q", "-f", "qcow2", str(machine))
            memory.replace(draft.folder / MEMORY)
            return draft.confirm(made_by)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[bool]:
        """Whether nobody else puts a machine of this size away just now; nobody does meanwhile then."""
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
        """Nobody else changes it meanwhile."""
        private_folder(self.folder.parent)
        private_folder(self.folder)
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
