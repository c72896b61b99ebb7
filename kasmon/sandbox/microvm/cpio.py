"""A `cpio` archive of the form that Linux unpacks as its first files ("newc"), of files that are root's in there."""

import stat
from typing import Final

MAGIC: Final = "070701"
END: Final = "TRAILER!!!"


class CpioArchive:
    """Names are without a leading slash; a folder has to be added before what lies in it."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._number = 0

    def folder(self, name: str, mode: int = 0o755) -> None:
        """A folder."""
        self._add(name, stat.S_IFDIR | mode, b"")

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """A plain file."""
        self._add(name, stat.S_IFREG | mode, content)

    def link(self, name: str, target: str) -> None:
        """A symbolic link."""
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def device(self, name: str, major: int, minor: int, mode: int = 0o600) -> None:
        """A character device."""
        self._add(name, stat.S_IFCHR | mode, b"", major, minor)

    def whole(self) -> bytes:
        """The whole archive; nothing is to be added after that."""
        self._add(END, 0, b"")
        return bytes(self._content)

    def _add(self, name: str, mode: int, content: bytes, major: int = 0, minor: int = 0) -> None:
        self._number += 1
        path = name.encode() + b"\0"
        fields = (self._number, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(path), 0)
        self._content += MAGIC.encode() + b"".join(b"%08x" % field for field in fields) + path
        self._align()
        self._content += content
        self._align()

    def _align(self) -> None:
        self._content += bytes(-len(self._content) % 4)
