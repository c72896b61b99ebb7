"""Looks at a folder that somebody hostile may be writing to: follows no link, opens nothing but files and folders.

Every step goes through the handle of the folder above it, so that a path that is swapped for a link meanwhile leads
nowhere. Nothing in here writes.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from kasmon.errors import SandboxError
from kasmon.sandbox.checkpoint.manifest import FILE, FOLDER, LINK, ManifestEntry

DEEPEST: Final = 200
"""Folders within folders; what lies deeper is left out, and said to be."""
TOLD: Final = 20
"""So many of what was left out are named; the rest is counted."""
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class ScanBounds(NamedTuple):
    """How much of a folder is looked at; beyond that it is refused as a whole."""

    files: int = 250_000
    bytes: int = 10 * 1024 * 1024 * 1024
    seconds: float = 120.0


class SkippedFiles(NamedTuple):
    """What is not kept."""

    path: str
    why: str


class FolderScan(NamedTuple):
    """A folder as it was seen."""

    files: dict[str, ManifestEntry]
    left: list[SkippedFiles]


@contextmanager
def opened(folder: str) -> Iterator[int]:
    """A handle of *folder*, which is no link.

    Raises:
        SandboxError: if it is none, or not there.
    """
    try:
        handle = os.open(folder, _FOLDER_FLAGS)
    except OSError as error:
        raise SandboxError(f"the folder {folder!r} cannot be read", error.strerror or str(error)) from error
    try:
        yield handle
    finally:
        os.close(handle)


def scan(top: int, bounds: ScanBounds) -> FolderScan:
    """All that is in the folder open at *top*; contents are not read yet.

    Raises:
        SandboxError: if there is more than *bounds* allow.
    """
    walk = _Walk(bounds, os.fstat(top).st_dev)
    walk.look(top, "", 0)
    return FolderScan(walk.files, walk.left)


@contextmanager
def beneath(top: int, path: str) -> Iterator[int]:
    """A handle of the folder *path* beneath *top*, reached without a link; an empty *path* is *top* itself.

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
    """A handle of the file *path* beneath *top*, for reading; it is a plain file.

    Raises:
        OSError: if there is none.
    """
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
    """Where the link *path* beneath *top* leads, as it is written.

    Raises:
        OSError: if it is none.
    """
    folder, _, name = path.rpartition("/")
    with beneath(top, folder) as above:
        return os.fsencode(os.readlink(name, dir_fd=above))


def entry(seen: os.stat_result) -> ManifestEntry | None:
    """What was *seen*; None for what cannot be kept: a pipe, a socket, a device."""
    kind = {stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK}.get(stat.S_IFMT(seen.st_mode))
    if kind is None:
        return None
    times = (0, 0, 0) if kind == FOLDER else (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    return ManifestEntry(kind, stat.S_IMODE(seen.st_mode), *times, seen.st_ino)


def told(left: list[SkippedFiles]) -> tuple[str, ...]:
    """*left* in words, the first `TOLD` of them."""
    named = tuple(f"{each.path} ({each.why})" for each in left[:TOLD])
    return (*named, f"{len(left) - TOLD} more") if len(left) > TOLD else named


class _Walk:
    def __init__(self, bounds: ScanBounds, device: int) -> None:
        self.bounds, self.device = bounds, device
        self.files: dict[str, ManifestEntry] = {}
        self.left: list[SkippedFiles] = []
        self.bytes = 0
        self.until = time.monotonic() + bounds.seconds

    def look(self, handle: int, before: str, depth: int) -> None:
        folders = []
        with os.scandir(handle) as names:
            for name in names:
                path = before + name.name
                try:
                    seen = name.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # gone again
                kept = entry(seen)
                if kept is None:
                    self.left.append(SkippedFiles(path, "not a regular file: a pipe, a socket or a device"))
                elif seen.st_dev != self.device:
                    self.left.append(SkippedFiles(path, "on another file system"))
                else:
                    self.note(path, kept)
                    if kept.kind == FOLDER:
                        folders.append(name.name)
        for folder in folders:
            if depth >= DEEPEST:
                self.left.append(SkippedFiles(before + folder, f"what is in it: more than {DEEPEST} folders deep"))
                continue
            try:
                lower = os.open(folder, _FOLDER_FLAGS, dir_fd=handle)
            except OSError as error:
                self.left.append(SkippedFiles(before + folder, f"what is in it: {error.strerror}"))
                continue
            try:
                self.look(lower, f"{before}{folder}/", depth + 1)
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
