"""What one session's jail has on this machine besides processes: its lock, control group, socket and egress proxy."""

import contextlib
import hashlib
import os
import signal
import time
from pathlib import Path

from kasmon.errors import SandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime, SandboxSize
from kasmon.process_identity import started_at
from kasmon.sandbox.jail import cgroup
from kasmon.sandbox.network import proxy_control as gate
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.processes import gone, holder, send_signal


class JailFiles:
    """The files of *session*. Constructing a `JailFiles` has no side effects."""

    def __init__(self, host_folders: HostFolders, session: SessionId) -> None:
        self.host_folders, self.session = host_folders, session
        self.folder = host_folders.of(session)
        self.record = self.folder / "jail.json"
        """The file that records the running jail; written once the jail answers."""
        self.note = self.folder / "stopped.json"
        """The file that lists the processes that were stopped before the jail was paused."""

    @property
    def gate(self) -> Path:
        """The folder of its egress proxy."""
        return self.host_folders.gate(self.session)

    @property
    def group(self) -> cgroup.Cgroup | None:
        """Its control group, which may not exist; None if kasmon may not create any. Its name is unique per kasmon."""
        whose = hashlib.sha256(os.fsencode(self.host_folders.paths.state)).hexdigest()[:8]
        return cgroup.find_group(f"{whose}-{self.session}")

    def first_process(self) -> int | None:
        """Return the first process of the jail that runs here, found by its lock; None if there is none."""
        return holder(self.folder / "lock")

    def end(self, runtime: SandboxRuntime | None, limit_s: float) -> None:
        """End the jail here, and that of *runtime*. Raises `SandboxError` if one lives after *limit_s*."""
        until = time.monotonic() + limit_s
        known = [runtime] if runtime is not None else []
        while (locker := self.first_process()) or known:
            pid = known[0].pid if known else locker or 0
            started = known.pop().started if known else started_at(pid)
            if started is None and time.monotonic() < until:
                continue  # it is ending
            send_signal(pid, signal.SIGKILL, started)
            if started is None or not gone(pid, started, until - time.monotonic()):
                raise SandboxError(f"the jail of {self.session!r} was not ended", f"its process {pid} does not end")

    def make_group(self, size: SandboxSize) -> tuple[cgroup.Cgroup | None, cgroup.CgroupLimits]:
        """Create its control group and return it with the limits of *size* that it holds; None if not allowed."""
        group = self.group
        if group is not None:
            with contextlib.suppress(OSError):
                return group, group.make(size)
        return None, cgroup.CgroupLimits(memory=False, processes=False, cpus=False)

    def open_gate(self, policy: SandboxPolicy) -> Path:
        """Open its egress proxy and return the folder that the jail sees.

        Without hosts the proxy starts at the jail's first connection: most such jails never connect.

        Raises:
            UsageError: if the policy's hosts are not a valid list.
            SandboxError: if no proxy could be started.
        """
        owner = self.host_folders.owner
        if policy.hosts:
            gate.open_proxy(self.gate, self.session, policy.hosts, owner=owner)
        else:
            gate.open_on_demand(self.gate, self.session, owner=owner, find_sandbox=self.first_process)
        return gate.socket_in(self.gate).parent

    def clear(self) -> None:
        """Remove all files but the home and the workspace. Idempotent. Raises `OSError` if something is left."""
        self.host_folders.socket(self.session).unlink(missing_ok=True)
        gate.close_proxy(self.gate)
        if (group := self.group) is not None:
            group.remove()
        self.host_folders.clear(self.session)
