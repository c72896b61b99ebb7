"""The jail tier: a session's sandbox of namespaces and a seccomp filter around ordinary processes, made by bubblewrap.

It shares this machine's kernel, so it does not protect against kernel exploits. When its first process ends, all
processes inside end. Whether a jail is alive is read from the system: from that process's id, start time and boot id,
and from a lock that it holds on a file in its session folder. The lock also finds a jail that is not recorded yet.
"""

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from kasmon.boot_id import boot
from kasmon.errors import KasmonError, SandboxError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import MIB, SIZES, SandboxPolicy, SandboxRuntime, Tier
from kasmon.paths import Paths, read_json, user_paths, write_private
from kasmon.sandbox.agent.context_files import BIN, CONTEXT, NOTES, AgentContextFiles, load_context
from kasmon.sandbox.base import ConfinementProof, PauseResult, TierProbe, UnavailableReason, UsageReport
from kasmon.sandbox.jail import cgroup, proof, seccomp
from kasmon.sandbox.jail.bwrap_arguments import USER
from kasmon.sandbox.jail.cgroup import AGENT_BYTES, build_limit_prefix
from kasmon.sandbox.jail.probe import lacking
from kasmon.sandbox.jail.proof import ExpectedConfinement
from kasmon.sandbox.jail.session_files import JailFiles
from kasmon.sandbox.jail.start import start
from kasmon.sandbox.jail.wrap import WrappedCommand, build_entry, build_jail_view, run_entry
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.network.denials import Denial
from kasmon.sandbox.network.port_forward import NetworkConnector
from kasmon.sandbox.shared.cleanup import clearing, or_nothing, remove_session_files
from kasmon.sandbox.shared.filesystem_view import FilesystemView, own_variables
from kasmon.sandbox.shared.guest_paths import HOME, INSIDE, PATH, PROJECT, WORKSPACE, BindMount
from kasmon.sandbox.shared.host_folders import PYTHON, HostFolders
from kasmon.sandbox.shared.processes import PROC, lives, started_at
from kasmon.sandbox.shared.program_files import needed
from kasmon.sandbox.shared.usage import measure_usage

BUILT: Final = "a jail shares this machine's kernel: it does not protect against kernel exploits"
FORWARDER: Final = (PYTHON, "-I", "-S", f"{INSIDE}/proxy_forwarder.py", "--")
"""The prefix of a command inside: it starts the forwarder that leads programs to the egress proxy."""
LIMIT_S: Final = 10.0
LOOSE: Final = "no control group limits memory and CPU here: each process has its own memory limit"


class Jail:
    """Jails of one kasmon. Constructing a `Jail` has no side effects."""

    tier: Tier = "jail"
    keeps_memory = False

    program = "bwrap"
    """bubblewrap, by path or name."""

    def __init__(self, of: Paths | None = None, *, inside: Path | None = None) -> None:
        """Jails of the kasmon of the paths *of*, with the programs of the folder *inside*; by default our own."""
        self.paths = of or user_paths()
        self.host_folders = HostFolders(self.paths, inside)

    # The `SandboxTier` protocol.

    def missing(self) -> UnavailableReason | None:
        """Return why no jail can be created here, as far as known without trying; None if nothing is missing."""
        return lacking(self.program)

    def probe(self) -> TierProbe:
        """Create a jail, run a program in it that checks its confinement, and end it."""
        if found := lacking(self.program):
            return TierProbe(tier="jail", ok=False, why=found.why, hint=found.hint)
        policy = SandboxPolicy(session=SessionId(f"probe-{os.getpid()}"))
        began = time.monotonic()
        try:
            _, held = self._session_files(policy).make_group(SIZES[policy.size])
            shown = self.prove_inside(policy)
        except (KasmonError, OSError) as error:
            return TierProbe(
                tier="jail", ok=False, why=getattr(error, "message", str(error)), hint=getattr(error, "hint", "")
            )
        finally:
            with contextlib.suppress(KasmonError):
                self.forget(policy)
        took_ms = (time.monotonic() - began) * 1000
        known = BUILT if held.memory and held.cpus else f"{BUILT}; {LOOSE}"
        return TierProbe(tier="jail", ok=shown.ok, why="; ".join(shown.mismatches) or known, measured_ms=took_ms)

    def workspace(self, policy: SandboxPolicy, /) -> str:
        """Return the folder of this machine that is `/workspace` inside."""
        return str(self.host_folders.workspace(policy))

    def create(self, policy: SandboxPolicy, /) -> SandboxRuntime:
        """Create the jail. Raises `RefusedError` if the policy names a folder that is not allowed."""
        session, files = policy.session, self._session_files(policy)
        if files.first_process() is not None:
            raise SandboxError(f"cannot create a jail for {session!r}", "it already has a running one")
        self._require_available()
        program = shutil.which(self.program) or self.program
        with self._undo_on_error(policy):
            view, notices = build_jail_view(self.host_folders, policy, WORKSPACE)
            view = _add_context_files(self.host_folders, self.paths, view, session)
            group, held = self._session_files(policy).make_group(view.size)
            data_bytes = 0 if held.memory else view.size.memory_bytes
            agent = [PYTHON, "-I", "-S", f"{INSIDE}/main.py", "forward"]
            init = start(
                program,
                view,
                [*build_limit_prefix(view.size, data_bytes=data_bytes), *agent],
                filter_=seccomp.build_filter(platform.machine()),
                owner=self.host_folders.owner,
                sockets={"KASMON_LISTEN_FD": self.host_folders.socket(session)},
                add_process=group.add_process if group is not None else lambda _: None,
            )
            runtime = SandboxRuntime(
                pid=init,
                started=started_at(init) or 0.0,
                boot=boot(),
                socket=str(self.host_folders.socket(session)),
                session_folder=str(self.host_folders.of(session)),
                workspace=str(self.host_folders.workspace(policy)),
                notices=notices,
            )
            if policy.hosts:
                proxy_control.bind_to_process(files.gate, init)
            write_private(files.record, msgspec.json.encode(runtime))
        return runtime

    def find(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> bool:
        """Whether the jail of *runtime* is still the same and alive, paused or not."""
        return lives(runtime.pid, runtime.started, runtime.boot)

    def adopt(self, policy: SandboxPolicy, /) -> SandboxRuntime | None:
        """Return the running jail of *policy*, even if its creator did not record it; None if there is none."""
        runtime = read_json(self._session_files(policy).record, SandboxRuntime, None)
        return runtime if runtime and self.find(policy, runtime) else None

    def wrap(
        self, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /
    ) -> list[str]:
        """Return the command that runs *argv* in a jail of its own; raises as `wrap_agent`."""
        return self.wrap_agent(policy, argv, workdir, variables).command

    def wrap_agent(
        self,
        policy: SandboxPolicy,
        argv: Sequence[str],
        workdir: str,
        variables: Mapping[str, str],
        *,
        context_binds: Sequence[BindMount] = (),
        path: Sequence[str] = (),
    ) -> WrappedCommand:
        """Do as `wrap`, and return notices for the user as well.

        The agent's folder has the same path inside and outside, since agents record paths. Its home is the session's
        and outlives each jail (`HostFolders.home`). The jail ends with the thread that starts it: that thread must
        live as long as its process.

        Args:
            context_binds: kasmon's own files that are mounted inside as well.
            path: folders inside that are searched for programs first.

        Raises:
            SandboxError: if no jail can be created here.
            RefusedError: if the policy or the agent needs a folder that is not allowed in a jail.
            NotFoundError: if the program does not exist.
        """
        self._require_available()
        need = needed(argv[0], variables.get("PATH"))
        with self._undo_on_error(policy, keeps_alive=True):
            own = {**own_variables(variables), "PATH": ":".join([*path, *need.path, PATH])}
            view, notices = build_jail_view(self.host_folders, policy, workdir, own, need.folders)
            view = msgspec.structs.replace(view, binds=[*view.binds, *context_binds])
            group, held = self._session_files(policy).make_group(view.size)
            most = max(view.size.memory_bytes, AGENT_BYTES)
            command = [
                *build_limit_prefix(view.size, data_bytes=0 if held.memory else most),
                *FORWARDER,
                need.program,
                *argv[1:],
            ]
            whole = build_entry(self.host_folders, policy, view, command, self.program, group)
        real = next(bind.source for bind in view.binds if bind.target == workdir)
        if not held.memory:
            notices = (
                *notices,
                f"each of the agent's processes may use {most // MIB} MiB: no control group is available here",
            )
        return WrappedCommand(command=whole, notices=notices, workdir=real)

    def pause(
        self, policy: SandboxPolicy, runtime: SandboxRuntime, /, *, to_disk: bool = False, turn: int = 0
    ) -> PauseResult:
        """Stop all processes inside; they keep their memory. If it raises, all continue."""
        if to_disk:
            raise UnableError("a jail cannot save its memory to disk.", hint="Pause it in RAM (`--hold`).")
        self._require_running(policy, runtime)
        files = self._session_files(policy)
        what = f"the jail of {policy.session!r} was not paused"
        try:
            is_asleep = cgroup.freeze_jail(runtime.pid, files.group, files.note)
        except OSError as error:
            why = f"who was stopped in it before cannot be noted ({error.strerror or error})"
            raise SandboxError(what, why) from error
        if not is_asleep:
            raise SandboxError(what, "a process in it does not stop")
        return PauseResult(held=True)

    def resume(self, policy: SandboxPolicy, runtime: SandboxRuntime, pause_result: PauseResult, /) -> SandboxRuntime:
        """Continue the jail; its network access is in force before that."""
        self._require_running(policy, runtime)
        files = self._session_files(policy)
        if policy.hosts:
            files.open_gate(policy)
            proxy_control.bind_to_process(files.gate, runtime.pid)
        cgroup.unfreeze_jail(runtime.pid, files.group, files.note)
        return runtime

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Remove its processes, sockets, mounts and files, except for its home and workspace. Idempotent."""
        files = self._session_files(policy)
        files.end(runtime if runtime is not None and self.find(policy, runtime) else None, LIMIT_S)
        with clearing(_label(policy)):
            files.clear()

    def forget(self, policy: SandboxPolicy, /, workdir: str = "") -> str:
        """Do as `SandboxTier.forget`; *workdir* is the folder that it had, if that is not the policy's workspace."""
        self.destroy(policy, None)
        return remove_session_files(self.host_folders, policy.session, workdir or policy.workspace, _label(policy))

    def usage(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> UsageReport:
        """Return what it uses, and its limits."""
        folders = (self.host_folders.workspace(policy), self.host_folders.home(policy.session))
        group = self._session_files(policy).group
        memory_bytes = group.number("memory.current") if group and group.is_there else None
        return measure_usage(runtime.pid, folders, SIZES[policy.size], memory_bytes)

    def folders(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> Mapping[str, Path]:
        """Return its in-memory folders and its home: path inside -> path on this machine."""
        in_memory = {place: PROC / f"{runtime.pid}/root{place}" for place in proof.IN_MEMORY}
        return {**in_memory, HOME: self.host_folders.home(policy.session)}

    def environments(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> Iterator[tuple[str, bytes]]:
        """Yield each process inside, as text, with its initial environment."""
        return proof.read_environments(runtime.pid)

    def mapped(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> Container[int]:
        """Return the inodes of files that a process inside can write to through shared memory now."""
        return proof.find_mapped_inodes(runtime.pid)

    def allow(self, policy: SandboxPolicy) -> None:
        """Restrict the running jail's network access to the hosts of *policy* from now on.

        Raises:
            UnableError: if the jail does not run, or an earlier version created it without a proxy.
            UsageError: if the policy's hosts are not a valid list.
        """
        files = self._session_files(policy)
        first = files.first_process()
        if first is None or not proxy_control.socket_in(files.gate).parent.is_dir():
            raise UnableError(
                "this sandbox has no egress proxy.", hint="The next sandbox of its session will have network access."
            )
        files.open_gate(policy)
        if policy.hosts:
            proxy_control.bind_to_process(files.gate, first)

    def denials(self, policy: SandboxPolicy, since: float = 0.0, /) -> tuple[Denial, ...]:
        """Return the connections refused after *since*, oldest first."""
        return proxy_control.denials(self._session_files(policy).gate, since)

    def ports(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> NetworkConnector:
        """Return a connector to the ports of the jail of *runtime*; it needs no help from inside."""
        return NetworkConnector(runtime.pid, runtime.started, runtime.boot)

    def prove(self, policy: SandboxPolicy, pid: int, *, workdir: str = WORKSPACE) -> ConfinementProof:
        """Check from outside, with the kernel, whether the jail of *pid* is confined as *policy* requires.

        *pid* is the pane's program, a jail's first process, or any process inside, in this machine's numbering.
        """
        expected = ExpectedConfinement(writable=[*_writable(policy, workdir), NOTES], user=self.host_folders.owner[0])
        return proof.verify(pid, expected)

    def prove_inside(self, policy: SandboxPolicy, *, workdir: str = WORKSPACE) -> ConfinementProof:
        """Run a program in a jail of *policy* that checks its own confinement, and return the result."""
        with self._undo_on_error(policy, keeps_alive=True):
            view, _ = build_jail_view(self.host_folders, policy, workdir)
            command = [*build_limit_prefix(view.size, data_bytes=view.size.memory_bytes), *proof.probe_command()]
            whole = build_entry(self.host_folders, policy, view, command, self.program, None)
        report = proof.parse_report(run_entry(whole, LIMIT_S))
        expected = ExpectedConfinement(writable=_writable(policy, workdir), user=USER)
        return proof.compare(report, expected, proof.read_own_namespaces())

    def _require_available(self) -> None:
        if found := lacking(self.program):
            raise SandboxError("cannot create a jail", found.why, found.hint)

    def _undo_on_error(self, policy: SandboxPolicy, *, keeps_alive: bool = False) -> AbstractContextManager[None]:
        """Clean up if the block raises; with *keeps_alive*, a running jail of the session is left alone."""

        def clear() -> None:
            if not keeps_alive or self._session_files(policy).first_process() is None:
                self.destroy(policy, None)

        return or_nothing(clear, "cannot create a jail")

    def _session_files(self, policy: SandboxPolicy) -> JailFiles:
        return JailFiles(self.host_folders, policy.session)

    def _require_running(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> None:
        if not self.find(policy, runtime):
            raise SandboxError(f"the jail of {policy.session!r} has ended", "its first process has ended")


def _label(policy: SandboxPolicy) -> str:
    return f"the jail of {policy.session!r}"


def _add_context_files(
    host_folders: HostFolders, paths: Paths, view: FilesystemView, session: SessionId
) -> FilesystemView:
    """Return *view* with the session's context files, so that `kasmon ctx` works inside."""
    own = AgentContextFiles(host_folders.of(session))
    own.make(host_folders.owner, load_context(paths, session))
    variables = {**view.variables, "PATH": f"{BIN}:{view.variables['PATH']}", "KASMON_CONTEXT": CONTEXT}
    return msgspec.structs.replace(view, binds=[*view.binds, *own.binds], variables=variables)


def _writable(policy: SandboxPolicy, workdir: str) -> list[str]:
    mounts = [mount.target or mount.source for mount in policy.mounts if mount.writable]
    return [workdir, *mounts, *([PROJECT] if policy.project_writable else [])]
