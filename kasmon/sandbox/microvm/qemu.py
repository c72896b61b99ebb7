"""What QEMU plays: one machine of a pinned kind and processor, as the words of its command line. Pure.

The kind never changes with QEMU's version, so that a memory that was written is a memory that can be read. All files
are handed over open: QEMU is told numbers and knows no path. It may start nothing and gain no right.
"""

import json
from typing import Final

import msgspec

from kasmon.model.sandbox.policy import MIB, SandboxSize

MACHINE: Final = "pc-q35-7.2"
CPU: Final = "Nehalem-v1"
OLDEST: Final = (7, 2)
PROGRAMS_BYTES: Final = 4096 * MIB
"""How long every machine's disk of programs is, also where it has none: so one of them is a copy of any other."""
SANDBOX: Final = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
QUIET: Final = (
    "console=ttyS0 quiet loglevel=3 panic=-1 reboot=t rdinit=/init pci=lastbus=0 mitigations=off apparmor=0 audit=0 "
    "init_on_free=1 random.trust_cpu=on"
)
"""What the kernel is told. `init_on_free`: an image of this memory holds nothing that was given back."""


class OpenFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Open files by their numbers."""

    kernel: int
    initrd: int
    root: int
    """The disk of programs; read-only."""
    base: int
    """What the machine's own disk was when it began; read-only."""
    disk: int
    """What became of it since."""
    control: int
    """A listening socket, for QMP."""
    console: int
    """A socket: what its kernel says goes there, and nowhere once nobody listens."""
    memory: int | None = None
    """A memory to go on from."""
    programs: int | None = None
    """The disk of what this machine was given beside its image; read-only. Without it an empty one is there."""

    @property
    def every(self) -> tuple[int, ...]:
        """Those that QEMU has to inherit."""
        kept = (self.kernel, self.initrd, self.root, self.base, self.disk, self.control, self.console)
        return (*kept, *(each for each in (self.memory, self.programs) if each is not None))


def words(program: str, handles: OpenFiles, size: SandboxSize, *, accelerator: str) -> list[str]:
    """QEMU's command line; `{line}` in it is the number of the socket that leads to the door."""
    return [
        program,
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-S", "-sandbox", SANDBOX),
        *("-machine", f"{MACHINE},vmport=off,usb=off", "-accel", accelerator, "-cpu", CPU, "-smp", "1"),
        *("-m", f"{memory_mib(size)}M", "-rtc", "base=utc,clock=host"),
        *("-kernel", f"/proc/self/fd/{handles.kernel}", "-initrd", f"/proc/self/fd/{handles.initrd}"),
        *("-append", f"{QUIET} kasmon.processes={size.processes}"),
        *_file("root", handles.root, 1),
        *("-device", "virtio-blk-pci,drive=root"),
        *_file("base", handles.base, 2, "qcow2"),
        *_file("disk", handles.disk, 3, "qcow2", over="base"),
        *("-device", "virtio-blk-pci,drive=disk"),
        *(_nothing("programs") if handles.programs is None else _file("programs", handles.programs, 4)),
        *("-device", "virtio-blk-pci,drive=programs"),
        *("-device", "virtio-serial-pci,max_ports=2", "-chardev", "socket,id=line,fd={line}"),
        *("-device", "virtserialport,chardev=line,nr=1,name=kasmon", "-device", "virtio-rng-pci"),
        *("-chardev", f"socket,id=console,fd={handles.console}", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=qmp,fd={handles.control},server=on,wait=off", "-mon", "chardev=qmp,mode=control"),
        *(["-incoming", f"fd:{handles.memory}"] if handles.memory is not None else []),
    ]


def memory_mib(size: SandboxSize) -> int:
    """How much memory a machine of *size* has, in MiB."""
    return size.memory_bytes // MIB


def _nothing(name: str) -> list[str]:
    """A disk of the same length as any other of programs, with nothing on it."""
    return [
        "-blockdev",
        json.dumps({"driver": "null-co", "node-name": name, "size": PROGRAMS_BYTES, "read-only": True}),
    ]


def _file(name: str, handle: int, number: int, kind: str = "raw", *, over: str = "") -> list[str]:
    is_fixed = not over
    file = {"driver": "file", "node-name": f"{name}-file", "filename": f"/dev/fdset/{number}", "locking": "off"}
    disk: dict[str, object] = {"driver": kind, "node-name": name, "file": f"{name}-file"}
    if over:
        disk |= {"backing": over, "discard": "unmap"}
    elif kind == "qcow2":
        disk |= {"backing": None}
    fixed = {"read-only": is_fixed}
    return [
        *("-add-fd", f"fd={handle},set={number}"),
        *("-blockdev", json.dumps({**file, **fixed, "discard": "unmap"})),
        *("-blockdev", json.dumps({**disk, **fixed})),
    ]
