"""What one session's machine has on this machine: its disks and snapshots, its sockets, and its processes.

Whether it is alive is read from the system: its host end holds a lock on a file here, so there is never a second one.
"""

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

import msgspec

from kasmon.boot_id import boot
from kasmon.errors import RefusedError, SandboxError
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.sandbox.shared.filesystem_view import require_mountable
from kasmon.sandbox.shared.guest_paths import PROJECT, BindMount
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.processes import children, gone, holder, send_signal, started_at
from kasmon.sandbox.shared.snapshot_store import SnapshotStore

END_S: Final = 10.0
SETTLES_S: Final = 2.0
LOOK_S: Final = 0.005
FIXED: Final = ("/bin/", "/boot/", "/etc/", "/lib", "/mnt/", "/opt/", "/sbin/", "/var/")
"""Paths that belong to the image or the machine: nothing can be mounted below them."""
SOCKETS: Final = ("box", "door", "ports", "qmp")


class VmFiles:
    """The files of *policy*'s session. Constructing a `VmFiles` has no side effects."""

    def __init__(self, host_folders: HostFolders, policy: SandboxPolicy) -> None:
        self.host_folders, self.policy = host_folders, policy
        self.folder = host_folders.of(policy.session)
        self.snapshots = SnapshotStore(self.folder / "memory", policy.session, "microvm")
        self.base = self.folder / "base.qcow2"
        """Its disk in its initial state; read-only."""
        self.disk = self.folder / "disk.qcow2"
        """The changes to that disk since."""
        self.programs = self.folder / "programs.ext4"
        """The disk with this machine's programs, kept as long as the machine; it may not exist."""
        self.lock = self.folder / "lock"
        """The file on which its host end holds a lock for life."""
        self.copied = self.folder / "copied"
        """Exists if its snapshot is a copy of another session's that was not resumed yet."""

    @property
    def agent(self) -> Path:
        return self.host_folders.socket(self.policy.session)

    @property
    def control(self) -> Path:
        """The socket where its host end accepts requests from kasmon."""
        return self.host_folders.socket(self.policy.session, "door")

    @property
    def ports(self) -> Path:
        """The socket of its host end for connections to ports inside (`network.port_forward.ListenerConnector`)."""
        return self.host_folders.socket(self.policy.session, "ports")

    @property
    def gate(self) -> Path:
        """The folder of its egress proxy."""
        return self.host_folders.gate(self.policy.session)

    @property
    def qmp_socket(self) -> Path:
        return self.host_folders.socket(self.policy.session, "qmp")

    @property
    def trees(self) -> dict[str, Path]:
        """The folders of this machine that mirror those inside."""
        own = {
            "workspace": self.host_folders.workspace(self.policy),
            "home": self.host_folders.home(self.policy.session),
        }
        return own | {name: Path(bind.source) for name, bind in self.folders.items()}

    @property
    def folders(self) -> dict[str, BindMount]:
        """Folders of this machine mounted inside besides the workspace: themselves, or kasmon's copies."""
        policy, found = self.policy, dict[str, BindMount]()
        if policy.project:
            found["project"] = BindMount(source=policy.project, target=PROJECT, writable=policy.project_writable)
        for number, mount in enumerate(policy.mounts):
            target = mount.target or mount.source
            found[f"mount-{number}"] = BindMount(source=mount.source, target=target, writable=mount.writable)
        for name, bind in found.items():
            own = self.folder / name
            real = own if own.is_dir() else Path(bind.source).resolve()
            found[name] = msgspec.structs.replace(bind, source=str(real))
        return found

    def make_folders(self) -> tuple[str, ...]:
        """Create its folders; return notices for the user.

        Raises:
            RefusedError: if the policy's workspace cannot be used.
            OSError, UnsafeFolderError: if they cannot be created.
        """
        self.host_folders.make(self.policy.session)
        notices = [self._prepare_folder(name, bind) for name, bind in self.folders.items()]
        return tuple(filter(None, (*self._prepare_workspace(), *notices)))

    def _prepare_folder(self, name: str, bind: BindMount) -> str:
        """Prepare one of its folders; return a notice for the user."""
        require_mountable(self.host_folders, bind.source, bind.target)
        if bind.target.startswith(FIXED):
            raise RefusedError(
                f"a microvm cannot mount anything at {bind.target!r}: its own system is there.",
                hint="Use the tier `jail`.",
            )
        if Path(bind.source).is_file():
            raise RefusedError(
                f"a microvm can mount folders only, and {bind.source!r} is a file.", hint="Give its folder."
            )
        return self.host_folders.settle(self.policy, Path(bind.source), name, writable=bind.writable).notice

    def _prepare_workspace(self) -> tuple[str, ...]:
        if not self.policy.workspace:
            self.host_folders.own_workspace(self.policy.session)
            return ()
        notice = self.host_folders.settle(self.policy, Path(self.policy.workspace), "workspace", writable=True).notice
        return (notice,) if notice else ()

    def replace_disks(self, base: Path, disk: Path) -> None:
        """Replace its disks: *base*, and a copy of *disk* over it. Raises `OSError` if that fails."""
        for old in (self.base, self.disk, self.copied):
            old.unlink(missing_ok=True)
        try:
            os.link(base, self.base)  # a replacement of *base* does not change this link
        except OSError:
            shutil.copyfile(base, self.base)
        shutil.copyfile(disk, self.disk)

    def replace_program_disk(self, disk: Path | None) -> None:
        """Replace its program disk by *disk*, which does not change any more. Raises `OSError` if that fails."""
        self.programs.unlink(missing_ok=True)
        if disk is None:
            return
        try:
            os.link(disk, self.programs)  # this link survives the removal of *disk*
        except OSError:
            self.programs.symlink_to(disk)

    def runtime(self, notices: tuple[str, ...] = ()) -> SandboxRuntime | None:
        """Return the running machine; None if there is none."""
        host_end = holder(self.lock)
        qemu = next((pid for pid in children(host_end) if started_at(pid) is not None), None) if host_end else None
        if qemu is None:
            return None
        return SandboxRuntime(
            pid=qemu,
            started=started_at(qemu) or 0.0,
            front=host_end or 0,
            boot=boot(),
            socket=str(self.agent),
            session_folder=str(self.folder),
            workspace=str(self.trees["workspace"]),
            notices=notices,
        )

    def is_taken(self) -> bool:
        """Whether a machine runs here. Waits for one that is starting or ending."""
        until = time.monotonic() + SETTLES_S
        while holder(self.lock) is not None:
            if self.runtime() is not None or time.monotonic() > until:
                return True
            time.sleep(LOOK_S)
        return False

    def end(self, runtime: SandboxRuntime | None = None) -> None:
        """End the machine here, and that of *runtime*; remove its sockets. Raises `SandboxError` if it lives on."""
        until = time.monotonic() + END_S
        known = {runtime.pid: runtime.started} if runtime is not None else {}
        while (host_end := holder(self.lock)) or known:
            for pid in (*children(host_end), host_end) if host_end else ():
                if (began := started_at(pid)) is not None:
                    known[pid] = began
            for pid, began in known.items():
                send_signal(pid, signal.SIGKILL, began)
            for pid, began in known.items():
                if not gone(pid, began, until - time.monotonic()):
                    whose = self.policy.session
                    raise SandboxError(f"the machine of {whose!r} was not ended", f"its process {pid} does not end")
            known = {}
        for kind in SOCKETS:
            self.host_folders.socket(self.policy.session, kind).unlink(missing_ok=True)
