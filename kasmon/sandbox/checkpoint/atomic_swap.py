"""Puts what is in one folder in the place of what is in another: all of it or nothing, whenever the process dies.

The folder itself stays: whatever sees it, a sandbox's mount among that, sees the new things. What was in it goes into a
third folder first. A note says how far it is; whoever comes next goes on from there, and forwards only: the new things
were all there before the first old one was touched.
"""

import contextlib
import os
import shutil
from pathlib import Path

import msgspec

from kasmon.errors import SandboxError
from kasmon.paths import write_private
from kasmon.sandbox.checkpoint.scan import opened
from kasmon.sandbox.checkpoint.unpack import settle_folder


class FolderSwap(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange: *new* into *folder*, what was there into *old*; all on one file system."""

    folder: str
    new: str
    old: str
    emptied: bool = False
    """What was in *folder* is in *old*, and what of *new* is in *folder* stays there."""


def exchange(swap: FolderSwap, note: Path) -> None:
    """Do *swap*; *note* is there while it is not done.

    Raises:
        SandboxError: if it cannot be done; *folder* is then as it was, or the error says where what was in it is.
        OSError: if it cannot be noted; nothing has changed then.
    """
    _written(note, swap)
    _go_on(swap, note)


def _go_on(swap: FolderSwap, note: Path) -> None:
    """Do what is left of *swap*, of which *note* tells how far it is."""
    if not swap.emptied:
        _emptied(swap, note)
    try:
        _moved(swap.new, swap.folder)
    except OSError as error:
        raise SandboxError(
            f"{swap.folder!r} could not be filled",
            error.strerror or str(error),
            f"Its old content is in {swap.old!r}, the rest of the checkpoint in {swap.new!r}; kasmon will try again.",
        ) from error
    note.unlink()


def _emptied(swap: FolderSwap, note: Path) -> None:
    """Move what is in its folder into *old*, and note that.

    Raises:
        SandboxError: if it cannot be done; the folder is then as it was.
    """
    try:
        _moved(swap.folder, swap.old)
        _written(note, msgspec.structs.replace(swap, emptied=True))
    except OSError as error:
        try:
            _moved(swap.old, swap.folder)
        except OSError as worse:
            raise SandboxError(
                f"{swap.folder!r} could not be restored", str(worse), f"Some of it is in {swap.old!r}."
            ) from error
        note.unlink()
        raise SandboxError(
            f"{swap.folder!r} could not be emptied", error.strerror or str(error), "It is unchanged."
        ) from error


def unfinished(note: Path) -> FolderSwap | None:
    """The exchange that *note* tells of."""
    try:
        return msgspec.json.decode(note.read_bytes(), type=FolderSwap)
    except (OSError, msgspec.MsgspecError):
        return None


def resumed(swap: FolderSwap, note: Path) -> None:
    """Go on with *swap*, which another process began.

    Raises:
        SandboxError: if it cannot be done.
    """
    if Path(swap.new).is_dir():
        _go_on(swap, note)
        return
    if not swap.emptied and Path(swap.old).is_dir():  # somebody took the new things away
        _moved(swap.old, swap.folder)
    note.unlink()


def removed(folder: str) -> None:
    """Remove *folder* with all that is in it, folders that are closed to their owner among it."""
    with contextlib.suppress(SandboxError), opened(folder) as top:
        _open_up(top)
    shutil.rmtree(folder, ignore_errors=True)


def _open_up(handle: int) -> None:
    """Let their owner remove what is in the folder open at *handle*."""
    settle_folder(handle, 0o700, None)
    with os.scandir(handle) as names:
        folders = [name.name for name in names if name.is_dir(follow_symlinks=False)]
    for name in folders:
        with contextlib.suppress(OSError):
            lower = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            try:
                _open_up(lower)
            finally:
                os.close(lower)


def _moved(source: str, target: str) -> None:
    """Move all that is in *source* into *target*; what has such a name there already is moved beside it."""
    with opened(source) as here, opened(target) as there:
        taken = set(os.listdir(there))  # noqa: PTH208 (by its handle)
        for name in os.listdir(here):  # noqa: PTH208
            free = name
            while free in taken:
                free += "~"
            os.rename(name, free, src_dir_fd=here, dst_dir_fd=there)


def _written(note: Path, swap: FolderSwap) -> None:
    write_private(note, msgspec.json.encode(swap))
