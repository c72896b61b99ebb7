"""A machine's initrd: what mounts its disks, and kasmon's code of this version that runs in it."""

import hashlib
import stat
from pathlib import Path
from typing import Final

from kasmon.sandbox.microvm.image import BUSYBOX, VmImage

LINE: Final = Path(__file__).with_name("link")
INSIDE: Final = Path(__file__).parent.with_name("guest")
FOLDERS: Final = ("bin", "dev", "low", "modules", "new", "opt", "opt/kasmon", "opt/kasmon/line", "proc", "sys")

CPIO_MAGIC: Final = "070701"
CPIO_END: Final = "TRAILER!!!"


class CpioArchive:
    """An archive. Names have no leading slash; a folder must be added before its content."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._number = 0

    def add_folder(self, name: str, mode: int = 0o755) -> None:
        self._add(name, stat.S_IFDIR | mode, b"")

    def add_file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self._add(name, stat.S_IFREG | mode, content)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def add_device(self, name: str, major: int, minor: int, mode: int = 0o600) -> None:
        self._add(name, stat.S_IFCHR | mode, b"", major, minor)

    def whole(self) -> bytes:
        """Return the complete archive; nothing may be added after that."""
        self._add(CPIO_END, 0, b"")
        return bytes(self._content)

    def _add(self, name: str, mode: int, content: bytes, major: int = 0, minor: int = 0) -> None:
        self._number += 1
        path = name.encode() + b"\0"
        fields = (self._number, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(path), 0)
        self._content += CPIO_MAGIC.encode() + b"".join(b"%08x" % field for field in fields) + path
        self._align()
        self._content += content
        self._align()

    def _align(self) -> None:
        self._content += bytes(-len(self._content) % 4)


def initrd(folder: Path, image: VmImage, inside: Path = INSIDE) -> bytes:
    """Return the initrd of a machine of *image* in *folder*; *inside* is the folder of the guest agent.

    Raises:
        OSError: if a file of it is missing.
    """
    made = CpioArchive()
    for name in FOLDERS:
        made.add_folder(name)
    made.add_device("dev/console", 5, 1)
    made.add_file("bin/busybox", (folder / BUSYBOX).read_bytes(), 0o755)
    made.link("bin/sh", "busybox")
    made.add_file("init", (LINE / "init").read_bytes(), 0o755)
    made.add_file("modules/order", "\n".join(image.modules).encode())
    for name in image.modules:
        made.add_file(f"modules/{name}", (folder / "modules" / name).read_bytes())
    for path in sorted(inside.iterdir()):
        if path.is_file() and path.suffix != ".pyc":
            made.add_file(f"opt/kasmon/{path.name}", path.read_bytes())
    for path in sorted(LINE.glob("*.py")):
        made.add_file(f"opt/kasmon/line/{path.name}", path.read_bytes())
    return made.whole()


def code_hash(inside: Path = INSIDE) -> str:
    """Return a hash of kasmon's code that runs in a machine, different for each version."""
    digest = hashlib.sha256()
    for folder in (inside, LINE):
        for path in sorted(path for path in folder.iterdir() if path.is_file() and path.suffix != ".pyc"):
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
