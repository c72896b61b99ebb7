"""What belongs to the jail of one session on this machine, beside its processes: its lock, group, socket, way out."""

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
from kasmon.sandbox.shared.processes import gone, holder, send


class JailFiles:
    """The site of *session*. Making a `JailFiles` touches nothing."""

    def __init__(self, ground: HostFolders, session: SessionId) -> None:
        self.ground, self.session = ground, session
        self.folder = ground.of(session)

    @property
    def record(self) -> Path:
        """The file that says which jail lives here; written once it answers."""
        return self.folder / "jail.json"

    @property
    def note(self) -> Path:
        """The file that says who had been stopped before all were."""
        return self.folder / "stopped.json"

    @property
    def gate(self) -> Path:
        """The folder of its way out. Sockets lie in it, so its path is short."""
        return self.folder / "gate" if os.geteuid() == 0 else self.ground.socket(self.session, "gate")

    @property
    def group(self) -> cgroup.Cgroup | None:
        """Its control group, there or not; None where we may make none. No other kasmon's has its name."""
        whose = hashlib.sha256(os.fsencode(self.ground.places.state)).hexdigest()[:8]
        return cgroup.group(f"{whose}-{self.session}")

    def first_process(self) -> int | None:
        """The first process of a jail that lives here, by the lock that it holds; None if there is none."""
        return holder(self.folder / "lock")

    def end(self, runtime: SandboxRuntime | None, limit_s: float) -> None:
        """End the jail that lives here, and that of *runtime*, which lives too.

        Raises:
            SandboxError: if its first process is not gone within *limit_s*.
        """
        until = time.monotonic() + limit_s
        known = [runtime] if runtime is not None else []
        while (locker := self.first_process()) or known:
            pid = known[0].pid if known else locker or 0
            started = known.pop().started if known else started_at(pid)
            if started is None and time.monotonic() < until:
                continue  # it ends just now
            send(pid, signal.SIGKILL, started)
            if started is None or not gone(pid, started, until - time.monotonic()):
                raise SandboxError(f"the jail of {self.session!r} was not ended", f"its process {pid} does not end")

    def make_group(self, size: SandboxSize) -> tuple[cgroup.Cgroup | None, cgroup.CgroupLimits]:
        """Its control group, made, and what of *size* that holds; None where we may make none."""
        group = self.group
        if group is not None:
            with contextlib.suppress(OSError):
                return group, group.make(size)
        return None, cgroup.CgroupLimits(memory=False, processes=False, cpus=False)

    def open_gate(self, policy: SandboxPolicy) -> Path:
        """What the jail sees of its way out, which is open when this returns.

        Raises:
            UsageError: if what *policy* says is no list of hosts.
            SandboxError: if no proxy could be started.
        """
        return gate.opened(self.gate, self.session, policy.hosts, owner=self.ground.owner).inside

    def clear(self) -> None:
        """Remove it, but for the home and the workspace; idempotent.

        Raises:
            OSError: if something cannot be removed.
        """
        self.ground.socket(self.session).unlink(missing_ok=True)
        gate.closed(self.gate)
        if (group := self.group) is not None:
            group.remove()
        self.ground.clear(self.session)
