"""Files of this machine, copied into a sandboxed agent's private home while it runs and removed when it ends.

Code inside owns the home and may have replaced a folder by a link, so no path is walked as a whole. Each folder is
opened relative to its parent, and whatever is in the place of a copy is removed first.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from kasmon.errors import RefusedError
from kasmon.model.sandbox.policy import HandedFile, SandboxPolicy
from kasmon.paths import expanded

FILE_BYTES: Final = 1024 * 1024
ON_DISK: Final = (
    "its secrets (credentials, copies of files, or values of --env) would be in the memory snapshot on disk, where"
    " kasmon stores no secret: it can be paused in RAM only"
)
AT_A_SERVICE: Final = (
    "its secrets (credentials, copies of files, or values of --env) would be in its memory at the service, where"
    " kasmon stores no secret: it ends instead of being paused there"
)
"""Why the memory of such an agent is not stored."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def keeps_memory(policy: SandboxPolicy) -> bool:
    """Whether the agent's memory may be stored: not if it got a credential or another secret."""
    if policy.credentials or policy.secret_variables:
        return False
    return not any(expanded(file.source).exists() for file in policy.files)


def target_path(handed_file: HandedFile) -> str:
    """Return the path of the copy, relative to the home inside.

    Raises:
        RefusedError: if that path is not valid there.
    """
    target = handed_file.target
    if not target:
        source, home = expanded(handed_file.source).absolute(), Path.home()
        if not source.is_relative_to(home):
            raise RefusedError(
                f"{handed_file.source!r} is not in your home folder, so it requires a target.",
                hint="Set its `target`: the path of the copy, relative to the home folder in the sandbox.",
            )
        target = str(source.relative_to(home))
    parts = PurePosixPath(target).parts
    if target.startswith("/") or not parts or ".." in parts or "\0" in target:
        raise RefusedError(
            f"{target!r} is not a path in the home folder of the sandbox.",
            hint="Write it relative to that folder, without `..`.",
        )
    return str(PurePosixPath(target))


def read_source(handed_file: HandedFile) -> bytes | None:
    """Return what the file holds now; None where it does not exist.

    Raises:
        RefusedError: if it is no regular file, or too large.
    """
    path = expanded(handed_file.source)
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RefusedError(f"{handed_file.source!r} is not a file: only files can be copied to a sandbox.")
            data = file.read(FILE_BYTES + 1)
    except IsADirectoryError as error:
        raise RefusedError(f"{handed_file.source!r} is not a file: only files can be copied to a sandbox.") from error
    except OSError:
        return None
    if len(data) > FILE_BYTES:
        why = f"has more than {FILE_BYTES} bytes"
        raise RefusedError(f"{handed_file.source!r} {why}: it cannot be copied to a sandbox.")
    return data


def copy_in(files: Sequence[HandedFile], home: Path, owner: tuple[int, int]) -> tuple[str, ...]:
    """Put copies of *files* into *home*, for *owner* alone; return the sources that exist, as written in *files*.

    Raises:
        RefusedError: as `target_path` and `read_source`, or where something in *home* is in the way.
    """
    sources = []
    for handed_file in files:
        target, data = target_path(handed_file), read_source(handed_file)
        if data is None:
            continue
        try:
            with _open_folder(home, PurePosixPath(target).parts[:-1], owner) as folder:
                _put(folder, PurePosixPath(target).name, data, owner)
        except OSError as error:
            raise RefusedError(f"{handed_file.source!r} cannot be copied to the sandbox: {error}.") from error
        sources.append(handed_file.source)
    return tuple(sources)


def remove_copies(files: Sequence[HandedFile], home: Path) -> None:
    """Remove the copies of *files* from *home*; what cannot be reached without following a link stays. Idempotent."""
    for handed_file in files:
        with contextlib.suppress(OSError, RefusedError):
            parts = PurePosixPath(target_path(handed_file)).parts
            with _open_folder(home, parts[:-1], None) as folder:
                os.unlink(parts[-1], dir_fd=folder)


def read_copy(handed_file: HandedFile, home: Path) -> bytes | None:
    """Return the content of *handed_file*'s copy in *home*; None unless it is a small, regular file and no link."""
    with contextlib.suppress(OSError, RefusedError):
        parts = PurePosixPath(target_path(handed_file)).parts
        with _open_folder(home, parts[:-1], None) as folder:
            file = os.open(parts[-1], _OLD, dir_fd=folder)
        with os.fdopen(file, "rb") as copy:
            if stat.S_ISREG(os.fstat(file).st_mode) and len(data := copy.read(FILE_BYTES + 1)) <= FILE_BYTES:
                return data
    return None


@contextlib.contextmanager
def _open_folder(home: Path, parts: Sequence[str], owner: tuple[int, int] | None) -> Iterator[int]:
    """Yield a descriptor of the folder *parts* below *home*; with an *owner*, absent folders are created for it."""
    handle = os.open(home, _FOLDER)
    try:
        for part in parts:
            if owner is not None:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, mode=0o700, dir_fd=handle)
                    os.chown(part, *owner, dir_fd=handle, follow_symlinks=False)
            subfolder = os.open(part, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = subfolder
        yield handle
    finally:
        os.close(handle)


def _put(folder: int, name: str, data: bytes, owner: tuple[int, int]) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    file = os.open(name, _NEW, 0o600, dir_fd=folder)
    with os.fdopen(file, "wb") as copy:
        copy.write(data)
        os.fchown(file, *owner)
