"""What belongs to the machine of one session on this machine: its disks and memories, its sockets, its processes.

Whether it lives is asked of the system: its door holds a lock on a file here for life, so there is never a second one.
"""

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

from kasmon.boot import boot
from kasmon.errors import SandboxError
from kasmon.model.sandbox import Policy, Runtime
from kasmon.sandbox.jail.ground import Ground
from kasmon.sandbox.jail.process import children, gone, holder, send, started_at
from kasmon.sandbox.memory import Memories

END_S: Final = 10.0
SETTLES_S: Final = 2.0
LOOK_S: Final = 0.005
SOCKETS: Final = ("box", "door", "qmp")


class Lot:
    """The lot of *policy*'s session. Making a `Lot` touches nothing."""

    def __init__(self, ground: Ground, policy: Policy) -> None:
        self.ground, self.policy = ground, policy
        self.folder = ground.of(policy.session)
        self.memories = Memories(self.folder / "memory", policy.session, "microvm")

    @property
    def base(self) -> Path:
        """Its disk, as it was when it began; nobody writes to it."""
        return self.folder / "base.qcow2"

    @property
    def disk(self) -> Path:
        """What became of that disk since."""
        return self.folder / "disk.qcow2"

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def copied(self) -> Path:
        """There, where its memory is a copy of another session's that has not been gone on from."""
        return self.folder / "copied"

    @property
    def agent(self) -> Path:
        """Where the agent inside is reached."""
        return self.ground.socket(self.policy.session)

    @property
    def control(self) -> Path:
        """Where its door takes what its keeper asks."""
        return self.ground.socket(self.policy.session, "door")

    @property
    def orders(self) -> Path:
        """Where QEMU takes orders."""
        return self.ground.socket(self.policy.session, "qmp")

    @property
    def trees(self) -> dict[str, Path]:
        """The folders of this machine that mirror ones inside."""
        return {"workspace": self.ground.workspace(self.policy), "home": self.ground.home(self.policy.session)}

    def furnish(self) -> tuple[str, ...]:
        """Make its folders; what a person should know of them.

        Raises:
            RefusedError: if it cannot have the workspace that the policy names.
            OSError, UnsafeFolderError: if they cannot be made.
        """
        self.ground.make(self.policy.session)
        if not self.policy.workspace:
            self.ground.own_workspace(self.policy.session)
            return ()
        notice = self.ground.settle(self.policy, Path(self.policy.workspace), "workspace", writable=True).notice
        return (notice,) if notice else ()

    def lay(self, base: Path, disk: Path) -> None:
        """Give it *base*, and a copy of *disk* over that, in the place of what it had.

        Raises:
            OSError: if that cannot be.
        """
        for old in (self.base, self.disk, self.copied):
            old.unlink(missing_ok=True)
        try:
            os.link(base, self.base)  # what is made anew in its place does not change ours
        except OSError:
            shutil.copyfile(base, self.base)
        shutil.copyfile(disk, self.disk)

    def runtime(self, notices: tuple[str, ...] = ()) -> Runtime | None:
        """The machine that lives here; None if there is none."""
        door = holder(self.lock)
        qemu = next((pid for pid in children(door) if started_at(pid) is not None), None) if door else None
        if qemu is None:
            return None
        return Runtime(
            pid=qemu,
            started=started_at(qemu) or 0.0,
            front=door or 0,
            boot=boot(),
            socket=str(self.agent),
            ground=str(self.folder),
            workspace=str(self.trees["workspace"]),
            notices=notices,
        )

    def is_taken(self) -> bool:
        """Whether a machine lives here. One that begins or ends just now is waited for."""
        until = time.monotonic() + SETTLES_S
        while holder(self.lock) is not None:
            if self.runtime() is not None or time.monotonic() > until:
                return True
            time.sleep(LOOK_S)
        return False

    def end(self, runtime: Runtime | None = None) -> None:
        """End the machine that lives here, and that of *runtime*, which lives too; nobody can reach it then.

        Raises:
            SandboxError: if it is not gone within `END_S`.
        """
        until = time.monotonic() + END_S
        known = {runtime.pid: runtime.started} if runtime is not None else {}
        while (door := holder(self.lock)) or known:
            for pid in (*children(door), door) if door else ():
                if (began := started_at(pid)) is not None:
                    known[pid] = began
            for pid, began in known.items():
                send(pid, signal.SIGKILL, began)
            for pid, began in known.items():
                if not gone(pid, began, until - time.monotonic()):
                    whose = self.policy.session
                    raise SandboxError(f"the machine of {whose!r} was not ended", f"its process {pid} does not end")
            known = {}
        for kind in SOCKETS:
            self.ground.socket(self.policy.session, kind).unlink(missing_ok=True)
