"""Writer of `cpio` archives in the "newc" format that Linux unpacks as its initrd; all files belong to root."""

import stat
from typing import Final

MAGIC: Final = "070701"
END: Final = "TRAILER!!!"


class CpioArchive:
    """An archive. Names have no leading slash; a folder must be added before its content."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._number = 0

    def folder(self, name: str, mode: int = 0o755) -> None:
        """Add a folder."""
        self._add(name, stat.S_IFDIR | mode, b"")

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Add a regular file."""
        self._add(name, stat.S_IFREG | mode, content)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def device(self, name: str, major: int, minor: int, mode: int = 0o600) -> None:
        """Add a character device."""
        self._add(name, stat.S_IFCHR | mode, b"", major, minor)

    def whole(self) -> bytes:
        """Return the complete archive; nothing may be added after that."""
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
