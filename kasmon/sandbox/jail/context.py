"""What every act on a jail needs: the ground it stands on, its site, and what it is to look like."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from kasmon.errors import SandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.paths import Paths, places
from kasmon.sandbox.agent.context_files import BIN, CONTEXT, AgentContextFiles, load_context
from kasmon.sandbox.base import UnavailableReason
from kasmon.sandbox.jail.bwrap_arguments import PROJECT, FilesystemView
from kasmon.sandbox.jail.probe import lacking
from kasmon.sandbox.jail.session_files import JailFiles
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.shared.cleanup import or_nothing
from kasmon.sandbox.shared.filesystem_view import scene
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.processes import lives


class JailContext:
    """The jails of one kasmon. Making this touches nothing."""

    def __init__(
        self,
        of: Paths | None = None,
        *,
        doors: Mapping[str, str] | None = None,
        inside: Path | None = None,
        program: str = "bwrap",
    ) -> None:
        """
        Args:
            of: whose jails; by default those of the kasmon that the environment names.
            doors: place inside -> socket, or folder of sockets, of this machine that is seen there, read-only.
            inside: the folder of what runs inside; by default kasmon's own.
            program: bubblewrap, by path or name.
        """
        self.places = of or places()
        self.ground = HostFolders(self.places, inside)
        self.doors = dict(doors or {})
        self.program = program

    def find(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> bool:
        """Whether the jail of *runtime* is still that one and lives, asleep or not."""
        return lives(runtime.pid, runtime.started, runtime.boot)

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Leave no process, socket or mount of it."""
        raise NotImplementedError

    def missing(self) -> UnavailableReason | None:
        """Why none can be made here, as far as that is seen without trying; None where nothing speaks against it."""
        return lacking(self.program)

    def _can(self) -> None:
        if found := lacking(self.program):
            raise SandboxError("cannot create a jail", found.why, found.hint)

    def _or_nothing(self, policy: SandboxPolicy, *, keeps_alive: bool = False) -> AbstractContextManager[None]:
        """Clear away what was begun where something raises; an error of the system becomes ours.

        *keeps_alive*: a jail of it that lives is left as it is.
        """

        def clear() -> None:
            if not keeps_alive or self._site(policy).first_process() is None:
                self.destroy(policy, None)

        return or_nothing(clear, "cannot create a jail")

    def _scene(
        self,
        policy: SandboxPolicy,
        workdir: str,
        variables: Mapping[str, str] | None = None,
        programs: Sequence[Path] = (),
    ) -> tuple[FilesystemView, tuple[str, ...]]:
        """What the jail of *policy* looks like, and notices; its way out is open."""
        doors, known = dict(self.doors), dict(variables or {})
        if policy.hosts:
            self.ground.make(policy.session)
            doors[proxy_control.MOUNTED] = str(self._site(policy).open_gate(policy))
            known = proxy_control.finding(known, policy.hosts)
        return scene(self.ground, policy, workdir, doors=doors, variables=known, programs=programs)

    def _with_place(self, looks: FilesystemView, session: SessionId) -> FilesystemView:
        """*looks* with what those inside may know of their session; `kasmon ctx` works there."""
        own = AgentContextFiles(self.ground.of(session))
        own.make(self.ground.owner, load_context(self.places, session))
        variables = {**looks.variables, "PATH": f"{BIN}:{looks.variables['PATH']}", "KASMON_CONTEXT": CONTEXT}
        return msgspec.structs.replace(looks, binds=[*looks.binds, *own.binds], variables=variables)

    def _writable(self, policy: SandboxPolicy, workdir: str) -> list[str]:
        mounts = [mount.target or mount.source for mount in policy.mounts if mount.writable]
        return [workdir, *mounts, *([PROJECT] if policy.project_writable else [])]

    def _site(self, policy: SandboxPolicy) -> JailFiles:
        return JailFiles(self.ground, policy.session)

    def _must_live(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> None:
        if not self.find(policy, runtime):
            raise SandboxError(f"the jail of {policy.session!r} has ended", "its first process has ended")
