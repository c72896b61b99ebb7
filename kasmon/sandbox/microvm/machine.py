"""The microvm tier: a session's sandbox with its own kernel, run by QEMU; its memory can be saved to disk.

Its disk holds `/workspace` and the home, and limits their size. Changes there are mirrored to folders of this machine,
before a run's result is passed on. Neither QEMU nor its host end runs as root, and neither can open a file: both
inherit what they need.
"""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from kasmon.errors import KasmonError, SandboxError, SnapshotRefusedError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SIZES, SandboxPolicy, SandboxRuntime, Tier
from kasmon.model.sandbox.snapshot import Snapshot, SnapshotVerdict
from kasmon.paths import Paths, user_paths, write_private
from kasmon.sandbox.base import PauseResult, TierProbe, UnavailableReason, UsageReport
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.microvm import program_disks, qemu_program
from kasmon.sandbox.microvm.boot import greet, remove_credentials, send_request, write_memory
from kasmon.sandbox.microvm.image import folder_of
from kasmon.sandbox.microvm.provisioning import KEEP_S, VmProvisioning
from kasmon.sandbox.microvm.qemu import QmpClient
from kasmon.sandbox.microvm.session_files import VmFiles
from kasmon.sandbox.microvm.warm_pool import MEMORY
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.network.denials import Denial
from kasmon.sandbox.network.port_forward import ListenerConnector
from kasmon.sandbox.remote_guest.launch_spec import BIN, ProgramLaunch, wrap_program
from kasmon.sandbox.shared.cleanup import clearing, or_nothing, remove_session_files
from kasmon.sandbox.shared.filesystem_view import BASE, own_variables
from kasmon.sandbox.shared.guest_paths import PATH, WORKSPACE
from kasmon.sandbox.shared.host_folders import COPY_ENTRIES
from kasmon.sandbox.shared.processes import lives
from kasmon.sandbox.shared.safe_tree import copy, remove_tree
from kasmon.sandbox.shared.usage import measure_usage

FILL_S: Final = 120.0
COPIED: Final = "its program is a copy, made when its machine was created"
STARTED: Final = "its machine was booted, not copied from a warm one"


class MicroVm:
    """The machines of one kasmon. Constructing a `MicroVm` has no side effects."""

    tier: Tier = "microvm"
    keeps_memory = True
    has_own_kernel: Literal[True] = True

    def __init__(
        self, of: Paths | None = None, *, image: Path | None = None, program: str = qemu_program.PROGRAM
    ) -> None:
        """
        Args:
            of: paths of the kasmon that owns the machines; by default those that the environment names.
            image: the folder of the image; by default that of the kasmon that the environment names.
            program: QEMU, by path or name.
        """
        self.paths = of or user_paths()
        self.provisioning = VmProvisioning(self.paths, image or folder_of(user_paths()), program, self.forget)
        self.host_folders = self.provisioning.host_folders

    # The `SandboxTier` protocol.

    def missing(self) -> UnavailableReason | None:
        """Return why no machine can be created here, as far as known without trying; None if nothing is missing."""
        return self.provisioning.missing()

    def probe(self) -> TierProbe:
        """Create a machine, send it a request, and end it."""
        if lack := self.provisioning.missing():
            return TierProbe(tier="microvm", ok=False, why=lack.why, hint=lack.hint)
        policy = SandboxPolicy(session=SessionId(f"vmprobe-{os.getpid()}"), tier="microvm")
        began = time.monotonic()
        try:
            runtime = self.create(policy)
            took_ms = (time.monotonic() - began) * 1000
        except (KasmonError, OSError) as error:
            why, hint = getattr(error, "message", str(error)), getattr(error, "hint", "")
            return TierProbe(tier="microvm", ok=False, why=why, hint=hint)
        finally:
            with contextlib.suppress(KasmonError):
                self.forget(policy)
        how = next((notice for notice in runtime.notices if STARTED in notice), "copied from a warm one")
        return TierProbe(
            tier="microvm", ok=True, why=f"{how}; {self.provisioning.describe_accelerator()}", measured_ms=took_ms
        )

    def workspace(self, policy: SandboxPolicy, /) -> str:
        """Return the folder of this machine that mirrors `/workspace`, up to date whenever a result arrives."""
        return str(self.host_folders.workspace(policy))

    def create(self, policy: SandboxPolicy, /, *, is_copy: bool = True) -> SandboxRuntime:
        """Create it, as a copy of the warm machine or booted, which takes up to two minutes; booted without *is_copy*.

        Raises:
            RefusedError: if the policy names a folder that a machine cannot mount.
        """
        return self._create(policy, (), is_copy=is_copy)

    def _create(self, policy: SandboxPolicy, parts: Sequence[str], *, is_copy: bool = True) -> SandboxRuntime:
        self.provisioning.require_available()
        vm_files, warm_pool = self._vm_files(policy), self.provisioning.warm_pool(policy.size)
        if vm_files.is_taken():
            raise SandboxError(f"cannot create a machine for {policy.session!r}", "it already has a running one")
        with or_nothing(lambda: self.destroy(policy, None), "cannot create a machine"):
            notices = vm_files.make_folders()
            vm_files.replace_program_disk(self.provisioning.disks.prepare(parts) if parts else None)
            self._open_gate(policy)
            origin = warm_pool.origin(self.provisioning.made_by, is_copy=is_copy)
            why = origin.why
            if origin.memory is not None:
                try:
                    vm_files.replace_disks(origin.base, warm_pool.nothing)
                    vm_files.snapshots.advance_generation()
                    self.provisioning.start_machine(vm_files, origin.memory, is_another=True)
                except SandboxError as error:
                    vm_files.end()
                    origin, why = origin._replace(memory=None), error.message
            if origin.memory is None:
                notices = (*notices, f"{STARTED}: {why}" if why else STARTED)
                vm_files.snapshots.advance_generation()
                notices = (*notices, *self.provisioning.boot(vm_files, warm_pool))
                why = self.provisioning.store_warm(vm_files, warm_pool) if is_copy else ""
                notices = (*notices, f"The next machine of this size has to boot too: {why}") if why else notices
                greet(vm_files, is_another=True)
            runtime = self.provisioning.require_runtime(vm_files, (*notices, *_fill(vm_files)))
            self._open_gate(policy, runtime.pid)
            self._set_proxy_variables(policy, runtime)
            return runtime

    def find(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> bool:
        """Whether the machine of *runtime* is still the same and alive, paused or not."""
        return lives(runtime.pid, runtime.started, runtime.boot)

    def adopt(self, policy: SandboxPolicy, /) -> SandboxRuntime | None:
        """Return the running machine of *policy*, even if it was not recorded; None if there is none."""
        return self._vm_files(policy).runtime()

    def kept(self, policy: SandboxPolicy, /) -> Snapshot | None:
        """Return the snapshot on disk that it can resume; None if there is none."""
        try:
            return self._vm_files(policy).snapshots.require_usable(self.provisioning.made_by)
        except (KasmonError, OSError):
            return None

    def check_snapshot(self, policy: SandboxPolicy, /, *, whole: bool = False) -> SnapshotVerdict | None:
        """Return its last snapshot on disk, and whether it can be resumed."""
        return self._vm_files(policy).snapshots.check_snapshot(lambda: self.provisioning.made_by, whole=whole)

    def wrap(
        self, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /
    ) -> list[str]:
        """Return the command that runs *argv* in a machine of its own; raises as `prepare_program`."""
        return wrap_program(self, policy, argv, workdir, variables)

    def prepare_program(
        self, policy: SandboxPolicy, argv: tuple[str, ...], workdir: str, variables: Mapping[str, str], /
    ) -> ProgramLaunch:
        """Return how *argv* is run there: with the image's programs, or copies of this machine's if it is elsewhere.

        It runs in `/workspace`, which mirrors *workdir*. A program that is too large is refused.
        """
        self.provisioning.require_available()
        brought = program_disks.prepare_program(argv, variables)
        known = {**own_variables(variables), **brought.variables}
        own = {name: value for name, value in known.items() if not name.startswith("LC_")}
        own |= proxy_control.add_proxy_variables(own, policy.hosts)
        return ProgramLaunch(  # without LC_*: the image has no locales
            argv=brought.argv,
            workdir=WORKSPACE,
            variables={**BASE, **own, "PATH": ":".join([BIN, *brought.path, PATH])},
            programs=brought.parts,
            notices=(
                f"its folder {workdir!r} is /workspace in its machine; changes there are mirrored here",
                *((COPIED,) if brought.parts else ()),
            ),
        )

    def create_for_agent(self, policy: SandboxPolicy, program_launch: ProgramLaunch, /) -> SandboxRuntime:
        """Do as `create`; an agent's programs are in the image, in its home, or on a disk of its machine.

        If that disk does not exist yet, it is made, which takes up to a minute.
        """
        return self._create(policy, program_launch.programs)

    def pause(
        self, policy: SandboxPolicy, runtime: SandboxRuntime, /, *, to_disk: bool = False, turn: int = 0
    ) -> PauseResult:
        """Stop it. *to_disk*: its memory is on disk when this returns, and its processes have ended."""
        self._require_running(policy, runtime)
        vm_files = self._vm_files(policy)
        if not to_disk:
            with QmpClient(vm_files.qmp_socket) as qmp:
                qmp.do("stop")
            return PauseResult(held=True)
        faults = send_request(vm_files.control, KEEP_S, "freeze").get("faults")
        if faults:
            greet(vm_files)
            why = f"not all of its files could be copied to this machine ({'; '.join(map(str, faults))})"
            raise SandboxError(f"the machine of {policy.session!r} was not paused", why)
        with QmpClient(vm_files.qmp_socket) as qmp:
            qmp.do("stop")
            with vm_files.snapshots.draft() as draft:
                write_memory(qmp, draft / MEMORY)
                remove_credentials(policy, draft / MEMORY)
                snapshot = vm_files.snapshots.confirm(draft, self.provisioning.made_by, turn)
        read_back = vm_files.snapshots.check_snapshot(lambda: self.provisioning.made_by, whole=True)
        if read_back is None or read_back.refused or read_back.snapshot.id != snapshot.id:
            why = read_back.refused if read_back is not None and read_back.refused else "it does not exist"
            raise SandboxError(f"the machine of {policy.session!r} was not paused", f"its memory snapshot: {why}")
        vm_files.end(runtime)
        return PauseResult(held=False, snapshot=snapshot.id)

    def resume(self, policy: SandboxPolicy, runtime: SandboxRuntime, pause_result: PauseResult, /) -> SandboxRuntime:
        """Resume it and set its clock; from a snapshot on disk only once, and only with the disk that belongs to it."""
        vm_files = self._vm_files(policy)
        if pause_result.held:
            self._require_running(policy, runtime)
            vm_files.snapshots.advance_generation()
            self._open_gate(policy, runtime.pid)
            with QmpClient(vm_files.qmp_socket) as qmp:
                qmp.do("cont")
            greet(vm_files)
            return runtime
        if vm_files.is_taken():
            raise SandboxError(f"the machine of {policy.session!r} was not resumed", "it already has a running one")
        snapshot = vm_files.snapshots.require_usable(self.provisioning.made_by)
        if pause_result.snapshot and pause_result.snapshot != snapshot.id:
            raise SnapshotRefusedError(f"the current snapshot is {snapshot.id}, not {pause_result.snapshot}")
        try:
            had_gate = vm_files.gate.exists()
            self._open_gate(policy)
            self.provisioning.start_machine(
                vm_files,
                vm_files.snapshots.path(snapshot, MEMORY),
                lambda: vm_files.snapshots.mark_used(snapshot),
                is_another=vm_files.copied.exists(),
            )
            vm_files.copied.unlink(missing_ok=True)
            again = self.provisioning.require_runtime(vm_files)
            self._open_gate(policy, again.pid)
            if not had_gate:
                self._set_proxy_variables(policy, again)
            return again
        except BaseException as error:
            with contextlib.suppress(KasmonError):
                vm_files.end()
            if isinstance(error, OSError):
                raise SandboxError(f"the machine of {policy.session!r} was not resumed", str(error)) from error
            raise

    def fork(self, policy: SandboxPolicy, pause_result: PauseResult, other: SandboxPolicy, /) -> PauseResult:
        """Copy the disk, snapshot and mirrored folders of a machine that is paused to disk for *other*."""
        vm_files, theirs = self._vm_files(policy), self._vm_files(other)
        snapshot = vm_files.snapshots.require_usable(self.provisioning.made_by)
        limit = SIZES[policy.size].disk_bytes
        with or_nothing(lambda: self.destroy(other, None), "cannot create a machine"):
            theirs.make_folders()
            theirs.replace_disks(vm_files.base, vm_files.disk)
            theirs.replace_program_disk(vm_files.programs.resolve() if vm_files.programs.exists() else None)
            for name, folder in vm_files.trees.items():
                if folder != theirs.trees[name]:
                    remove_tree(theirs.trees[name])
                    copy(
                        folder,
                        theirs.trees[name],
                        self.host_folders.owner,
                        limit_bytes=limit,
                        limit_entries=COPY_ENTRIES,
                    )
            write_private(theirs.copied, b"")
            return PauseResult(held=False, snapshot=vm_files.snapshots.copy_to(theirs.snapshots, snapshot).id)

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Remove its processes, sockets, disks and snapshots; its mirrored folders stay. Idempotent."""
        self._vm_files(policy).end(runtime if runtime is not None and self.find(policy, runtime) else None)
        proxy_control.close_proxy(self._vm_files(policy).gate)
        with clearing(_label(policy)):
            self.host_folders.clear(policy.session)

    def forget(self, policy: SandboxPolicy, /) -> str:
        """Remove what a session keeps after `destroy`; return the path of the copy of its folder, if that is kept."""
        self.destroy(policy, None)
        return remove_session_files(self.host_folders, policy.session, policy.workspace, _label(policy))

    def usage(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> UsageReport:
        """Return its usage of this machine, with its limits: QEMU's memory, and the size of its mirrored folders."""
        own = self._vm_files(policy).trees
        return measure_usage(runtime.pid, (own["workspace"], own["home"]), SIZES[policy.size])

    def refresh(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> tuple[str, ...]:
        """Copy changes outside into the machine's folders; return notices for the user.

        If a path changed on both sides, the outside version keeps its name, and the inside version is put beside it.
        """
        self._require_running(policy, runtime)
        return _collect_notices(send_request(self._vm_files(policy).control, FILL_S, "refresh"))

    def ports(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> ListenerConnector:
        """Return a connector to the ports of the machine of *runtime*, over its one connection."""
        self._require_running(policy, runtime)
        return ListenerConnector(str(self._vm_files(policy).ports))

    def denials(self, policy: SandboxPolicy, since: float = 0.0, /) -> tuple[Denial, ...]:
        """Return the connections refused after *since*, oldest first."""
        return proxy_control.denials(self._gate(policy), since)

    def allow(self, policy: SandboxPolicy, /) -> None:
        """Allow the hosts of *policy* from now on, even if the sandbox had no network access before."""
        if proxy_control.is_running(self._gate(policy)):
            proxy_control.allow(self._gate(policy), policy.hosts)
        elif (runtime := self._vm_files(policy).runtime()) is not None:
            self._open_gate(policy, runtime.pid)
            greet(self._vm_files(policy))
            self._set_proxy_variables(policy, runtime)

    # Its parts.

    def _vm_files(self, policy: SandboxPolicy) -> VmFiles:
        return VmFiles(self.host_folders, policy)

    def _gate(self, policy: SandboxPolicy) -> Path:
        return self._vm_files(policy).gate

    def _open_gate(self, policy: SandboxPolicy, pid: int = 0) -> None:
        """Open the proxy; it ends with process *pid*, if that is known."""
        proxy_control.open_proxy(self._gate(policy), policy.session, policy.hosts, owner=self.host_folders.owner)
        if pid:
            proxy_control.bind_to_process(self._gate(policy), pid)

    def _set_proxy_variables(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> None:
        channel = GuestChannel(runtime.socket)
        try:
            channel.set_variables(proxy_control.add_proxy_variables({}, policy.hosts))
        finally:
            channel.close()

    def _require_running(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> None:
        if not self.find(policy, runtime):
            raise SandboxError(f"the machine of {policy.session!r} has ended", "QEMU has ended")


def _label(policy: SandboxPolicy) -> str:
    return f"the machine of {policy.session!r}"


def _fill(vm_files: VmFiles) -> tuple[str, ...]:
    """Copy its files into a new machine; return notices for the user. Raises `SandboxError` if they do not all fit."""
    reply = send_request(vm_files.control, FILL_S, "fill")
    if reply.get("not_taken"):
        why = "; ".join(map(str, reply["not_taken"]))
        raise SandboxError(f"not all files of {vm_files.policy.session!r} fit into a machine", why)
    return _collect_notices(reply)


def _collect_notices(reply: Mapping[str, Any]) -> tuple[str, ...]:
    """Return notices for the user about copied files, from the host end's answer."""
    left = [
        f"Changes on this machine were not copied in ({each})."
        for each in (*reply.get("left", ()), *reply.get("not_taken", ()))
    ]
    return (*left, *map(str, reply.get("apart", ())))
