"""Scans a folder that an attacker may be writing to: follows no link, opens nothing but files and folders.

Each path component is opened relative to the descriptor of its parent folder, so replacing a component by a link has no
effect. Nothing in this module writes.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from kasmon.errors import SandboxError
from kasmon.sandbox.checkpoint.manifest import FILE, FOLDER, LINK, ManifestEntry

MAX_DEPTH: Final = 200
"""Nesting of folders; deeper content is left out and reported as such."""
NAMED_MOST: Final = 20
"""How many of the skipped files are named; the rest is counted."""
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class ScanBounds(NamedTuple):
    """Limits of a scan; a folder beyond them is refused as a whole."""

    files: int = 250_000
    bytes: int = 10 * 1024 * 1024 * 1024
    seconds: float = 120.0


class SkippedFiles(NamedTuple):
    path: str
    why: str


@contextmanager
def opened(folder: str) -> Iterator[int]:
    """Yield a descriptor of *folder*. Raises `SandboxError` if it is no folder, or a link."""
    try:
        handle = os.open(folder, _FOLDER_FLAGS)
    except OSError as error:
        raise SandboxError(f"the folder {folder!r} cannot be read", error.strerror or str(error)) from error
    try:
        yield handle
    finally:
        os.close(handle)


def scan(top: int, bounds: ScanBounds) -> "FolderScan":
    """Return all entries of the folder open at *top*, unread. Raises `SandboxError` for more than *bounds* allow."""
    found = FolderScan(bounds, os.fstat(top).st_dev)
    found.visit(top, "", 0)
    return found


@contextmanager
def beneath(top: int, path: str) -> Iterator[int]:
    """Yield a descriptor of the folder *path* beneath *top*, reached without a link; an empty *path* is *top* itself.

    Raises:
        OSError: if there is none.
    """
    handle = os.dup(top)
    try:
        for part in path.split("/") if path else ():
            lower = os.open(part, _FOLDER_FLAGS, dir_fd=handle)
            os.close(handle)
            handle = lower
        yield handle
    finally:
        os.close(handle)


@contextmanager
def opened_file(top: int, path: str) -> Iterator[int]:
    """Yield a descriptor to read the regular file *path* beneath *top*. Raises `OSError` if there is none."""
    folder, _, name = path.rpartition("/")
    with beneath(top, folder) as above:
        handle = os.open(name, _FILE_FLAGS, dir_fd=above)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it is no longer a file")
        yield handle
    finally:
        os.close(handle)


def target(top: int, path: str) -> bytes:
    """Return the target of the link *path* beneath *top*, as stored. Raises `OSError` if it is no link."""
    folder, _, name = path.rpartition("/")
    with beneath(top, folder) as above:
        return os.fsencode(os.readlink(name, dir_fd=above))


def entry(status: os.stat_result) -> ManifestEntry | None:
    """Return the manifest entry for *status*; None for what cannot be stored: a pipe, a socket, a device."""
    kind = {stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK}.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return None
    times = (0, 0, 0) if kind == FOLDER else (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return ManifestEntry(kind, stat.S_IMODE(status.st_mode), *times, status.st_ino)


def describe_skipped(left: list[SkippedFiles]) -> tuple[str, ...]:
    """Return *left* as text, the first `NAMED_MOST` of them."""
    named = tuple(f"{each.path} ({each.why})" for each in left[:NAMED_MOST])
    return (*named, f"{len(left) - NAMED_MOST} more") if len(left) > NAMED_MOST else named


class FolderScan:
    """The entries of one folder."""

    def __init__(self, bounds: ScanBounds, device: int) -> None:
        self.bounds, self.device = bounds, device
        self.files: dict[str, ManifestEntry] = {}
        self.left: list[SkippedFiles] = []
        """What is not stored."""
        self.bytes = 0
        self.until = time.monotonic() + bounds.seconds

    def visit(self, handle: int, before: str, depth: int) -> None:
        folders = []
        with os.scandir(handle) as names:
            for name in names:
                path = before + name.name
                try:
                    status = name.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # gone again
                kept = entry(status)
                if kept is None:
                    self.left.append(SkippedFiles(path, "not a regular file: a pipe, a socket or a device"))
                elif status.st_dev != self.device:
                    self.left.append(SkippedFiles(path, "on another file system"))
                else:
                    self.note(path, kept)
                    if kept.kind == FOLDER:
                        folders.append(name.name)
        for folder in folders:
            if depth >= MAX_DEPTH:
                self.left.append(SkippedFiles(before + folder, f"what is in it: more than {MAX_DEPTH} folders deep"))
                continue
            try:
                lower = os.open(folder, _FOLDER_FLAGS, dir_fd=handle)
            except OSError as error:
                self.left.append(SkippedFiles(before + folder, f"what is in it: {error.strerror}"))
                continue
            try:
                self.visit(lower, f"{before}{folder}/", depth + 1)
            finally:
                os.close(lower)

    def note(self, path: str, kept: ManifestEntry) -> None:
        self.files[path] = kept
        self.bytes += kept.size if kept.kind == FILE else 0
        over = ""
        if len(self.files) > self.bounds.files:
            over = f"more than {self.bounds.files} files"
        elif self.bytes > self.bounds.bytes:
            over = f"more than {self.bounds.bytes // (1024 * 1024)} MiB, with {path!r}"
        elif time.monotonic() > self.until:
            over = f"more than can be scanned in {self.bounds.seconds:g} s"
        if over:
            raise SandboxError(
                "cannot create a checkpoint", f"the workspace contains {over}", "Remove files that are not needed."
            )
