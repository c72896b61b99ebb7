"""The machine image: a kernel, a read-only disk of programs, and the initrd's files that mount that disk.

It is built from Debian's packages on the user's machine and stored in kasmon's data folder, with its package versions
and the hash of each file. Its id is a hash of all that.
"""

import hashlib
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.model.sandbox.policy import MIB
from kasmon.paths import Paths, hash_file, private_folder, read_json, write_private
from kasmon.sandbox.microvm import debian_packages
from kasmon.sandbox.microvm.debian_packages import MERGED, DebianPackage, fetch, unpack
from kasmon.sandbox.microvm.qemu_program import format_disk
from kasmon.sandbox.shared import host_folders

FORMAT: Final = 3
"""Increased when the build steps change; `recipe` covers changes of the input."""
MODULES: Final = ("virtio_pci", "virtio_blk", "virtio_console", "virtio-rng")
"""Kernel modules that must be loaded before the disk can be mounted; their dependencies are added."""
ETC: Final = host_folders.ETC | {
    "passwd": "root:x:0:0::/:/bin/sh\nsandbox:x:1000:1000::/home/sandbox:/bin/bash\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
FOLDERS: Final = ("dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "sys", "tmp", "var", "workspace")
SPARE_BYTES: Final = 16 * MIB
SPARE_INODES: Final = 256
COMPILE_S: Final = 300.0
KERNEL, ROOT, BUSYBOX, TOLD = "vmlinux", "root.ext4", "busybox", "image.json"
LZ4_LEGACY: Final = b"\x02\x21\x4c\x18"


class VmImage(msgspec.Struct, frozen=True, kw_only=True):
    """One image, as described by its own file."""

    id: str
    made_at: float
    kernel: str
    """The version of its kernel's package."""
    versions: dict[str, str]
    """Package -> version, for all packages in it."""
    hashes: dict[str, str]
    """File -> SHA-256."""
    modules: tuple[str, ...]
    """In load order."""
    recipe: str = ""
    """A hash of its input, as `recipe` returned it."""


def recipe() -> str:
    """Return a hash of the input of an image in this version; an image of another recipe lacks required parts."""
    parts = (FORMAT, MODULES, ETC, FOLDERS, debian_packages.PROGRAMS, debian_packages.BUSYBOX, debian_packages.KERNEL)
    return hashlib.sha256(msgspec.json.encode((*parts, debian_packages.LEFT_OUT.pattern))).hexdigest()[:16]


def folder_of(paths: Paths) -> Path:
    """Return the image folder of one kasmon, which may not exist."""
    return paths.state / "image"


def load_image(folder: Path) -> VmImage | None:
    """Return the image in *folder*; None if there is none that this version can use."""
    image = read_json(folder / TOLD, VmImage, None)
    is_whole = image is not None and all((folder / name).is_file() for name in image.hashes)
    return image if image and image.recipe == recipe() and is_whole else None


def build(folder: Path, report: Callable[[str], None] = lambda _: None) -> VmImage:
    """Build an image, in a minute; replace the one in *folder* completely or not at all. May raise `SandboxError`."""
    if why := debian_packages.missing():
        raise SandboxError("cannot build the image", why)
    private_folder(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".image-") as name:
        work = Path(name)
        fetched = fetch(work / "packages", report)
        fresh = work / "fresh"
        (fresh / "modules").mkdir(mode=0o700, parents=True)
        report(f"Unpacking {len(fetched)} packages.")
        kernel = next(package for package in fetched if package.name.startswith("linux-image-"))
        programs = [package for package in fetched if package is not kernel]
        modules = _install_kernel(kernel, work / "kernel", fresh)
        _install_programs(programs, work / "root", fresh)
        report("Creating its disk.")
        create_disk(work / "root", fresh / ROOT)
        image = _describe(fresh, kernel, fetched, modules)
        write_private(fresh / TOLD, msgspec.json.format(msgspec.json.encode(image), indent=1))
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    return image


def _describe(fresh: Path, kernel: DebianPackage, fetched: Sequence[DebianPackage], modules: Sequence[str]) -> VmImage:
    files = sorted(path for path in fresh.rglob("*") if path.is_file())
    hashes = {str(path.relative_to(fresh)): hash_file(path) for path in files}
    whole = hashlib.sha256("".join(f"{name} {value}\n" for name, value in hashes.items()).encode())
    return VmImage(
        id=whole.hexdigest()[:16],
        made_at=time.time(),
        kernel=kernel.version,
        versions={package.name: package.version for package in fetched},
        hashes=hashes,
        modules=tuple(modules),
        recipe=recipe(),
    )


def _install_kernel(package: DebianPackage, work: Path, fresh: Path) -> list[str]:
    """Put the kernel into *fresh*, with the modules it needs; return their names, each after its dependencies."""
    unpack(package, work, lambda name: not name.startswith("usr/share/"))
    packed = next(work.glob("boot/vmlinuz-*"))
    write_private(fresh / KERNEL, _decompress(packed.read_bytes()) or packed.read_bytes())
    (fresh / KERNEL).chmod(0o644)
    every = {path.stem: path for path in work.rglob("*.ko")}
    ordered: list[str] = []

    def need(name: str) -> None:
        path = every.get(name) or every.get(name.replace("_", "-"))
        if path is None or path.name in ordered:
            return  # built in
        for other in _depends(path.read_bytes()):
            need(other)
        shutil.copyfile(path, fresh / "modules" / path.name)
        ordered.append(path.name)

    for name in MODULES:
        need(name)
    if len(ordered) < len(MODULES):
        raise SandboxError("cannot build the image", f"its kernel {package.version} lacks modules that kasmon requires")
    return ordered


def _decompress(kernel: bytes) -> bytes | None:
    """Return the decompressed kernel, since decompression takes an emulated machine a second.

    None if `lz4` is missing, or the kernel is compressed otherwise.
    """
    at = kernel.rfind(LZ4_LEGACY)
    program = debian_packages.find_program("lz4")
    if at < 0 or program is None:
        return None
    header = struct.unpack_from("<I", kernel, 0x248)[0], struct.unpack_from("<I", kernel, 0x24C)[0]
    first = (kernel[0x1F1] or 4) * 512 + 512 + header[0]
    payload = kernel[first : first + header[1]] if kernel[first : first + 4] == LZ4_LEGACY else kernel[at:]
    output = subprocess.run([program, "-dc"], input=payload[:-4], capture_output=True, timeout=60).stdout
    return output if output.startswith(b"\x7fELF") else None


def _depends(module: bytes) -> list[str]:
    at = module.find(b"\0depends=")
    if at < 0:
        return []
    return [name for name in module[at + 9 : module.index(b"\0", at + 9)].decode("ascii").split(",") if name]


def _install_programs(fetched: Sequence[DebianPackage], root: Path, fresh: Path) -> None:
    for name in (*FOLDERS, "usr"):
        (root / name).mkdir(mode=0o700, parents=True)
    for name in MERGED:
        (root / "usr" / name).mkdir(mode=0o700)
        (root / name).symlink_to(f"usr/{name}")
    for package in fetched:
        unpack(package, root)
    _compile_library(root)
    shutil.copyfile(root / "usr/bin/busybox", fresh / BUSYBOX)
    for name, text in ETC.items():
        (root / "etc" / name).write_text(text)
    (root / "etc/mtab").symlink_to("/proc/self/mounts")
    if not (root / "usr/bin/awk").is_symlink():
        (root / "usr/bin/awk").symlink_to("mawk")
    (root / "var/tmp").symlink_to("/tmp")
    (root / "usr/bin/sh").unlink(missing_ok=True)
    (root / "usr/bin/sh").symlink_to("bash")
    for path in [root, *root.rglob("*")]:  # its builder owns the files; they are read-only
        if not path.is_symlink():
            path.chmod((path.stat().st_mode & 0o755) | (0o755 if path.is_dir() else 0o444))


def _compile_library(root: Path) -> None:
    """Compile Python's library with its own Python: it is read-only inside, so each import would compile again."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    loader = [str(root / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", str(libraries)]
    args = ["-s", "-S", "-m", "compileall", "-q", "-s", str(root), "-p", "/", "--invalidation-mode", "unchecked-hash"]
    try:
        done = subprocess.run(
            [*loader, str(root / "usr/bin/python3.11"), *args, str(root / "usr/lib/python3.11")],
            env={"PYTHONHOME": str(root / "usr"), "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=COMPILE_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError("cannot build the image", f"its python does not run: {error}") from error
    if done.returncode:
        raise SandboxError("cannot build the image", f"its python's library does not compile: {done.stdout[-200:]}")


def create_disk(root: Path, target: Path) -> None:
    """Create the disk *target* with the content of *root*. Raises `SandboxError` if that fails."""
    entries = list(root.rglob("*"))
    used = sum((path.lstat().st_size + 4095) // 4096 * 4096 for path in entries)
    blocks = (used * 21 // 20 + len(entries) * 512 + SPARE_BYTES) // 4096
    inodes = str(len(entries) + SPARE_INODES)
    format_disk("-b", "4096", "-d", str(root), "-N", inodes, str(target), str(blocks))
