"""The base of all operations on jails: the folders on this machine, the session's files, and the view from inside."""

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
from kasmon.sandbox.shared.filesystem_view import build_view
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.processes import lives


class JailContext:
    """The jails of one kasmon. Constructing this has no side effects."""

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
            of: paths of the kasmon that owns the jails; by default those that the environment names.
            doors: path inside -> socket, or folder of sockets, of this machine; mounted there read-only.
            inside: the folder of the programs that run inside; by default kasmon's own.
            program: bubblewrap, by path or name.
        """
        self.places = of or places()
        self.ground = HostFolders(self.places, inside)
        self.doors = dict(doors or {})
        self.program = program

    def find(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> bool:
        """Whether the jail of *runtime* is still the same and alive, paused or not."""
        return lives(runtime.pid, runtime.started, runtime.boot)

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Remove its processes, sockets and mounts."""
        raise NotImplementedError

    def missing(self) -> UnavailableReason | None:
        """Return why no jail can be created here, as far as known without trying; None if nothing is missing."""
        return lacking(self.program)

    def _require_available(self) -> None:
        if found := lacking(self.program):
            raise SandboxError("cannot create a jail", found.why, found.hint)

    def _undo_on_error(self, policy: SandboxPolicy, *, keeps_alive: bool = False) -> AbstractContextManager[None]:
        """Clean up if the block raises; an error of the system becomes a `SandboxError`.

        *keeps_alive*: a running jail of the session is left alone.
        """

        def clear() -> None:
            if not keeps_alive or self._session_files(policy).first_process() is None:
                self.destroy(policy, None)

        return or_nothing(clear, "cannot create a jail")

    def _build_view(
        self,
        policy: SandboxPolicy,
        workdir: str,
        variables: Mapping[str, str] | None = None,
        programs: Sequence[Path] = (),
    ) -> tuple[FilesystemView, tuple[str, ...]]:
        """Return the view of the jail of *policy*, and notices; opens its egress proxy."""
        doors, known = dict(self.doors), dict(variables or {})
        if policy.hosts:
            self.ground.make(policy.session)
            doors[proxy_control.MOUNTED] = str(self._session_files(policy).open_gate(policy))
            known = proxy_control.add_proxy_variables(known, policy.hosts)
        return build_view(self.ground, policy, workdir, doors=doors, variables=known, programs=programs)

    def _add_context_files(self, view: FilesystemView, session: SessionId) -> FilesystemView:
        """Return *view* with the session's context files, so that `kasmon ctx` works inside."""
        own = AgentContextFiles(self.ground.of(session))
        own.make(self.ground.owner, load_context(self.places, session))
        variables = {**view.variables, "PATH": f"{BIN}:{view.variables['PATH']}", "KASMON_CONTEXT": CONTEXT}
        return msgspec.structs.replace(view, binds=[*view.binds, *own.binds], variables=variables)

    def _writable(self, policy: SandboxPolicy, workdir: str) -> list[str]:
        mounts = [mount.target or mount.source for mount in policy.mounts if mount.writable]
        return [workdir, *mounts, *([PROJECT] if policy.project_writable else [])]

    def _session_files(self, policy: SandboxPolicy) -> JailFiles:
        return JailFiles(self.ground, policy.session)

    def _require_running(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> None:
        if not self.find(policy, runtime):
            raise SandboxError(f"the jail of {policy.session!r} has ended", "its first process has ended")
