"""Boots a machine, or resumes it from a snapshot, which is marked as used before the machine runs.

The machine, its QEMU and its host end, outlives this process. Requests reach it through the host end.
"""

import contextlib
import errno
import hashlib
import json
import mmap
import os
import secrets
import select
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from kasmon.errors import SandboxError
from kasmon.model.sandbox.policy import SIZES, SandboxPolicy
from kasmon.sandbox.microvm.image import BUSYBOX, KERNEL, ROOT, VmImage
from kasmon.sandbox.microvm.qemu import OpenFiles, QmpClient, build_command_line
from kasmon.sandbox.microvm.session_files import VmFiles
from kasmon.sandbox.network.proxy_control import socket_in
from kasmon.sandbox.shared.credentials import SHORTEST, CredentialFindings, forms, resolve
from kasmon.sandbox.shared.host_folders import INSIDE, PYTHON, list_program_files
from kasmon.sandbox.shared.processes import LOG_BYTES, listen, open_log, open_memory_file

WRITE_S: Final = 60.0
LITTLE_BYTES: Final = 1 << 20
"""A disk with less free space counts as full."""

Image: TypeAlias = bytearray | mmap.mmap


def write_memory(qmp: QmpClient, path: Path) -> None:
    """Write the memory of a stopped machine to *path*.

    Raises:
        OSError: if the disk is full.
        SandboxError: if it cannot be written.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        qmp.do("migrate-set-parameters", arguments={"max-bandwidth": 1 << 40})
        qmp.do("getfd", [handle], fdname="memory")
        qmp.do("migrate", uri="fd:memory")
        qmp.wait_for_migration(WRITE_S)
    except SandboxError as error:
        if os.fstatvfs(handle).f_bavail * os.fstatvfs(handle).f_frsize < LITTLE_BYTES:
            raise OSError(errno.ENOSPC, error.message) from error
        raise
    finally:
        os.close(handle)


def remove_credentials(policy: SandboxPolicy, path: Path) -> None:
    """Remove values of credentials from the memory at *path*: node does not clear freed memory. May raise `OSError`."""
    if policy.credentials and path.stat().st_size:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            scrub(memory, resolve(policy.credentials))


def scrub(image: Image, findings: CredentialFindings) -> int:
    """Overwrite each value of *findings* in *image*, except for those too short to search; return how many."""
    count = 0
    for form in sorted({form for value in findings.secrets for form in forms(value)}, key=len, reverse=True):
        if len(form) < SHORTEST:
            continue
        at = image.find(form)
        while at >= 0:
            image[at : at + len(form)] = bytes(len(form))
            count += 1
            at = image.find(form, at + len(form))
    return count


LINE: Final = Path(__file__).with_name("link")
FOLDERS: Final = ("bin", "dev", "low", "modules", "new", "opt", "opt/kasmon", "opt/kasmon/line", "proc", "sys")

CPIO_MAGIC: Final = "070701"
CPIO_END: Final = "TRAILER!!!"


class CpioArchive:
    """An archive. Names have no leading slash; a folder must be added before its content."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._number = 0

    def add_folder(self, name: str) -> None:
        self._add(name, stat.S_IFDIR | 0o755, b"")

    def add_file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self._add(name, stat.S_IFREG | mode, content)

    def link(self, name: str, target: str) -> None:
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def add_console(self) -> None:
        self._add("dev/console", stat.S_IFCHR | 0o600, b"", 5, 1)

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


def initrd(folder: Path, image: VmImage) -> bytes:
    """Return the initrd of a machine of *image* in *folder*. Raises `OSError` if a file of it is missing."""
    made = CpioArchive()
    for name in FOLDERS:
        made.add_folder(name)
    made.add_console()
    made.add_file("bin/busybox", (folder / BUSYBOX).read_bytes(), 0o755)
    made.link("bin/sh", "busybox")
    made.add_file("init", (LINE / "init").read_bytes(), 0o755)
    made.add_file("modules/order", "\n".join(image.modules).encode())
    for name in image.modules:
        made.add_file(f"modules/{name}", (folder / "modules" / name).read_bytes())
    for path in list_program_files(INSIDE):
        made.add_file(f"opt/kasmon/{path.name}", path.read_bytes())
    for path in sorted(LINE.glob("*.py")):
        made.add_file(f"opt/kasmon/line/{path.name}", path.read_bytes())
    return made.whole()


def code_hash() -> str:
    """Return a hash of kasmon's code that runs in a machine, different for each version."""
    digest = hashlib.sha256()
    for path in (*list_program_files(INSIDE), *list_program_files(LINE)):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


READY_S: Final = 10.0


class HostEndCode(NamedTuple):
    """The code of a host end, readable for the machines' user."""

    line: Path
    """The folder of the link's code."""
    inside: Path


class HostEndConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a host end, with its open files by their descriptors."""

    listen: int
    """A listening socket for connections to the guest agent."""
    control: int
    """A listening socket for requests from kasmon."""
    ports: int
    """A listening socket for connections to ports inside."""
    gate: str
    """The socket of its egress proxy, which may not exist."""
    lock: int
    """The session's lock file; the host end holds its lock for life."""
    trees: dict[str, int]
    """Name -> open folder, for the mirrored folders."""
    read_only: list[str]
    """The names of those that are read-only inside."""
    most_bytes: int
    """The maximum size of one file."""

    @property
    def every(self) -> tuple[int, ...]:
        return (self.listen, self.control, self.ports, self.lock, *self.trees.values())


def start_host_end(
    code: HostEndCode,
    argv: Sequence[str],
    files: Sequence[int],
    config: HostEndConfig,
    log: int,
    owner: tuple[int, int],
) -> None:
    """Start the host end and, by it, QEMU with *argv*; return once both run, with the machine still stopped.

    They have no parent here, and outlive this process.

    Args:
        code: the code of the host end, readable for *owner*.
        argv: QEMU's command line.
        files: descriptors that QEMU inherits.
        log: a file for their output.
        owner: user and group of both.

    Raises:
        SandboxError: if it does not run within `READY_S`, or another machine of the session runs.
    """
    reads, tells = os.pipe()
    message = {**msgspec.to_builtins(config), "argv": list(argv), "files": list(files), "ready": tells}
    given = open_memory_file(msgspec.json.encode(message))
    drop = {"user": owner[0], "group": owner[1], "extra_groups": ()} if os.geteuid() == 0 else {}
    try:
        host_end = subprocess.Popen(  # type: ignore[call-overload]
            [PYTHON, "-I", "-S", os.fspath(code.line / "main.py"), "host", os.fspath(code.inside)],
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
            stdin=given,
            stdout=log,
            stderr=log,
            pass_fds=[*files, *config.every, tells],
            start_new_session=True,
            umask=0o077,
            **drop,
        )
        os.close(tells)
        tells = -1
        host_end.wait()
        reply = _read_json_line(reads)
        if "qemu" not in reply:
            why = reply.get("why") or read_last_log_line(log) or "its host end did not respond"
            raise SandboxError("cannot create a machine", str(why))
    except OSError as error:
        raise SandboxError("cannot create a machine", str(error)) from error
    finally:
        os.close(given)
        os.close(reads)
        if tells >= 0:
            os.close(tells)


def read_last_log_line(log: int) -> str:
    return last_line(os.pread(log, LOG_BYTES, 0))


def last_line(reply: bytes) -> str:
    """Return the last line of *reply*, without QEMU's name in front."""
    lines = reply.rstrip(b"\0").decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("qemu-system-x86_64: ") if lines else ""


def _read_json_line(handle: int) -> dict[str, Any]:
    held, until = b"", time.monotonic() + READY_S
    while b"\n" not in held and select.select([handle], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(handle, 4096)
        if not piece:
            return {}
        held += piece
    reply = json.loads(held) if b"\n" in held else {}
    return reply if isinstance(reply, dict) else {}


def send_request(path: Path, limit_s: float, do: str, **message: Any) -> dict[str, Any]:
    """Send *do* to the host end at *path*; return its answer. Raises `SandboxError` if that is not done in time."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as stream:
        stream.settimeout(limit_s)
        try:
            stream.connect(os.fspath(path))
            stream.sendall(json.dumps({"do": do, **message}).encode() + b"\n")
            with stream.makefile("rb") as file:
                line = file.readline()
        except TimeoutError as error:
            raise SandboxError(f"the machine did not {do}", f"it took longer than {limit_s:g} s") from error
        except OSError as error:
            raise SandboxError(f"the machine did not {do}", error.strerror or str(error)) from error
    if not line:
        raise SandboxError(f"the machine did not {do}", "it ended")
    reply: dict[str, Any] = json.loads(line)
    if why := reply.get("why"):
        raise SandboxError(f"the machine did not {do}", str(why))
    return reply


BOOT_S: Final = 90.0
LOAD_S: Final = 30.0
ANSWER_S: Final = 20.0
CHANCE_BYTES: Final = 64


class VmResources(msgspec.Struct, frozen=True, kw_only=True):
    """What all machines of one kasmon run with."""

    program: str
    accelerator: str
    folder: Path
    image: VmImage


def start_machine(
    vm_files: VmFiles,
    resources: VmResources,
    code: HostEndCode,
    memory: Path | None = None,
    loaded: Callable[[], None] = lambda: None,
    *,
    is_another: bool = False,
    is_nobodys: bool = False,
    limit_s: float | None = None,
) -> None:
    """Start a machine on the disks of *vm_files*, resumed from *memory* or booted; the guest agent answers then.

    Args:
        vm_files: the files of its session; no machine runs there.
        resources: what it runs with.
        code: the code of its host end, readable for the owner.
        memory: the file of its memory snapshot.
        loaded: called when that memory is loaded, before the machine runs.
        is_another: whether it is a copy of a machine and must get a new identity.
        is_nobodys: whether it is not assigned to its session yet; `greet` must be called again.
        limit_s: its time limit; None is the default.

    Raises:
        SandboxError: if it does not start; something of it may be left then.
    """
    until = time.monotonic() + (limit_s or (LOAD_S if memory else BOOT_S))
    with contextlib.ExitStack() as stack:
        log = open_log()
        stack.callback(os.close, log)
        console, theirs = (stack.enter_context(end) for end in socket.socketpair())
        _start_processes(vm_files, resources, code, memory, log, theirs.fileno())
        theirs.close()
        try:
            with QmpClient(vm_files.qmp_socket) as qmp:
                if memory is not None:
                    qmp.wait_for_migration(until - time.monotonic())
                loaded()
                qmp.do("cont")
            if memory is None:
                send_request(vm_files.control, until - time.monotonic(), "wait")
            greet(vm_files, is_another=is_another, is_nobodys=is_nobodys)
        except SandboxError as error:
            error_line = read_last_log_line(log) or last_line(_read_available(console))
            if error_line:
                raise SandboxError("the machine did not boot", error_line) from error
            raise


def greet(vm_files: VmFiles, *, is_another: bool = False, is_nobodys: bool = False) -> None:
    """Send the machine the time, entropy, its folders and programs, and whether it has network access.

    It accepts connections from then on.

    Raises:
        SandboxError: if it does not answer.
    """
    message: dict[str, object] = {"chance": secrets.token_hex(CHANCE_BYTES), "is_another": is_another}
    if not is_nobodys:
        message["way_out"] = True
        message["programs"] = vm_files.programs.exists()
        message["folders"] = {
            name: {"at": bind.target, "writable": bind.writable} for name, bind in vm_files.folders.items()
        }
    send_request(vm_files.control, ANSWER_S, "hello", now=time.time(), **message)


def _start_processes(
    vm_files: VmFiles, resources: VmResources, code: HostEndCode, memory: Path | None, log: int, console: int
) -> None:
    size = SIZES[vm_files.policy.size]
    with contextlib.ExitStack() as stack:

        def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
            handle = os.open(path, flags | os.O_CLOEXEC)
            stack.callback(os.close, handle)
            return handle

        first = open_memory_file(initrd(resources.folder, resources.image))
        stack.callback(os.close, first)
        handles = OpenFiles(
            kernel=open_file(resources.folder / KERNEL),
            initrd=first,
            root=open_file(resources.folder / ROOT),
            base=open_file(vm_files.base),
            disk=open_file(vm_files.disk, os.O_RDWR),
            control=stack.enter_context(listen(vm_files.qmp_socket)).fileno(),
            console=console,
            memory=open_file(memory) if memory else None,
            programs=open_file(vm_files.programs)
            if vm_files.programs.is_symlink() or vm_files.programs.exists()
            else None,
        )
        config = HostEndConfig(
            listen=stack.enter_context(listen(vm_files.agent)).fileno(),
            control=stack.enter_context(listen(vm_files.control)).fileno(),
            ports=stack.enter_context(listen(vm_files.ports)).fileno(),
            gate=os.fspath(socket_in(vm_files.gate)),
            lock=open_file(vm_files.lock, os.O_RDWR),
            trees={name: open_file(tree, os.O_RDONLY | os.O_DIRECTORY) for name, tree in vm_files.trees.items()},
            read_only=[name for name, bind in vm_files.folders.items() if not bind.writable],
            most_bytes=size.disk_bytes,
        )
        program = shutil.which(resources.program) or resources.program
        argv = build_command_line(program, handles, size, accelerator=resources.accelerator)
        start_host_end(code, argv, handles.every, config, log, vm_files.host_folders.owner)


def _read_available(stream: socket.socket) -> bytes:
    data = b""
    stream.setblocking(False)
    with contextlib.suppress(OSError):
        while piece := stream.recv(1 << 16):
            data += piece
    return data
