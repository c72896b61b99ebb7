"""Changes in one side of a mirrored folder since the last look, sent to the other side file by file.

Each side has one of these per mirrored folder. It records the state of each path that the other side has.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator

from kasmon.sandbox.guest.mux import CONTENT, CONTENT_BYTES, MESSAGE, pack_message, pack_record

Facts = tuple[int, int, int, int, int]
"""Mode, size, mtime, ctime, inode; of a folder only its mode."""
Send = Callable[[bytes], None]
OTHERWISE: Facts = (0, 0, 0, 0, 0)
"""The other side has the path, in another state than here."""
NEW = ".kasmon-new"
"""Name of a file that is being written; never sent."""


class FolderChanges:
    """One mirrored folder at *root*; initially nothing was sent."""

    def __init__(self, name: str, root: str, kind: int = MESSAGE, **more: object) -> None:
        """*kind* is that of the records to send, and *more* their further fields."""
        self.name, self.root, self._kind, self._more = name, root, kind, more
        self.tells = True
        """Whether the other side wants changes from here."""
        self._mirrored: dict[str, Facts] = {}
        self.is_level = False
        """Whether the other side's state is known, so that conflicting changes can be recognised."""

    def send_changes(self, send: Send) -> list[str]:
        """Send what was created, changed and removed since the last time; return the unreadable paths with reasons."""
        if not self.tells:
            return []
        now, left = dict(self._walk()), list[str]()
        for path in sorted(self._mirrored.keys() - now.keys(), reverse=True):
            self._say(send, "gone", path)
        for path in sorted(now):
            if now[path] != self._mirrored.get(path) and (why := self._send(send, path, now[path])):
                left.append(f"{path!r}: {why}")
        self._mirrored, self.is_level = now, True
        return left

    def is_sent(self) -> bool:
        """Whether there is nothing to send."""
        return self.is_level and dict(self._walk()) == self._mirrored

    def record_received(self, path: str) -> None:
        """Record that the other side sent *path*, and both sides now agree."""
        facts = self._facts(path)
        if facts is None:
            self._mirrored.pop(path, None)
        else:
            self._mirrored[path] = facts

    def record_removed(self, path: str) -> None:
        """Record that the other side has removed *path*: if it exists here, it is to be sent."""
        self._mirrored.pop(path, None)

    def forget(self) -> None:
        """Forget the other side's state: it is another machine."""
        self._mirrored, self.is_level = {}, False

    def is_ours(self, path: str) -> bool:
        """Whether *path* exists here and was changed here since the last sync."""
        facts = self._facts(path)
        if facts is None or not self.is_level:
            return False
        known = self._mirrored.get(path)
        return known is None or _content(facts) != _content(known)

    def manifest(self) -> Iterator[list[object]]:
        """Yield path, mode, size and time of all that the other side has, for a peer that does not know it."""
        for path, (mode, size, at_ns, _, _) in self._mirrored.items():
            yield [_encode_path(path), mode, size, at_ns]

    def record_manifest(self, manifest: Iterable[list[object]]) -> None:
        """Record the other side's state from a part of its *manifest*; the caller sets `is_level` at its end."""
        for name, mode, size, at_ns in manifest:
            path = str(name).encode("latin-1").decode("utf-8", "surrogateescape")
            facts = self._facts(path)
            is_same = facts is not None and _is_equal(facts, int(str(mode)), int(str(size)), int(str(at_ns)))
            self._mirrored[path] = facts if facts is not None and is_same else OTHERWISE

    def _walk(self) -> Iterator[tuple[str, Facts]]:
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(os.path.join(self.root, folder)))  # noqa: PTH118
            except OSError:
                continue
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name == NEW or (facts := _facts(entry.stat)) is None:
                    continue
                if stat.S_ISDIR(facts[0]):
                    folders.append(path)
                yield path, facts

    def _facts(self, path: str) -> Facts | None:
        whole = os.path.join(self.root, path)  # noqa: PTH118
        return _facts(lambda *, follow_symlinks: os.stat(whole, follow_symlinks=follow_symlinks))  # noqa: PTH116

    def _say(self, send: Send, what: str, path: str, **fields: object) -> None:
        send(
            pack_message(
                self._kind, {**self._more, "tell": what, "tree": self.name, "path": _encode_path(path), **fields}
            )
        )

    def _send(self, send: Send, path: str, facts: Facts) -> str:
        """Send *path*; return why that failed, empty if it was sent or is gone."""
        whole, mode = os.path.join(self.root, path), stat.S_IMODE(facts[0]) & 0o777  # noqa: PTH118
        try:
            if stat.S_ISDIR(facts[0]):
                self._say(send, "folder", path, mode=mode)
            elif stat.S_ISLNK(facts[0]):
                target = os.readlink(whole.encode("utf-8", "surrogateescape")).decode("latin-1")  # noqa: PTH115
                self._say(send, "link", path, mode=0, target=target)
            else:
                file = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    self._say(send, "file", path, mode=mode, at_ns=facts[2])
                    left = facts[1]
                    while left > 0 and (content := os.read(file, min(CONTENT_BYTES, left))):
                        send(pack_record(CONTENT, 0, content))
                        left -= len(content)
                finally:
                    os.close(file)
                self._say(send, "whole", path)
        except OSError as error:
            # It was removed meanwhile: the next look finds that.
            return "" if error.errno in (errno.ENOENT, errno.ELOOP) else error.strerror or str(error)
        return ""


def _facts(read_stat: Callable[..., os.stat_result]) -> Facts | None:
    """Return None if it is gone, or of a kind that is not mirrored."""
    try:
        seen = read_stat(follow_symlinks=False)
    except OSError:
        return None
    if stat.S_ISDIR(seen.st_mode):
        return seen.st_mode, 0, 0, 0, 0
    if not stat.S_ISREG(seen.st_mode) and not stat.S_ISLNK(seen.st_mode):
        return None
    return seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino


def _content(facts: Facts) -> tuple[int, ...]:
    """Return the part of *facts* that changes with the content; of a folder only its type."""
    mode, size, at_ns, _, inode = facts
    return (stat.S_IFMT(mode),) if stat.S_ISDIR(mode) else (stat.S_IFMT(mode), size, at_ns, inode)


def _is_equal(facts: Facts, mode: int, size: int, at_ns: int) -> bool:
    """Whether both sides agree; a link's time differs on each side, and a folder's mode."""
    if stat.S_IFMT(facts[0]) != stat.S_IFMT(mode) or facts[1] != size:
        return False
    return not stat.S_ISREG(mode) or (stat.S_IMODE(facts[0]) & 0o777, facts[2]) == (mode & 0o777, at_ns)


def _encode_path(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("latin-1")
