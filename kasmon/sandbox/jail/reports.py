"""What a jail says of itself while it lives: what it uses, how it is confined, whom it did not reach."""

from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Final

from kasmon.errors import UnableError
from kasmon.model.sandbox.policy import SIZES, SandboxPolicy, SandboxRuntime
from kasmon.sandbox.agent.context_files import NOTES
from kasmon.sandbox.jail import outside_view, proof
from kasmon.sandbox.jail.bwrap_arguments import HOME, USER, WORKSPACE
from kasmon.sandbox.jail.context import JailContext
from kasmon.sandbox.jail.limits import limited
from kasmon.sandbox.jail.proof import ExpectedConfinement, JailProof
from kasmon.sandbox.jail.usage import JailUsage, usage
from kasmon.sandbox.jail.wrap import answer, entry
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.network.denials import Denial
from kasmon.sandbox.network.port_forward import NetworkConnector

LIMIT_S: Final = 10.0


class JailReports(JailContext):
    """Jails that can be asked."""

    def usage(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> JailUsage:
        """What it uses, beside what it may."""
        folders = (self.ground.workspace(policy), self.ground.home(policy.session))
        group = self._site(policy).group
        return usage(runtime.pid, folders, SIZES[policy.size], group if group and group.is_there else None)

    def folders(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> Mapping[str, Path]:
        """What is in memory, and its home: where it is inside, and for us."""
        return {**outside_view.folders(runtime.pid), HOME: self.ground.home(policy.session)}

    def environments(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> Iterator[tuple[str, bytes]]:
        """Each process inside, in words, with what it was started with."""
        return outside_view.environments(runtime.pid)

    def mapped(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> Container[int]:
        """The inodes of files that somebody inside can write to as to memory now."""
        return outside_view.mapped(runtime.pid)

    def allow(self, policy: SandboxPolicy) -> None:
        """Let the way out of the jail that lives lead whither *policy* says from now on.

        Raises:
            UnableError: if it was made without one.
            UsageError: if what *policy* says is no list of hosts.
            SandboxError: if its proxy does not answer.
        """
        folder = self._site(policy).gate
        if not proxy_control.found(folder):
            raise UnableError(
                "this sandbox was created without network access.",
                hint="The next sandbox of its session will have network access.",
            )
        proxy_control.allow(folder, policy.hosts)

    def belongs(self, policy: SandboxPolicy, pid: int) -> None:
        """Let the way out of the jail whose first process is *pid* end with it.

        Raises:
            SandboxError: if no proxy answers, or there is no such process.
        """
        proxy_control.belongs(self._site(policy).gate, pid)

    def refusals(self, policy: SandboxPolicy, since: float) -> str:
        """Whom it did not reach after *since*, and how that is allowed; empty where nobody was refused."""
        return proxy_control.hint(self._site(policy).gate, since) if policy.hosts else ""

    def denials(self, policy: SandboxPolicy) -> tuple[Denial, ...]:
        """Whom it did not reach since its way out was made, oldest first; nobody where it may reach nobody."""
        return proxy_control.denials(self._site(policy).gate) if policy.hosts else ()

    def ports(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> NetworkConnector:
        """The way to the ports of the jail that lives at *runtime*; nothing inside has to help.

        Raises:
            SandboxError: if it is gone, or its network cannot be joined.
        """
        return NetworkConnector(runtime.pid, runtime.started, runtime.boot)

    def prove(self, policy: SandboxPolicy, pid: int, *, workdir: str = WORKSPACE) -> JailProof:
        """Whether the jail that *pid* stands in front of, or is in, is as *policy* wants; asked of the kernel, outside.

        *pid* is the pane's program, a jail's first process, or anybody inside, in this machine's numbering.

        Raises:
            SandboxError: if it is gone, or may not be looked at.
        """
        wanted = ExpectedConfinement(writable=[*self._writable(policy, workdir), NOTES], user=self.ground.owner[0])
        return proof.settled(pid, wanted)

    def prove_inside(self, policy: SandboxPolicy, *, workdir: str = WORKSPACE) -> JailProof:
        """Whether a program in a jail of *policy* sees itself confined as it should be: it is run, and ends.

        Raises:
            SandboxError: if no jail can be made, or the program does not answer.
        """
        with self._or_nothing(policy, keeps_alive=True):
            looks, _ = self._scene(policy, workdir)
            command = [*limited(looks.size, data_bytes=looks.size.memory_bytes), *proof.probe_command()]
            whole = entry(self.ground, policy, looks, command, self.program, None)
        said = proof.told(answer(whole, LIMIT_S))
        wanted = ExpectedConfinement(writable=self._writable(policy, workdir), user=USER)
        return proof.compare(said, wanted, proof.ours())
