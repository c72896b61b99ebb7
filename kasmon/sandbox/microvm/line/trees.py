"""A folder of the machine that is mirrored outside: what changed since the last look, told file by file."""

import os
import stat
from collections.abc import Callable, Iterator

from kasmon.sandbox.microvm.line.records import PIECE, PIECE_BYTES, SAID, packed, told

Facts = tuple[int, int, int, int, int]
Send = Callable[[bytes], None]


class Tree:
    """One such folder; nothing in it was told yet. Who owns what is not told: it is the sandbox's user."""

    def __init__(self, name: str, root: str, owner: int) -> None:
        self.name, self.root, self._owner = name, root, owner
        self._known: dict[str, Facts] = {}
        self._writing = -1

    def tell(self, send: Send) -> None:
        """Send what came, changed and went since the last time."""
        now = dict(self._walk())
        for path in sorted(self._known.keys() - now.keys(), reverse=True):
            self._say(send, "gone", path)
        for path in sorted(now):
            if now[path] != self._known.get(path):
                self._send(send, path, now[path])
        self._known = now

    def put(self, words: dict[str, object]) -> None:
        """Make the file, folder or link that *words* name; a file's bytes come behind that, by `piece`."""
        self.close()
        path = os.path.join(self.root, str(words["path"]).encode("latin-1").decode("utf-8", "surrogateescape"))  # noqa: PTH118
        mode, kind = int(str(words["mode"])), words["kind"]
        if kind == "folder":
            os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103
            os.chmod(path, mode)  # noqa: PTH101
        elif kind == "link":
            os.symlink(str(words["target"]).encode("latin-1"), path.encode("utf-8", "surrogateescape"))  # noqa: PTH211
        else:
            self._writing = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
            os.fchmod(self._writing, mode)
        os.chown(path, self._owner, self._owner, follow_symlinks=False)
        if kind == "file":
            at = int(str(words["at_ns"]))
            self._until = (path, at)

    def piece(self, content: bytes) -> None:
        """Bytes of the file that was put last."""
        while content and self._writing >= 0:
            content = content[os.write(self._writing, content) :]

    def close(self) -> None:
        """The file that was put last is whole."""
        if self._writing >= 0:
            path, at = self._until
            os.close(self._writing)
            os.utime(path, ns=(at, at))
            self._writing = -1

    def settle(self) -> None:
        """What is there now is known outside."""
        self.close()
        self._known = dict(self._walk())

    def _walk(self) -> Iterator[tuple[str, Facts]]:
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(os.path.join(self.root, folder)))  # noqa: PTH118
            except OSError:
                continue
            for entry in entries:
                try:
                    facts = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                if stat.S_ISDIR(facts.st_mode):
                    folders.append(path)
                    yield path, (facts.st_mode, 0, 0, 0, 0)
                elif stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode):
                    yield path, (facts.st_mode, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)

    def _say(self, send: Send, what: str, path: str, **words: object) -> None:
        name = path.encode("utf-8", "surrogateescape").decode("latin-1")
        send(told(SAID, {"tell": what, "tree": self.name, "path": name, **words}))

    def _send(self, send: Send, path: str, facts: Facts) -> None:
        whole, mode = os.path.join(self.root, path), stat.S_IMODE(facts[0]) & 0o777  # noqa: PTH118
        try:
            if stat.S_ISDIR(facts[0]):
                self._say(send, "folder", path, mode=mode)
            elif stat.S_ISLNK(facts[0]):
                target = os.readlink(whole.encode("utf-8", "surrogateescape")).decode("latin-1")  # noqa: PTH115
                self._say(send, "link", path, mode=0, target=target)
            else:
                file = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    self._say(send, "file", path, mode=mode, at_ns=facts[2])
                    left = facts[1]
                    while left > 0 and (content := os.read(file, min(PIECE_BYTES, left))):
                        send(packed(PIECE, 0, content))
                        left -= len(content)
                finally:
                    os.close(file)
                self._say(send, "whole", path)
        except OSError:
            return  # it went while it was told; the next look finds that
