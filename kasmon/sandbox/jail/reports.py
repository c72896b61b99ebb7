"""Reports on a running jail: its usage, its confinement, and the hosts that it could not reach."""

from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Final

from kasmon.errors import UnableError
from kasmon.model.sandbox.policy import SIZES, SandboxPolicy, SandboxRuntime
from kasmon.sandbox.agent.context_files import NOTES
from kasmon.sandbox.jail import outside_view, proof
from kasmon.sandbox.jail.bwrap_arguments import HOME, USER, WORKSPACE
from kasmon.sandbox.jail.context import JailContext
from kasmon.sandbox.jail.limits import build_limit_prefix
from kasmon.sandbox.jail.proof import ExpectedConfinement, JailProof
from kasmon.sandbox.jail.usage import JailUsage, measure_usage
from kasmon.sandbox.jail.wrap import build_entry, run_entry
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.network.denials import Denial
from kasmon.sandbox.network.port_forward import NetworkConnector

LIMIT_S: Final = 10.0


class JailReports(JailContext):
    """Jails whose state can be read."""

    def usage(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> JailUsage:
        """Return what it uses, and its limits."""
        folders = (self.ground.workspace(policy), self.ground.home(policy.session))
        group = self._session_files(policy).group
        return measure_usage(runtime.pid, folders, SIZES[policy.size], group if group and group.is_there else None)

    def folders(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> Mapping[str, Path]:
        """Return its in-memory folders and its home: path inside -> path on this machine."""
        return {**outside_view.find_memory_folders(runtime.pid), HOME: self.ground.home(policy.session)}

    def environments(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> Iterator[tuple[str, bytes]]:
        """Yield each process inside, as text, with its initial environment."""
        return outside_view.read_environments(runtime.pid)

    def mapped(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> Container[int]:
        """Return the inodes of files that a process inside can write to through shared memory now."""
        return outside_view.find_mapped_inodes(runtime.pid)

    def allow(self, policy: SandboxPolicy) -> None:
        """Restrict the running jail's network access to the hosts of *policy* from now on.

        Raises:
            UnableError: if the jail was created without network access.
            UsageError: if the policy's hosts are not a valid list.
            SandboxError: if its proxy does not answer.
        """
        folder = self._session_files(policy).gate
        if not proxy_control.is_running(folder):
            raise UnableError(
                "this sandbox was created without network access.",
                hint="The next sandbox of its session will have network access.",
            )
        proxy_control.allow(folder, policy.hosts)

    def belongs(self, policy: SandboxPolicy, pid: int) -> None:
        """Make the egress proxy end with the jail whose first process is *pid*.

        Raises:
            SandboxError: if no proxy answers, or the process does not exist.
        """
        proxy_control.bind_to_process(self._session_files(policy).gate, pid)

    def refusals(self, policy: SandboxPolicy, since: float) -> str:
        """Return which hosts were refused after *since* and how to allow them; empty if none."""
        return proxy_control.hint(self._session_files(policy).gate, since) if policy.hosts else ""

    def denials(self, policy: SandboxPolicy) -> tuple[Denial, ...]:
        """Return the connections refused since its proxy was set up, oldest first; empty without network access."""
        return proxy_control.denials(self._session_files(policy).gate) if policy.hosts else ()

    def ports(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> NetworkConnector:
        """Return a connector to the ports of the jail of *runtime*; it needs no help from inside.

        Raises:
            SandboxError: if the jail has ended, or its network cannot be joined.
        """
        return NetworkConnector(runtime.pid, runtime.started, runtime.boot)

    def prove(self, policy: SandboxPolicy, pid: int, *, workdir: str = WORKSPACE) -> JailProof:
        """Check from outside, with the kernel, whether the jail of *pid* is confined as *policy* requires.

        *pid* is the pane's program, a jail's first process, or any process inside, in this machine's numbering.

        Raises:
            SandboxError: if the process has ended or cannot be read.
        """
        expected = ExpectedConfinement(writable=[*self._writable(policy, workdir), NOTES], user=self.ground.owner[0])
        return proof.verify(pid, expected)

    def prove_inside(self, policy: SandboxPolicy, *, workdir: str = WORKSPACE) -> JailProof:
        """Run a program in a jail of *policy* that checks its own confinement, and return the result.

        Raises:
            SandboxError: if no jail can be created, or the program does not answer.
        """
        with self._undo_on_error(policy, keeps_alive=True):
            view, _ = self._build_view(policy, workdir)
            command = [*build_limit_prefix(view.size, data_bytes=view.size.memory_bytes), *proof.probe_command()]
            whole = build_entry(self.ground, policy, view, command, self.program, None)
        said = proof.parse_report(run_entry(whole, LIMIT_S))
        expected = ExpectedConfinement(writable=self._writable(policy, workdir), user=USER)
        return proof.compare(said, expected, proof.read_own_namespaces())
