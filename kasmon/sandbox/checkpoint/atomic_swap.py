"""Replaces the content of a folder by that of another: completely or not at all, even if the process dies midway.

The folder itself stays, so a bind mount of it in a sandbox shows the new content. The old content is first moved to a
third folder. A note file records the progress. The next process continues from it, forwards only: the new content was
complete before the first old entry was moved.
"""

import os
from pathlib import Path

import msgspec

from kasmon.errors import SandboxError
from kasmon.paths import read_json, write_private
from kasmon.sandbox.checkpoint.scan import opened


class FolderSwap(msgspec.Struct, frozen=True, kw_only=True):
    """One swap: the content of *new* into *folder*, its old content into *old*; all on one file system."""

    folder: str
    new: str
    old: str
    emptied: bool = False
    """The old content is in *old* completely; what has been moved from *new* to *folder* stays there."""


def exchange(swap: FolderSwap, note: Path) -> None:
    """Do *swap*; the file *note* exists until it is done.

    Raises:
        SandboxError: if it fails; *folder* is then unchanged, or the error says where its content is.
        OSError: if the note cannot be written; nothing has changed then.
    """
    write_private(note, msgspec.json.encode(swap))
    _continue(swap, note)


def _continue(swap: FolderSwap, note: Path) -> None:
    """Do the rest of *swap*, whose progress is in *note*."""
    if not swap.emptied:
        _empty_folder(swap, note)
    try:
        _move_entries(swap.new, swap.folder)
    except OSError as error:
        raise SandboxError(
            f"{swap.folder!r} could not be filled",
            error.strerror or str(error),
            f"Its old content is in {swap.old!r}, the rest of the checkpoint in {swap.new!r}; kasmon will try again.",
        ) from error
    note.unlink()


def _empty_folder(swap: FolderSwap, note: Path) -> None:
    """Move the folder's content into *old*, noted in *note*. Raises `SandboxError` with the folder unchanged."""
    try:
        _move_entries(swap.folder, swap.old)
        write_private(note, msgspec.json.encode(msgspec.structs.replace(swap, emptied=True)))
    except OSError as error:
        try:
            _move_entries(swap.old, swap.folder)
        except OSError as undo_error:
            raise SandboxError(
                f"{swap.folder!r} could not be restored", str(undo_error), f"Some of it is in {swap.old!r}."
            ) from error
        note.unlink()
        raise SandboxError(
            f"{swap.folder!r} could not be emptied", error.strerror or str(error), "It is unchanged."
        ) from error


def load_unfinished(note: Path) -> FolderSwap | None:
    return read_json(note, FolderSwap, None)


def resume(swap: FolderSwap, note: Path) -> None:
    """Continue *swap*, which another process began. Raises `SandboxError` if it fails."""
    if Path(swap.new).is_dir():
        _continue(swap, note)
        return
    if not swap.emptied and Path(swap.old).is_dir():  # the new content was removed
        _move_entries(swap.old, swap.folder)
    note.unlink()


def _move_entries(source: str, target: str) -> None:
    """Move all entries of *source* into *target*; an entry whose name is taken gets a `~` appended."""
    with opened(source) as source_fd, opened(target) as target_fd:
        taken = set(os.listdir(target_fd))  # noqa: PTH208 (by its handle)
        for name in os.listdir(source_fd):  # noqa: PTH208
            free = name
            while free in taken:
                free += "~"
            os.rename(name, free, src_dir_fd=source_fd, dst_dir_fd=target_fd)
