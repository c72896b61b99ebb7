"""QEMU's command line for one machine with a pinned machine type and CPU. Pure.

The type does not change with QEMU's version, so that stored snapshots stay readable. All files are passed as open
descriptors: QEMU gets no path. It may start no process and gain no privilege.
"""

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from kasmon.errors import SandboxError
from kasmon.model.sandbox.policy import MIB, SandboxSize

LIMIT_S: Final = 10.0
BETWEEN_S: Final = 0.002
READ_BYTES: Final = 1 << 16
ON_ITS_WAY: Final = frozenset({"none", "setup", "active", "device", "pre-switchover"})


class QmpClient:
    """A connection to the QEMU that listens at a path; used by one thread, in a `with`."""

    def __init__(self, path: Path) -> None:
        """Connect to *path*; raises `SandboxError` if QEMU does not answer there."""
        self._held = b""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(LIMIT_S)
        try:
            self._socket.connect(os.fspath(path))
            self._receive("QMP")
        except (OSError, ValueError) as error:
            self._socket.close()
            raise SandboxError("the machine accepts no commands", str(error) or "it does not respond") from error
        self.do("qmp_capabilities")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def do(
        self, order: str, handles: Sequence[int] = (), arguments: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Send the command *order*, with open files if any; return its answer. Raises `SandboxError` if it fails."""
        sent = json.dumps({"execute": order, "arguments": {**(arguments or {}), **more}}).encode() + b"\n"
        try:
            socket.send_fds(self._socket, [sent], list(handles))
            reply = self._receive("return", "error")
        except (OSError, ValueError) as error:
            raise SandboxError(
                f"the machine's command {order!r} failed", str(error) or "it does not respond"
            ) from error
        if "error" in reply:
            raise SandboxError(f"the machine's command {order!r} failed", str(reply["error"].get("desc", "")))
        answer = reply["return"]
        return answer if isinstance(answer, dict) else {"value": answer}

    def wait_for_migration(self, limit_s: float) -> None:
        """Wait until the memory is written or read. Raises `SandboxError` if that fails, or takes over *limit_s*."""
        until = time.monotonic() + limit_s
        while (state := self.do("query-migrate")).get("status", "none") in ON_ITS_WAY:
            if time.monotonic() > until:
                raise SandboxError("its memory was not transferred", f"it took longer than {limit_s:g} s")
            time.sleep(BETWEEN_S)
        if state.get("status") != "completed":
            raise SandboxError("its memory was not transferred", str(state.get("error-desc") or state.get("status")))

    def _receive(self, *wanted: str) -> dict[str, Any]:
        while True:
            while b"\n" not in self._held:
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise OSError("it ended")
                self._held += data
            line, _, self._held = self._held.partition(b"\n")
            reply = json.loads(line)
            if isinstance(reply, dict) and any(name in reply for name in wanted):
                return reply


MACHINE: Final = "pc-q35-7.2"
CPU: Final = "Nehalem-v1"
OLDEST: Final = (7, 2)
PROGRAMS_BYTES: Final = 4096 * MIB
"""The size of every machine's program disk, also of an empty one, so that any machine can be a copy of another."""
SANDBOX: Final = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
QUIET: Final = (
    "console=ttyS0 quiet loglevel=3 panic=-1 reboot=t rdinit=/init pci=lastbus=0 mitigations=off apparmor=0 audit=0 "
    "init_on_free=1 random.trust_cpu=on"
)
"""The kernel's command line. `init_on_free`: freed memory is cleared, so a snapshot does not contain it."""


class OpenFiles(msgspec.Struct, frozen=True, kw_only=True):
    kernel: int
    initrd: int
    root: int
    """The image's disk; read-only."""
    base: int
    """The machine's own disk in its initial state; read-only."""
    disk: int
    """The changes since."""
    control: int
    """A listening socket, for QMP."""
    console: int
    """A socket for the kernel's console output, which is discarded once the reader is gone."""
    memory: int | None = None
    """A memory snapshot to resume."""
    programs: int | None = None
    """The program disk beside the image; read-only. If None, an empty one is attached."""

    @property
    def every(self) -> tuple[int, ...]:
        """The descriptors that QEMU must inherit."""
        kept = (self.kernel, self.initrd, self.root, self.base, self.disk, self.control, self.console)
        return (*kept, *(each for each in (self.memory, self.programs) if each is not None))


def build_command_line(program: str, handles: OpenFiles, size: SandboxSize, *, accelerator: str) -> list[str]:
    """Return QEMU's command line; `{line}` in it stands for the descriptor of the socket to the host end."""
    return [
        program,
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-S", "-sandbox", SANDBOX),
        *("-machine", f"{MACHINE},vmport=off,usb=off", "-accel", accelerator, "-cpu", CPU, "-smp", "1"),
        *("-m", f"{size.memory_bytes // MIB}M", "-rtc", "base=utc,clock=host"),
        *("-kernel", f"/proc/self/fd/{handles.kernel}", "-initrd", f"/proc/self/fd/{handles.initrd}"),
        *("-append", f"{QUIET} kasmon.processes={size.processes}"),
        *_file("root", handles.root, 1),
        *("-device", "virtio-blk-pci,drive=root"),
        *_file("base", handles.base, 2, "qcow2"),
        *_file("disk", handles.disk, 3, "qcow2", over="base"),
        *("-device", "virtio-blk-pci,drive=disk"),
        *(_build_empty_disk("programs") if handles.programs is None else _file("programs", handles.programs, 4)),
        *("-device", "virtio-blk-pci,drive=programs"),
        *("-device", "virtio-serial-pci,max_ports=2", "-chardev", "socket,id=line,fd={line}"),
        *("-device", "virtserialport,chardev=line,nr=1,name=kasmon", "-device", "virtio-rng-pci"),
        *("-chardev", f"socket,id=console,fd={handles.console}", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=qmp,fd={handles.control},server=on,wait=off", "-mon", "chardev=qmp,mode=control"),
        *(["-incoming", f"fd:{handles.memory}"] if handles.memory is not None else []),
    ]


def _build_empty_disk(name: str) -> list[str]:
    """Return the arguments of an empty program disk, of the same size as any other."""
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
