"""Replaces one file of a worktree whose content is as expected, and follows no link on the way to it."""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LINK_MODE: Final = 0o120000
SHA1_LENGTH: Final = 40


class ContentChange(NamedTuple):
    name: str
    """Relative to the worktree's top."""
    was: str
    """The object id of its current content; empty if there is to be no file yet."""
    blob: str
    """The object id of its new content; empty if it is to be deleted."""
    mode: int
    """Its new mode as git writes it: 0o100644, 0o100755, or 0o120000 for a link."""


def put_file(top: Path, change: ContentChange, content: bytes) -> None:
    """Give the file of *change* in the worktree at *top* the *content*, or delete it; also folders that become empty.

    Raises `OSError` if its current content is not the one that *change* expects, or the system refuses.
    """
    *folders, name = change.name.split("/")
    with _open_folder(top, folders, create=bool(change.blob)) as folder:
        if _object_id(folder, name, len(change.was or change.blob)) != change.was:
            raise OSError(errno.EBUSY, "it changed in the meantime")
        if change.blob:
            _replace(folder, name, content, change.mode)
        else:
            os.unlink(name, dir_fd=folder)
    if not change.blob:
        _remove_empty(top, folders)


@contextmanager
def _open_folder(top: Path, folders: list[str], *, create: bool) -> Iterator[int]:
    """Open the folder below *top*; no part of the way may be a link."""
    handle = os.open(top, FOLDER)
    try:
        for name in folders:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
            below = os.open(name, FOLDER, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _object_id(folder: int, name: str, length: int) -> str:
    """Return the object id that git gives the file's content, as *length* digits; empty if there is no file."""
    try:
        facts = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return ""
    if stat.S_ISLNK(facts.st_mode):
        content = os.fsencode(os.readlink(name, dir_fd=folder))
    elif stat.S_ISREG(facts.st_mode):
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(handle, "rb") as file:
            content = file.read()
    else:
        raise OSError(errno.EBUSY, "it is no longer a file")
    digest = hashlib.sha1 if length == SHA1_LENGTH else hashlib.sha256
    return digest(b"blob %d\0" % len(content) + content).hexdigest()


def _replace(folder: int, name: str, content: bytes, mode: int) -> None:
    """Write *content* beside the file *name*, then rename it: a reader sees the old file or the new one."""
    beside = f".{name[:200]}.{token_hex(4)}.kasmon"
    try:
        if mode == LINK_MODE:
            os.symlink(content, os.fsencode(beside), dir_fd=folder)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(beside, flags, 0o777 if mode & 0o100 else 0o666, dir_fd=folder)
            with os.fdopen(handle, "wb") as file:
                if (bits := _permissions(folder, name)) is not None:
                    os.fchmod(handle, bits | (bits & 0o444) >> 2 if mode & 0o100 else bits & ~0o111)
                file.write(content)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise


def _permissions(folder: int, name: str) -> int | None:
    with contextlib.suppress(OSError):
        facts = os.lstat(name, dir_fd=folder)
        return stat.S_IMODE(facts.st_mode) if stat.S_ISREG(facts.st_mode) else None
    return None


def _remove_empty(top: Path, folders: list[str]) -> None:
    with contextlib.suppress(OSError):
        for count in range(len(folders), 0, -1):
            with _open_folder(top, folders[: count - 1], create=False) as above:
                os.rmdir(folders[count - 1], dir_fd=above)
