"""Files of this machine, copied into a sandboxed agent's private home while it runs and removed when it ends.

Code inside owns the home and may have replaced a folder by a link, so no path is walked as a whole. Each folder is
opened relative to its parent, and whatever is in the place of a copy is removed first.

Providers replace the old token, which is invalid from then on: so a renewed one is copied back, or the log-in outside
would be lost. But the file inside may be written by an attacker. So only tokens and times may differ, it must not
expire before the original, and the original must be unchanged since the copy was made.
"""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from kasmon.errors import RefusedError
from kasmon.model.sandbox.policy import CopiedFile, SandboxPolicy
from kasmon.paths import expanded, read_json, write_private

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


def target_path(copied_file: CopiedFile) -> str:
    """Return the path of the copy, relative to the home inside. Raises `RefusedError` if that is not valid there."""
    target = copied_file.target
    if not target:
        source, home = expanded(copied_file.source).absolute(), Path.home()
        if not source.is_relative_to(home):
            raise RefusedError(
                f"{copied_file.source!r} is not in your home folder, so it requires a target.",
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


def read_source(copied_file: CopiedFile) -> bytes | None:
    """Return the file's content; None if there is none. Raises `RefusedError` if it is too large, or no file."""
    path = expanded(copied_file.source)
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RefusedError(f"{copied_file.source!r} is not a file: only files can be copied to a sandbox.")
            data = file.read(FILE_BYTES + 1)
    except IsADirectoryError as error:
        raise RefusedError(f"{copied_file.source!r} is not a file: only files can be copied to a sandbox.") from error
    except OSError:
        return None
    if len(data) > FILE_BYTES:
        why = f"has more than {FILE_BYTES} bytes"
        raise RefusedError(f"{copied_file.source!r} {why}: it cannot be copied to a sandbox.")
    return data


def copy_in(files: Sequence[CopiedFile], home: Path, owner: tuple[int, int]) -> tuple[str, ...]:
    """Put copies of *files* into *home*, for *owner* alone; return the sources that exist, as written in *files*.

    Raises:
        RefusedError: as `target_path` and `read_source`, or where something in *home* is in the way.
    """
    sources = []
    for copied_file in files:
        target, data = target_path(copied_file), read_source(copied_file)
        if data is None:
            continue
        try:
            with _open_folder(home, PurePosixPath(target).parts[:-1], owner) as folder:
                _put(folder, PurePosixPath(target).name, data, owner)
        except OSError as error:
            raise RefusedError(f"{copied_file.source!r} cannot be copied to the sandbox: {error}.") from error
        sources.append(copied_file.source)
    return tuple(sources)


def remove_copies(files: Sequence[CopiedFile], home: Path) -> None:
    """Remove the copies of *files* from *home*; what cannot be reached without following a link stays. Idempotent."""
    for copied_file in files:
        with contextlib.suppress(OSError, RefusedError):
            parts = PurePosixPath(target_path(copied_file)).parts
            with _open_folder(home, parts[:-1], None) as folder:
                os.unlink(parts[-1], dir_fd=folder)


def read_copy(copied_file: CopiedFile, home: Path) -> bytes | None:
    """Return the content of *copied_file*'s copy in *home*; None unless it is a small, regular file and no link."""
    with contextlib.suppress(OSError, RefusedError):
        parts = PurePosixPath(target_path(copied_file)).parts
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


DIGESTS_FILE: Final = "handed.json"
"""In the session's folder: which copies were made, with the digest of each."""
MAY_CHANGE: Final = re.compile(
    r"(access|refresh|id)?_?(token|refresh|access)|expir(y|es)?(_?(at|date|in))?|last_refresh", re.IGNORECASE
)
"""The names of fields that a renewal changes."""
EXPIRY: Final = re.compile(r"expir", re.IGNORECASE)


def record_digests(files: Sequence[CopiedFile], session_folder: Path) -> None:
    """Record the digests of the files that are copied now, so that a later call finds what changed.

    Raises:
        RefusedError: as `read_source`.
        OSError: if the record cannot be written.
    """
    contents = {each.source: read_source(each) for each in files if each.renews}
    digests = {source: _digest(content) for source, content in contents.items() if content is not None}
    write_private(session_folder / DIGESTS_FILE, msgspec.json.encode(digests))


def load_digests(session_folder: Path) -> Mapping[str, str]:
    """Return the digests of the last `record_digests`; clearing the jail's session folder removes them."""
    return read_json(session_folder / DIGESTS_FILE, dict[str, str], {})


def copy_back(files: Sequence[CopiedFile], home: Path, digests: Mapping[str, str]) -> tuple[str, ...]:
    """Copy renewed log-ins in *home* back to their sources; return a sentence for each, copied or refused.

    Args:
        home: where the copies are; no process writes there any more.
        digests: the digests of the copies, as `load_digests` before the session's folder was cleared.
    """
    sentences = []
    for copied_file in files:
        if not copied_file.renews or copied_file.source not in digests:
            continue
        now = read_copy(copied_file, home)
        if now is None or _digest(now) == digests[copied_file.source]:
            continue
        why = _write_back(copied_file, now, digests[copied_file.source])
        outcome = f"It renewed {copied_file.source!r}, which was"
        fix = "Log in again if the original on this machine is rejected."
        sentences.append(f"{outcome} not copied back: {why}. {fix}" if why else f"{outcome} copied back.")
    return tuple(sentences)


def find_fault(before: bytes, after: bytes) -> str:
    """Return why *after* is no renewal of the log-in *before*; empty where it is one. Both are JSON."""
    try:
        old, new = msgspec.json.decode(before), msgspec.json.decode(after)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "it cannot be read"
    if not isinstance(old, dict):
        return "its format is unknown to kasmon"
    return _find_difference(old, new, "")


def _find_difference(old: Any, new: Any, name: str) -> str:
    """Return why *new* may not replace *old*, under *name*; empty where it may."""
    if isinstance(old, dict) and isinstance(new, dict):
        if old.keys() != new.keys():
            return "it has other fields than before"
        return next((why for key in old if (why := _find_difference(old[key], new[key], key))), "")
    if old == new and type(old) is type(new):
        return ""
    if not MAY_CHANGE.fullmatch(name) or type(old) is not type(new) or not isinstance(new, str | int | float):
        return f"a field other than tokens and times changed ({name!r})"
    if EXPIRY.match(name) and new < old:
        return "it expires before the original"
    return "" if new else f"it has no {name!r}"


def _write_back(copied_file: CopiedFile, content: bytes, digest: str) -> str:
    """Write *content* to the source of *copied_file*; return why that was not done, empty where it was."""
    path = Path(os.path.realpath(expanded(copied_file.source)))
    with contextlib.suppress(OSError, RefusedError):
        before = read_source(copied_file)
        if before is None or _digest(before) != digest:
            return "the original has changed meanwhile"
        if why := find_fault(before, content):
            return why
        status = path.stat()
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            return "the original is not yours"
        write_private(path, content)
        return ""
    return "the original is not writable"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
