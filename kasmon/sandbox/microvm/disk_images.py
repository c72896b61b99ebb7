"""Read-only disks with copies of programs for machines, made once for each version of their content.

folder/ID.ext4         shared by machines; each machine has a hard link to it, so that none loses it
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.paths import private_folder, write_private
from kasmon.sandbox.microvm.image import create_disk
from kasmon.sandbox.microvm.program_disks import MOST_BYTES, MOST_ENTRIES, list_tree, path_on_disk, place
from kasmon.sandbox.microvm.qemu import PROGRAMS_BYTES
from kasmon.sandbox.shared.safe_tree import copy

TOLD: Final = "places.json"
"""On the disk: the path of each part inside, if it differs from that on the disk."""
UNUSED_S: Final = 30 * 24 * 3600.0
"""A disk unused for so long is removed when the next one is made, unless a machine has it."""


class ProgramDisks:
    """The program disks in *folder*. Constructing this has no side effects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, programs: Sequence[str]) -> Path:
        """Return the disk with copies of *programs* as they are now; it is made if missing, in up to a minute.

        Raises:
            SandboxError, RefusedError, OSError: if it cannot be made.
        """
        for folder in (self.folder.parent, self.folder):
            if not folder.exists():
                private_folder(folder)
        disk = self.folder / f"{compute_id(programs)}.ext4"
        with self._locked():
            if not disk.is_file():
                self._make(programs, disk)
            os.utime(disk)
        return disk

    def _make(self, programs: Sequence[str], disk: Path) -> None:
        for path in self.folder.iterdir():
            if path.suffix != ".ext4" or (path.stat().st_nlink == 1 and path.stat().st_mtime < time.time() - UNUSED_S):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            root, fresh = private_folder(Path(name) / "root"), Path(name) / "disk"
            for number, part in enumerate(programs):
                private_folder(root / str(number))
                _copy_part(Path(part), root / path_on_disk(part, number))
            told = {path_on_disk(part, number): place(part, number) for number, part in enumerate(programs)}
            write_private(root / TOLD, msgspec.json.encode(told))
            for path in [root, *root.rglob("*")]:  # its maker owns the files; they are read-only
                if not path.is_symlink():
                    path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o111 else 0o444)
            create_disk(root, fresh)
            os.truncate(fresh, PROGRAMS_BYTES)
            fresh.replace(disk)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock out other processes that make a disk."""
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def compute_id(programs: Sequence[str]) -> str:
    """Return an id of *programs* in their present version: of paths, sizes and times, without reading the files.

    Raises:
        OSError: if they cannot be read.
    """
    digest = hashlib.sha256(b"2")
    for part in programs:
        for path, facts in list_tree(Path(part)):
            seen = (
                (path, facts.st_mode, facts.st_size, facts.st_mtime_ns) if not stat.S_ISDIR(facts.st_mode) else (path,)
            )
            digest.update(repr(seen).encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()[:24]


def _copy_part(source: Path, target: Path) -> None:
    if source.is_dir():
        owner = (os.geteuid(), os.getegid())
        copy(source, target, owner, limit_bytes=MOST_BYTES, limit_entries=MOST_ENTRIES, is_exact=True)
    else:
        shutil.copy2(source, target)
