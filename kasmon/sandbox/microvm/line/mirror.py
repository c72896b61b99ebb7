"""The outside of a mirrored folder: what the machine tells of it is put there, and nowhere else.

Who tells is not trusted: no name leads out of the folder, no link is followed, and nothing is larger than was allowed.
"""

import contextlib
import os
import stat
from collections.abc import Callable

from kasmon.sandbox.microvm.line.records import ASK, PIECE, PIECE_BYTES, packed, told

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW = ".kasmon-new"


class RefusedNameError(OSError):
    """A name that leads out of the folder."""


class Mirror:
    """One such folder, open as *handle*; at most *most_bytes* are taken for it between two looks."""

    def __init__(self, name: str, handle: int, most_bytes: int) -> None:
        self.name, self._handle, self._most = name, handle, most_bytes
        self._writing: tuple[int, int, str, int, int] | None = None
        self._left = most_bytes

    def told(self, words: dict[str, object]) -> None:
        """Do what the machine tells of one file.

        Raises:
            OSError: if it cannot be done, or must not.
        """
        self._drop()
        what, path = words["tell"], str(words["path"]).encode("latin-1")
        parts = path.split(b"/")
        if not path or any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
            raise RefusedNameError(1, f"{path!r} leads elsewhere")
        folder, name = self._folder(parts[:-1]), os.fsdecode(parts[-1])
        try:
            if what == "gone":
                self._remove(folder, name)
            elif what == "folder":
                self._make_room(folder, name, stat.S_ISDIR)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, mode=0o700, dir_fd=folder)
                os.chmod(name, 0o700 | int(str(words["mode"])), dir_fd=folder, follow_symlinks=True)
            elif what == "link":
                self._remove(folder, name)
                os.symlink(str(words["target"]).encode("latin-1"), os.fsencode(name), dir_fd=folder)
            elif what == "file":
                self._make_room(folder, name, stat.S_ISREG)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.open(NEW, flags, 0o600, dir_fd=folder)
                self._writing = (os.dup(folder), file, name, int(str(words["mode"])) & 0o777, int(str(words["at_ns"])))
        finally:
            os.close(folder)

    def piece(self, content: bytes) -> None:
        """Bytes of the file that was told last."""
        self._left -= len(content)
        if self._left < 0:
            raise OSError(28, "more was told than the folder may hold")
        while content and self._writing:
            content = content[os.write(self._writing[1], content) :]

    def whole(self) -> None:
        """The file that was told last is whole."""
        if self._writing:
            folder, file, name, mode, at_ns = self._writing
            os.fchmod(file, mode)
            os.utime(file, ns=(at_ns, at_ns))
            os.rename(NEW, name, src_dir_fd=folder, dst_dir_fd=folder)
            self._close()
        self._left = self._most

    def fill(self, send: Callable[[bytes], None]) -> None:
        """Send all that the folder holds, to a machine that has nothing of it."""
        pending: list[tuple[int, str]] = [(os.dup(self._handle), "")]
        while pending:
            handle, folder = pending.pop()
            for name in sorted(os.listdir(handle)):  # noqa: PTH208 - of a handle
                path = f"{folder}/{name}" if folder else name
                with contextlib.suppress(OSError):
                    below = self._send(send, handle, name, path)
                    if below is not None:
                        pending.append((below, path))
            os.close(handle)

    def _send(self, send: Callable[[bytes], None], handle: int, name: str, path: str) -> int | None:
        """Send one entry; a folder's handle, where it is one."""
        facts = os.stat(name, dir_fd=handle, follow_symlinks=False)
        words: dict[str, object] = {
            "do": "put",
            "tree": self.name,
            "path": os.fsencode(path).decode("latin-1"),
            "mode": stat.S_IMODE(facts.st_mode) & 0o777,
        }
        if stat.S_ISDIR(facts.st_mode):
            below = os.open(name, FOLDER, dir_fd=handle)
            send(told(ASK, {**words, "kind": "folder"}))
            return below
        if stat.S_ISLNK(facts.st_mode):
            target = os.readlink(os.fsencode(name), dir_fd=handle).decode("latin-1")
            send(told(ASK, {**words, "kind": "link", "target": target}))
        elif stat.S_ISREG(facts.st_mode):
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            try:
                send(told(ASK, {**words, "kind": "file", "at_ns": facts.st_mtime_ns}))
                while content := os.read(file, PIECE_BYTES):
                    send(packed(PIECE, 0, content))
            finally:
                os.close(file)
        return None

    def _folder(self, parts: list[bytes]) -> int:
        handle = os.dup(self._handle)
        for part in parts:
            below = os.open(part, FOLDER, dir_fd=handle)
            os.close(handle)
            handle = below
        return handle

    def _make_room(self, folder: int, name: str, is_right: Callable[[int], bool]) -> None:
        """Remove what is there of another kind."""
        with contextlib.suppress(FileNotFoundError):
            if not is_right(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                self._remove(folder, name)

    def _remove(self, folder: int, name: str) -> None:
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError:
            handle = os.open(name, FOLDER, dir_fd=folder)
            try:
                for each in os.listdir(handle):  # noqa: PTH208 - of a handle
                    self._remove(handle, each)
            finally:
                os.close(handle)
            os.rmdir(name, dir_fd=folder)

    def _drop(self) -> None:
        """A file that was not told to its end is not there."""
        if self._writing:
            with contextlib.suppress(OSError):
                os.unlink(NEW, dir_fd=self._writing[0])
            self._close()

    def _close(self) -> None:
        if self._writing:
            os.close(self._writing[0])
            os.close(self._writing[1])
            self._writing = None
