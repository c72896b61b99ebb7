"""The receiving end of a mirrored folder: applies the other side's changes to it, and to nothing else.

The sender is not trusted: no name leads out of the folder, no link is followed, and sizes are limited. If both sides
changed a path since the last sync, no version is lost: the outside version keeps its name, and the machine's version is
put beside it.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable

from kasmon.sandbox.microvm.link.folder_changes import NEW, FolderChanges

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
BESIDE = ".inside"
"""Suffix of the machine's version beside the outside one; numbered if taken."""
MOST_BESIDE = 100


class RefusedNameError(OSError):
    """A name that leads out of the folder."""


class FolderMirror:
    """One mirrored folder, open as *handle*; at most *most_bytes* are accepted per file."""

    def __init__(
        self, tree: FolderChanges, handle: int, most_bytes: int, *, owner: int = -1, is_outside: bool = True
    ) -> None:
        """
        Args:
            tree: the changes in the same folder, for the other side.
            handle: the folder, open.
            most_bytes: the maximum size of one file.
            owner: the owner of written files; -1 is the current user.
            is_outside: in a conflict, whether the version here keeps its name, not the received one.
        """
        self.tree, self.name, self._handle, self._most = tree, tree.name, handle, most_bytes
        self._owner, self._is_outside = owner, is_outside
        self._writing: tuple[int, int, str, int, int, str] | None = None
        self._left = most_bytes
        self._conflicts: list[str] = []

    def apply_record(self, record: dict[str, object]) -> None:
        """Apply one record of the other side. Raises `OSError` if that fails, or is forbidden."""
        self._drop()
        what, path = record["tell"], str(record["path"]).encode("latin-1")
        parts = path.split(b"/")
        if not path or any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
            raise RefusedNameError(1, f"{path!r} is not a path in the folder")
        folder, name, whole = self._folder(parts[:-1]), os.fsdecode(parts[-1]), os.fsdecode(path)
        try:
            name, whole = self._resolve_conflict(folder, name, whole, str(what))
            if what == "gone" and name:
                self._remove(folder, name, is_requested=True)
            elif what == "folder":
                self._make_room(folder, name, stat.S_ISDIR)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, mode=0o700, dir_fd=folder)
                self._set(folder, name, 0o700 | (int(str(record["mode"])) & 0o777))
            elif what == "link":
                self._remove(folder, name)
                os.symlink(str(record["target"]).encode("latin-1"), os.fsencode(name), dir_fd=folder)
                if self._owner >= 0:
                    os.chown(name, self._owner, self._owner, dir_fd=folder, follow_symlinks=False)
            elif what == "file":
                self._make_room(folder, name, stat.S_ISREG)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(NEW, dir_fd=folder)
                file = os.open(NEW, flags, 0o600, dir_fd=folder)
                mode, at_ns = int(str(record["mode"])) & 0o777, int(str(record["at_ns"]))
                self._writing = (os.dup(folder), file, name, mode, at_ns, whole)
                return
            if what == "gone":
                self.tree.record_removed(os.fsdecode(path))
            elif whole:
                self.tree.record_received(whole)
        finally:
            os.close(folder)

    def append(self, content: bytes) -> None:
        """Append bytes to the file that is being received."""
        self._left -= len(content)
        if self._left < 0:
            raise OSError(28, "more data was sent than the folder may contain")
        while content and self._writing:
            content = content[os.write(self._writing[1], content) :]

    def complete(self) -> None:
        """Complete the file that is being received."""
        if self._writing:
            folder, file, name, mode, at_ns, whole = self._writing
            if self._owner >= 0:
                os.fchown(file, self._owner, self._owner)
            os.fchmod(file, mode)
            os.utime(file, ns=(at_ns, at_ns))
            os.rename(NEW, name, src_dir_fd=folder, dst_dir_fd=folder)
            self._close()
            if whole:
                self.tree.record_received(whole)
        self._left = self._most

    def pop_conflicts(self) -> list[str]:
        """Return and clear the conflicts since the last call, each as one sentence."""
        apart, self._conflicts = self._conflicts, []
        return apart

    def _resolve_conflict(self, folder: int, name: str, path: str, what: str) -> tuple[str, str]:
        """Return the name to write *path* to, and its path if both sides then agree on it (else "").

        In a conflict one version is put beside the other; an empty name means no removal.
        """
        if not self.tree.is_ours(path) or (what == "folder" and _is_folder(folder, name)):
            return name, path
        if what == "gone":
            self._conflicts.append(f"{path!r} was changed on one side and removed on the other: it was restored.")
            return "", ""
        beside = _find_free_name(folder, name)
        self._conflicts.append(
            f"{path!r} was changed in the sandbox and on this machine: this machine's version keeps the name, the"
            f" sandbox's version is {beside!r}."
        )
        if what == "folder" and self._is_outside:
            beside = _find_free_name(folder, name, ".outside")
            self._conflicts[-1] = f"{path!r} is a folder in the sandbox: this machine's file is now {beside!r}."
        if self._is_outside and what != "folder":
            return beside, ""
        os.rename(name, beside, src_dir_fd=folder, dst_dir_fd=folder)
        return name, path

    def _set(self, folder: int, name: str, mode: int) -> None:
        handle = os.open(name, FOLDER, dir_fd=folder)
        try:
            if self._owner >= 0:
                os.fchown(handle, self._owner, self._owner)
            os.fchmod(handle, mode)
        finally:
            os.close(handle)

    def _folder(self, parts: list[bytes]) -> int:
        handle = os.dup(self._handle)
        for part in parts:
            try:
                below = os.open(part, FOLDER, dir_fd=handle)
            finally:
                os.close(handle)
            handle = below
        return handle

    def _make_room(self, folder: int, name: str, is_right: Callable[[int], bool]) -> None:
        """Remove an existing entry of another kind."""
        with contextlib.suppress(FileNotFoundError):
            if not is_right(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                self._remove(folder, name)

    def _remove(self, folder: int, name: str, *, is_requested: bool = False) -> None:
        """Remove an entry; a folder for which *is_requested* stays if it is not empty: files added here are kept."""
        with contextlib.suppress(FileNotFoundError):
            try:
                os.unlink(name, dir_fd=folder)
            except IsADirectoryError:
                try:
                    os.rmdir(name, dir_fd=folder)
                except OSError as error:
                    if not is_requested or error.errno != errno.ENOTEMPTY:
                        raise

    def _drop(self) -> None:
        if self._writing:
            with contextlib.suppress(OSError):
                os.unlink(NEW, dir_fd=self._writing[0])
            self._close()

    def _close(self) -> None:
        if self._writing:
            os.close(self._writing[0])
            os.close(self._writing[1])
            self._writing = None


class MirrorReceiver:
    """Applies the other side's records to *mirrors*, by name; the rest of a file is skipped once it fails."""

    def __init__(self, mirrors: dict[str, FolderMirror]) -> None:
        self.mirrors = mirrors
        self._current: FolderMirror | None = None
        self._faults: list[str] = []

    def handle_change(self, record: dict[str, object]) -> None:
        """Apply a record to its folder, or complete the file that is being received."""
        if record["tell"] == "whole":
            self._apply(lambda mirror: mirror.complete())
            return
        self._current = self.mirrors[str(record["tree"])]
        self._apply(lambda mirror: mirror.apply_record(record))

    def append(self, content: bytes) -> None:
        """Append bytes to the file that is being received."""
        self._apply(lambda mirror: mirror.append(content))

    def pop_faults(self) -> list[str]:
        """Return and clear the failures since the last call."""
        faults, self._faults = self._faults, []
        return faults

    def pop_conflicts(self) -> list[str]:
        return [conflict for mirror in self.mirrors.values() for conflict in mirror.pop_conflicts()]

    def _apply(self, act: Callable[[FolderMirror], None]) -> None:
        if self._current:
            try:
                act(self._current)
            except OSError as error:
                self._faults.append(f"{self._current.name}: {error.strerror or error}")
                self._current = None


def _is_folder(folder: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _find_free_name(folder: int, name: str, end: str = BESIDE) -> str:
    for number in range(1, MOST_BESIDE):
        beside = f"{name}{end}{number if number > 1 else ''}"
        try:
            os.stat(beside, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return beside
    raise OSError(17, f"too many versions are next to {name!r}")
