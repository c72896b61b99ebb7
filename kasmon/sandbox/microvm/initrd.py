"""A machine's initrd: what mounts its disks, and kasmon's code of this version that runs in it."""

import hashlib
from pathlib import Path
from typing import Final

from kasmon.sandbox.microvm.cpio import CpioArchive
from kasmon.sandbox.microvm.image import BUSYBOX, VmImage

LINE: Final = Path(__file__).with_name("link")
INSIDE: Final = Path(__file__).parent.with_name("guest")
FOLDERS: Final = ("bin", "dev", "low", "modules", "new", "opt", "opt/kasmon", "opt/kasmon/line", "proc", "sys")


def initrd(folder: Path, image: VmImage, inside: Path = INSIDE) -> bytes:
    """Return the initrd of a machine of *image* in *folder*; *inside* is the folder of the guest agent.

    Raises:
        OSError: if a file of it is missing.
    """
    made = CpioArchive()
    for name in FOLDERS:
        made.folder(name)
    made.device("dev/console", 5, 1)
    made.file("bin/busybox", (folder / BUSYBOX).read_bytes(), 0o755)
    made.link("bin/sh", "busybox")
    made.file("init", (LINE / "init").read_bytes(), 0o755)
    made.file("modules/order", "\n".join(image.modules).encode())
    for name in image.modules:
        made.file(f"modules/{name}", (folder / "modules" / name).read_bytes())
    for path in sorted(inside.iterdir()):
        if path.is_file() and path.suffix != ".pyc":
            made.file(f"opt/kasmon/{path.name}", path.read_bytes())
    for path in sorted(LINE.glob("*.py")):
        made.file(f"opt/kasmon/line/{path.name}", path.read_bytes())
    return made.whole()


def code_hash(inside: Path = INSIDE) -> str:
    """Return a hash of kasmon's code that runs in a machine, different for each version."""
    digest = hashlib.sha256()
    for folder in (inside, LINE):
        for path in sorted(path for path in folder.iterdir() if path.is_file() and path.suffix != ".pyc"):
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
