"""A folder on one side of the line that is mirrored on the other: what changed since the last look, told file by file.

Both sides have one of each mirrored folder. It knows how each path was when the other side had it last.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator

from kasmon.sandbox.guest.mux_frames import PIECE, PIECE_BYTES, SAID, packed, told

Facts = tuple[int, int, int, int, int]
"""Mode, size, time of its content, time of itself, inode; of a folder its mode alone."""
Send = Callable[[bytes], None]
OTHERWISE: Facts = (0, 0, 0, 0, 0)
"""The other side has it, and not as it is here."""
NEW = ".kasmon-new"
"""What is being written is called so, and never told."""


class FolderChanges:
    """One such folder, at *root*; nothing in it was told yet."""

    def __init__(self, name: str, root: str, kind: int = SAID, **more: object) -> None:
        """*kind* is that of the records by which it is told, and *more* what each of them says beside that."""
        self.name, self.root, self._kind, self._more = name, root, kind, more
        self.tells = True
        """Whether what changes here is anything to the other side."""
        self._known: dict[str, Facts] = {}
        self.is_level = False
        """What the other side has is known, so that it can be told who changed a path."""

    def tell(self, send: Send) -> list[str]:
        """Send what came, changed and went since the last time; which paths could not be read, each with why."""
        if not self.tells:
            return []
        now, left = dict(self._walk()), list[str]()
        for path in sorted(self._known.keys() - now.keys(), reverse=True):
            self._say(send, "gone", path)
        for path in sorted(now):
            if now[path] != self._known.get(path) and (why := self._send(send, path, now[path])):
                left.append(f"{path!r}: {why}")
        self._known, self.is_level = now, True
        return left

    def is_told(self) -> bool:
        """Whether there is nothing to tell."""
        return self.is_level and dict(self._walk()) == self._known

    def took(self, path: str) -> None:
        """The other side told of *path*, and it is here as it is there."""
        facts = self._facts(path)
        if facts is None:
            self._known.pop(path, None)
        else:
            self._known[path] = facts

    def lost(self, path: str) -> None:
        """The other side has no *path* any more: where it is here, that is to be told."""
        self._known.pop(path, None)

    def forget(self) -> None:
        """Nobody knows what the other side has: it is another one."""
        self._known, self.is_level = {}, False

    def is_ours(self, path: str) -> bool:
        """Whether *path* is here, and was changed here since the other side had it."""
        facts = self._facts(path)
        if facts is None or not self.is_level:
            return False
        known = self._known.get(path)
        return known is None or _content(facts) != _content(known)

    def manifest(self) -> Iterator[list[object]]:
        """What the other side has, for a tree there that does not know it: path, mode, size and time of each."""
        for path, (mode, size, at_ns, _, _) in self._known.items():
            yield [_named(path), mode, size, at_ns]

    def learn(self, manifest: Iterable[list[object]]) -> None:
        """Know what the other side has, by a part of its *manifest*; it is level once all of it was learned."""
        for name, mode, size, at_ns in manifest:
            path = str(name).encode("latin-1").decode("utf-8", "surrogateescape")
            facts = self._facts(path)
            is_same = facts is not None and _alike(facts, int(str(mode)), int(str(size)), int(str(at_ns)))
            self._known[path] = facts if facts is not None and is_same else OTHERWISE

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

    def _say(self, send: Send, what: str, path: str, **words: object) -> None:
        send(told(self._kind, {**self._more, "tell": what, "tree": self.name, "path": _named(path), **words}))

    def _send(self, send: Send, path: str, facts: Facts) -> str:
        """Tell of *path*; why that is not possible, empty where it was told, or is gone."""
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
                    while left > 0 and (content := os.read(file, min(PIECE_BYTES, left))):
                        send(packed(PIECE, 0, content))
                        left -= len(content)
                finally:
                    os.close(file)
                self._say(send, "whole", path)
        except OSError as error:
            # It went while it was told: the next look finds that.
            return "" if error.errno in (errno.ENOENT, errno.ELOOP) else error.strerror or str(error)
        return ""


def _facts(look: Callable[..., os.stat_result]) -> Facts | None:
    """None where it is gone, or of a kind that is not mirrored."""
    try:
        seen = look(follow_symlinks=False)
    except OSError:
        return None
    if stat.S_ISDIR(seen.st_mode):
        return seen.st_mode, 0, 0, 0, 0
    if not stat.S_ISREG(seen.st_mode) and not stat.S_ISLNK(seen.st_mode):
        return None
    return seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino


def _content(facts: Facts) -> tuple[int, ...]:
    """What of *facts* changes with what it holds; a folder is one."""
    mode, size, at_ns, _, inode = facts
    return (stat.S_IFMT(mode),) if stat.S_ISDIR(mode) else (stat.S_IFMT(mode), size, at_ns, inode)


def _alike(facts: Facts, mode: int, size: int, at_ns: int) -> bool:
    """Whether it is as the other side has it; a link's time is its own on each side, a folder's mode differs."""
    if stat.S_IFMT(facts[0]) != stat.S_IFMT(mode) or facts[1] != size:
        return False
    return not stat.S_ISREG(mode) or (stat.S_IMODE(facts[0]) & 0o777, facts[2]) == (mode & 0o777, at_ns)


def _named(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("latin-1")
