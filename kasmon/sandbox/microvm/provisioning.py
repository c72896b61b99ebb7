"""Provisioning of machines: their image, their accelerator, and warm machines of each size to copy."""

import contextlib
import functools
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import KasmonError, SandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SIZES, Interpreter, SandboxPolicy, SandboxRuntime
from kasmon.model.sandbox.snapshot import Snapshot, SnapshotMaker
from kasmon.paths import Paths
from kasmon.sandbox.base import UnavailableReason
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.microvm import qemu, qemu_program
from kasmon.sandbox.microvm.boot import (
    LINE,
    HostEndCode,
    VmResources,
    code_hash,
    send_request,
    start_machine,
    write_memory,
)
from kasmon.sandbox.microvm.image import load_image
from kasmon.sandbox.microvm.program_disks import ProgramDisks
from kasmon.sandbox.microvm.qemu import QmpClient
from kasmon.sandbox.microvm.qemu_program import KvmTrial
from kasmon.sandbox.microvm.session_files import VmFiles
from kasmon.sandbox.microvm.warm_pool import WarmPool
from kasmon.sandbox.shared.host_folders import HostFolders

LIMIT_S: Final = 60.0
FIRST: Final[dict[Interpreter, str]] = {
    "bash": ":",
    "python": "await __import__('asyncio').sleep(0); __import__('subprocess')",
}
"""Code to run in each; node takes too much memory to run in every machine."""


KEEP_S: Final = 60.0
BUILD_HINT: Final = "Build it: `kasmon sandbox image build`."
WARM: Final = "warm"
"""The file beside a machine's disk with its memory, until it is stored as warm."""


class VmProvisioning:
    """What the machines of one kasmon share."""

    def __init__(
        self, paths: Paths, image_folder: Path, program: str, forget: Callable[[SandboxPolicy], object]
    ) -> None:
        """What is made from the image is stored beside *image_folder*; *forget* removes everything of a machine."""
        self.host_folders = HostFolders(paths)
        self.image_folder = image_folder
        self.program = program
        self._forget = forget
        self._line = HostFolders(paths, LINE)

    @functools.cached_property
    def means(self) -> VmResources:
        """Raises `SandboxError` if there is no image."""
        image = load_image(self.image_folder)
        if image is None:
            raise SandboxError("cannot create a machine", "there is no image", BUILD_HINT)
        return VmResources(program=self.program, accelerator=self.accelerator, folder=self.image_folder, image=image)

    @functools.cached_property
    def made_by(self) -> SnapshotMaker:
        """The maker of snapshots; only the same one can resume them."""
        whole = hashlib.sha256(f"{self.means.image.id} {code_hash()} {qemu.QUIET}".encode())
        return SnapshotMaker(
            program=f"qemu {qemu_program.read_version(self.program)}",
            machine=qemu.MACHINE,
            cpu=f"{qemu.CPU} {self.accelerator}",
            image=whole.hexdigest(),
        )

    # The accelerator: KVM or emulation.

    @functools.cached_property
    def accelerator(self) -> str:
        """QEMU's accelerator: KVM if a trial here found it faster (`qemu_program.KvmTrial`), else emulation."""
        if qemu_program.find_obstacle(self.host_folders.owner):
            return qemu_program.EMULATED
        found = qemu_program.load_trial(self._trial, self._identity)
        return qemu_program.ACCELERATED if found is not None and found.uses_kvm else qemu_program.EMULATED

    def describe_accelerator(self, emulated_ms: float | None = None) -> str:
        """Return as text whether KVM is used here and how long a start takes; it is timed unless that is known.

        Args:
            emulated_ms: the time of a start without KVM, if known.

        Raises:
            SandboxError: if no machine can be created.
        """
        if why := qemu_program.find_obstacle(self.host_folders.owner):
            return f"emulated, without KVM: {why}"
        found = qemu_program.load_trial(self._trial, self._identity)
        if found is None:
            found = qemu_program.run_trial(self._identity, self._time_start, emulated_ms)
            self._store_trial(found)
        return found.sentence

    @property
    def _trial(self) -> Path:
        return self.image_folder.parent / "machines" / "kvm.json"

    @property
    def _identity(self) -> str:
        image = load_image(self.image_folder)
        return qemu_program.identity(self.program, image.id if image else "")

    def _time_start(self, accelerator: str, limit_s: float | None) -> float:
        """Return how many milliseconds a machine takes to start with *accelerator*; it is removed."""
        policy = SandboxPolicy(session=SessionId(f"timed-{os.getpid()}"), tier="microvm")
        vm_files, warm_pool = VmFiles(self.host_folders, policy), self.warm_pool(policy.size)
        resources = msgspec.structs.replace(self.means, accelerator=accelerator)
        try:
            vm_files.make_folders()
            warm_pool.make()
            vm_files.replace_disks(warm_pool.plain, warm_pool.nothing)
            code = self._code()
            began = time.monotonic()
            start_machine(vm_files, resources, code, limit_s=limit_s)
            return (time.monotonic() - began) * 1000
        except OSError as error:
            raise SandboxError("cannot start a machine", str(error)) from error
        finally:
            self._forget(policy)

    def _store_trial(self, trial: KvmTrial) -> None:
        with contextlib.suppress(OSError):
            qemu_program.store_trial(self._trial, trial)
        for name in ("accelerator", "means", "made_by"):
            self.__dict__.pop(name, None)

    # Program disks.

    @property
    def disks(self) -> ProgramDisks:
        return ProgramDisks(self.image_folder.parent / "machines" / "programs")

    # Warm machines.

    def warm_pool(self, size: str) -> WarmPool:
        return WarmPool(self.image_folder.parent / "machines", SIZES[size])

    def make_warm(self, policy: SandboxPolicy) -> Snapshot:
        """Start a machine of *policy*, warm it up, and store it: new ones of its size are copies of it.

        Takes up to a minute. Nothing of the session of *policy* is left.

        Raises:
            SandboxError: if it cannot be started or stored.
        """
        self.require_available()
        vm_files, warm_pool = VmFiles(self.host_folders, policy), self.warm_pool(policy.size)
        try:
            vm_files.make_folders()
            warm_pool.make()
            self.boot(vm_files, warm_pool)
            self._save_warm(vm_files, vm_files.folder / WARM)
            vm_files.end()
            return warm_pool.store(vm_files.disk, vm_files.folder / WARM, self.made_by)
        except OSError as error:
            raise SandboxError("no warm machine was stored", str(error)) from error
        finally:
            self._forget(policy)

    def store_warm(self, vm_files: VmFiles, warm_pool: WarmPool) -> str:
        """Store the machine of *vm_files*, which was just started and is not assigned to its session, as warm.

        It continues then, and must be greeted as another one.

        Returns:
            Why there is no warm machine to copy now; empty if there is.

        Raises:
            SandboxError: if it does not continue.
        """
        memory, copy = vm_files.folder / WARM, vm_files.folder / f"{WARM}-disk"
        with warm_pool.claimed() as is_ours:
            if not is_ours:
                return "another one is being stored"
            why = ""
            try:
                self._save_warm(vm_files, memory)
                shutil.copyfile(vm_files.disk, copy)
            except (KasmonError, OSError) as error:
                why = getattr(error, "message", "") or str(error)
            with QmpClient(vm_files.qmp_socket) as qmp:
                qmp.do("cont")
            try:
                if not why:
                    warm_pool.store(copy, memory, self.made_by)
            except (KasmonError, OSError) as error:
                why = getattr(error, "message", "") or str(error)
            for left in (copy, memory):
                left.unlink(missing_ok=True)
            return why

    def _save_warm(self, vm_files: VmFiles, memory: Path) -> None:
        """Warm up and stop the machine of *vm_files*, and write its memory to the file *memory*."""
        with contextlib.closing(GuestChannel(self.require_runtime(vm_files).socket)) as channel:
            channel.prewarm(tuple(FIRST))
            for interpreter, code in FIRST.items():
                channel.run(interpreter, code, timeout_s=LIMIT_S)
        send_request(vm_files.control, KEEP_S, "freeze")
        with QmpClient(vm_files.qmp_socket) as qmp:
            qmp.do("stop")
            write_memory(qmp, memory)

    # Start.

    def start_machine(
        self,
        vm_files: VmFiles,
        memory: Path | None = None,
        loaded: Callable[[], None] = lambda: None,
        *,
        is_another: bool = False,
        is_nobodys: bool = False,
    ) -> None:
        start_machine(vm_files, self.means, self._code(), memory, loaded, is_another=is_another, is_nobodys=is_nobodys)

    def boot(self, vm_files: VmFiles, warm_pool: WarmPool) -> tuple[str, ...]:
        """Boot a machine without assigning it to its session; return notices for the user.

        If it does not boot with KVM any more, it is emulated.
        """
        vm_files.replace_disks(warm_pool.plain, warm_pool.nothing)
        try:
            self.start_machine(vm_files, is_nobodys=True)
        except SandboxError as error:
            known = qemu_program.load_trial(self._trial, self._identity)
            if self.accelerator != qemu_program.ACCELERATED or known is None:
                raise
            vm_files.end()
            why = f"a machine with it did not start ({error.message.rstrip('.')})"
            self._store_trial(msgspec.structs.replace(known, why=why, at=time.time()))
            vm_files.replace_disks(warm_pool.plain, warm_pool.nothing)
            self.start_machine(vm_files, is_nobodys=True)
            return (f"Machines are emulated from now on: {why}.",)
        return ()

    def _code(self) -> HostEndCode:
        return HostEndCode(self._line.things() / "opt", self.host_folders.things() / "opt")

    def require_runtime(self, vm_files: VmFiles, notices: tuple[str, ...] = ()) -> SandboxRuntime:
        runtime = vm_files.runtime(notices)
        if runtime is None:
            raise SandboxError("the machine did not boot", "it exited immediately")
        return runtime

    def missing(self) -> UnavailableReason | None:
        """Return why no machine can be created here, as far as known without trying; None if nothing is missing."""
        if lack := qemu_program.lacking(self.program):
            return lack
        return None if load_image(self.image_folder) is not None else UnavailableReason("there is no image", BUILD_HINT)

    def require_available(self) -> None:
        """Raise `SandboxError` if no machine can be created here."""
        if lack := self.missing():
            raise SandboxError("cannot create a machine", lack.why, lack.hint)
