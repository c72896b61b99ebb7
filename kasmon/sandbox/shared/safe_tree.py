"""Measures, copies and removes folders with untrusted content, without following links.

Links, names of any bytes, folders without permissions and folders thousands deep are all handled. Special files (pipes,
sockets, devices) are not copied.
"""

import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import RefusedError

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_ENTRIES: Final = 200_000
MEASURE_S: Final = 0.5
DEEPEST: Final = 128
"""Maximum nesting that is measured; each level holds an open descriptor."""
_COPIED: Final = frozenset({stat.S_IFDIR, stat.S_IFLNK, stat.S_IFREG})
_TAKEN: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})


class TreeSize(NamedTuple):
    """The content of a folder."""

    bytes: int
    """Disk usage: blocks, not lengths; a file with two names counts once."""
    entries: int
    whole: bool
    """False if the time or the number of entries ran out: there is more than this."""


def measure_tree(*folders: Path, limit_s: float = MEASURE_S, most_entries: int = MOST_ENTRIES) -> TreeSize:
    """Measure *folders* together, within *limit_s*; what cannot be read counts nothing."""
    total = entries = 0
    until = time.monotonic() + limit_s
    seen: set[tuple[int, int]] = set()
    whole = True
    for facts in _stat_all(folders):
        if facts is None:
            whole = False
            continue
        entries += 1
        if facts.st_nlink == 1 or stat.S_ISDIR(facts.st_mode) or (facts.st_dev, facts.st_ino) not in seen:
            total += facts.st_blocks * 512
            if facts.st_nlink > 1:
                seen.add((facts.st_dev, facts.st_ino))
        if entries >= most_entries or (entries % 512 == 0 and time.monotonic() > until):
            return TreeSize(total, entries, whole=False)
    return TreeSize(total, entries, whole)


def _stat_all(folders: tuple[Path, ...]) -> Iterator[os.stat_result | None]:
    """Yield the stat of everything in *folders*; None for a folder too deep. Each is opened relative to its parent."""
    for folder in folders:
        path: list[tuple[int, list[str]]] = []
        try:
            with contextlib.suppress(OSError):
                path.append((os.open(folder, _FOLDER), []))
                yield from _stat_entries(*path[-1])
            while path:
                depth_path, further = path[-1]
                if not further:
                    os.close(path.pop()[0])
                elif len(path) >= DEEPEST:
                    further.clear()
                    yield None
                else:
                    name = further.pop()
                    with contextlib.suppress(OSError):
                        path.append((os.open(name, _FOLDER, dir_fd=depth_path), []))
                        yield from _stat_entries(*path[-1])
        finally:
            for handle, _ in path:
                os.close(handle)


def _stat_entries(handle: int, folders: list[str]) -> Iterator[os.stat_result]:
    """Yield the stat of each entry in the folder *handle*; append the names of folders to *folders*."""
    with os.scandir(handle) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode):
                    folders.append(entry.name)
                yield facts


def copy(
    source: Path, target: Path, owner: tuple[int, int], *, limit_bytes: int, limit_entries: int, is_exact: bool = False
) -> None:
    """Copy the folder *source* to *target*, which must not exist, for *owner* alone; no link is followed.

    If *is_exact*, its entries keep their mode and times.

    Raises:
        RefusedError: if it exceeds the limits; nothing is left then.
        OSError: if it cannot be read or written; nothing is left then.
    """
    left = [limit_bytes, limit_entries]
    target.mkdir(mode=0o700)
    try:
        with _open_folder(source) as source_fd, _open_folder(target) as target_fd:
            _copy_folder(source_fd, target_fd, owner, left, source, is_exact=is_exact)
        os.chown(target, *owner, follow_symlinks=False)
    except BaseException:
        remove_tree(target)
        raise


@contextlib.contextmanager
def _open_folder(path: str | Path, below: int | None = None) -> Iterator[int]:
    handle = os.open(path, _FOLDER, dir_fd=below)
    try:
        yield handle
    finally:
        os.close(handle)


def _copy_folder(
    source_fd: int, target_fd: int, owner: tuple[int, int], left: list[int], source: Path, *, is_exact: bool
) -> None:
    for name in os.listdir(source_fd):
        facts = os.stat(name, dir_fd=source_fd, follow_symlinks=False)
        left[0] -= facts.st_size if stat.S_ISREG(facts.st_mode) else 0
        left[1] -= 1
        if min(left) < 0:
            raise RefusedError(f"{str(source)!r} is too large to be copied.")
        if stat.S_ISDIR(facts.st_mode):
            os.mkdir(name, mode=0o700, dir_fd=target_fd)
            with _open_folder(name, source_fd) as from_, _open_folder(name, target_fd) as to:
                _copy_folder(from_, to, owner, left, source, is_exact=is_exact)
        elif stat.S_ISLNK(facts.st_mode):
            os.symlink(os.readlink(name, dir_fd=source_fd), name, dir_fd=target_fd)
        elif stat.S_ISREG(facts.st_mode):
            _copy_file(name, source_fd, target_fd, facts.st_mode)
        else:
            continue
        os.chown(name, *owner, dir_fd=target_fd, follow_symlinks=False)
        if is_exact:
            if not stat.S_ISLNK(facts.st_mode):
                os.chmod(name, stat.S_IMODE(facts.st_mode) & 0o777, dir_fd=target_fd)
            os.utime(name, ns=(facts.st_atime_ns, facts.st_mtime_ns), dir_fd=target_fd, follow_symlinks=False)


def _copy_file(name: str, source_fd: int, target_fd: int, mode: int) -> None:
    from_ = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source_fd)
    with os.fdopen(from_, "rb") as source:
        if not stat.S_ISREG(os.fstat(from_).st_mode):
            return
        to = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 | (mode & 0o100), dir_fd=target_fd
        )
        with os.fdopen(to, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)


def give(top: Path, owner: tuple[int, int]) -> None:
    """Change the owner of *top* and its content to *owner*; no link is followed, and the kernel clears setuid.

    No process may be changing it.

    Raises:
        OSError: if that fails; part of it may have the new owner then.
    """
    if stat.S_ISDIR(top.lstat().st_mode):
        with _open_folder(top) as folder_fd:
            _give_folder(folder_fd, owner)
    os.chown(top, *owner, follow_symlinks=False)


def _give_folder(folder_fd: int, owner: tuple[int, int]) -> None:
    for name, facts in _entries(folder_fd):
        if stat.S_ISDIR(facts.st_mode):
            with _open_folder(name, folder_fd) as below:
                _give_folder(below, owner)
        os.chown(name, *owner, dir_fd=folder_fd, follow_symlinks=False)


def is_same(copied: Path, source: Path) -> bool:
    """Whether the folder *copied* equals what `copy` would make of *source* now; false if that is unknown."""
    try:
        with _open_folder(source) as source_fd, _open_folder(copied) as target_fd:
            return _same_folder(source_fd, target_fd)
    except (OSError, RecursionError):
        return False


def _same_folder(source_fd: int, target_fd: int) -> bool:
    wanted = {name: facts for name, facts in _entries(source_fd) if _kind(facts) in _COPIED}
    found = dict(_entries(target_fd))
    if wanted.keys() != found.keys():
        return False
    for name, facts in wanted.items():
        if _kind(facts) != _kind(found[name]):
            return False
        if stat.S_ISDIR(facts.st_mode):
            with _open_folder(name, source_fd) as from_, _open_folder(name, target_fd) as to:
                if not _same_folder(from_, to):
                    return False
        elif stat.S_ISLNK(facts.st_mode):
            if os.readlink(name, dir_fd=source_fd) != os.readlink(name, dir_fd=target_fd):
                return False
        elif facts.st_size != found[name].st_size or not _same_file(name, source_fd, target_fd):
            return False
    return True


def _same_file(name: str, source_fd: int, target_fd: int) -> bool:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with (
        os.fdopen(os.open(name, flags, dir_fd=source_fd), "rb") as source,
        os.fdopen(os.open(name, flags, dir_fd=target_fd), "rb") as copied,
    ):
        while piece := source.read(1 << 20):
            if piece != copied.read(1 << 20):
                return False
        return not copied.read(1)


def _entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    for name in os.listdir(folder):
        yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)


def _kind(facts: os.stat_result) -> int:
    return stat.S_IFMT(facts.st_mode)


def remove_tree(top: Path) -> None:
    """Remove the folder *top* with its content. Idempotent. No process may be changing it.

    Nested folders are moved up to *top* before they are emptied, so any depth works.

    Raises:
        OSError: if something cannot be removed.
    """
    try:
        folder_fd = _open_accessible(os.fspath(top), None)
    except FileNotFoundError:
        return
    try:
        count = 0
        while names := os.listdir(folder_fd):  # noqa: PTH208 (of a handle)
            for name in names:
                if not stat.S_ISDIR(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=folder_fd)
                    continue
                count = _empty(name, folder_fd, count)
                os.rmdir(name, dir_fd=folder_fd)
    finally:
        os.close(folder_fd)
    top.rmdir()


def _empty(name: str, top: int, count: int) -> int:
    """Empty the folder *name* in *top*; its folders are moved to *top*, with names numbered from *count*."""
    folder_fd = _open_accessible(name, top)
    try:
        for each in os.listdir(folder_fd):  # noqa: PTH208 (of a handle)
            if stat.S_ISDIR(os.stat(each, dir_fd=folder_fd, follow_symlinks=False).st_mode):
                os.close(_open_accessible(each, folder_fd))  # a folder without write permission cannot be moved
                count = _move_up(each, folder_fd, top, count)
            else:
                os.unlink(each, dir_fd=folder_fd)
    finally:
        os.close(folder_fd)
    return count


def _move_up(name: str, folder_fd: int, top: int, count: int) -> int:
    while True:
        count += 1
        try:
            os.rename(name, f".{count}", src_dir_fd=folder_fd, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            return count


def _open_accessible(name: str, below: int | None) -> int:
    """Open the folder *name*, and give its owner (if that is this user) access."""
    try:
        handle = os.open(name, _FOLDER, dir_fd=below)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=below)
        handle = os.open(name, _FOLDER, dir_fd=below)
    if os.fstat(handle).st_uid == os.geteuid():
        os.fchmod(handle, 0o700)
    return handle
