"""What a jail says of itself while it lives: what it uses, how it is confined, whom it did not reach."""

from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Final

from kasmon.errors import UnableError
from kasmon.model.sandbox import SIZES, Policy, Runtime
from kasmon.sandbox.belongings import NOTES
from kasmon.sandbox.jail import proof, sight
from kasmon.sandbox.jail.arguments import HOME, USER, WORKSPACE
from kasmon.sandbox.jail.jails import Jails
from kasmon.sandbox.jail.limits import limited
from kasmon.sandbox.jail.proof import Proof, Wanted
from kasmon.sandbox.jail.usage import Usage, usage
from kasmon.sandbox.jail.wrapping import answer, entry
from kasmon.sandbox.network import gate
from kasmon.sandbox.network.denial import Denial
from kasmon.sandbox.network.forwarding import Reach

LIMIT_S: Final = 10.0


class Witness(Jails):
    """Jails that can be asked."""

    def usage(self, policy: Policy, runtime: Runtime) -> Usage:
        """What it uses, beside what it may."""
        folders = (self.ground.workspace(policy), self.ground.home(policy.session))
        group = self._site(policy).group
        return usage(runtime.pid, folders, SIZES[policy.size], group if group and group.is_there else None)

    def folders(self, policy: Policy, runtime: Runtime) -> Mapping[str, Path]:
        """What is in memory, and its home: where it is inside, and for us."""
        return {**sight.folders(runtime.pid), HOME: self.ground.home(policy.session)}

    def environments(self, policy: Policy, runtime: Runtime) -> Iterator[tuple[str, bytes]]:
        """Each process inside, in words, with what it was started with."""
        return sight.environments(runtime.pid)

    def mapped(self, policy: Policy, runtime: Runtime) -> Container[int]:
        """The inodes of files that somebody inside can write to as to memory now."""
        return sight.mapped(runtime.pid)

    def allow(self, policy: Policy) -> None:
        """Let the way out of the jail that lives lead whither *policy* says from now on.

        Raises:
            UnableError: if it was made without one.
            UsageError: if what *policy* says is no list of hosts.
            SandboxError: if its proxy does not answer.
        """
        folder = self._site(policy).gate
        if not gate.found(folder):
            raise UnableError("this sandbox was made without a way out.", hint="The next one of its session has it.")
        gate.allow(folder, policy.hosts)

    def belongs(self, policy: Policy, pid: int) -> None:
        """Let the way out of the jail whose first process is *pid* end with it.

        Raises:
            SandboxError: if no proxy answers, or there is no such process.
        """
        gate.belongs(self._site(policy).gate, pid)

    def refusals(self, policy: Policy, since: float) -> str:
        """Whom it did not reach after *since*, and how that is allowed; empty where nobody was refused."""
        return gate.hint(self._site(policy).gate, since) if policy.hosts else ""

    def denials(self, policy: Policy) -> tuple[Denial, ...]:
        """Whom it did not reach since its way out was made, oldest first; nobody where it may reach nobody."""
        return gate.denials(self._site(policy).gate) if policy.hosts else ()

    def ports(self, policy: Policy, runtime: Runtime) -> Reach:
        """The way to the ports of the jail that lives at *runtime*; nothing inside has to help.

        Raises:
            SandboxError: if it is gone, or its network cannot be joined.
        """
        return Reach(runtime.pid, runtime.started, runtime.boot)

    def prove(self, policy: Policy, pid: int, *, workdir: str = WORKSPACE) -> Proof:
        """Whether the jail that *pid* stands in front of, or is in, is as *policy* wants; asked of the kernel, outside.

        *pid* is the pane's program, a jail's first process, or anybody inside, in this machine's numbering.

        Raises:
            SandboxError: if it is gone, or may not be looked at.
        """
        wanted = Wanted(writable=[*self._writable(policy, workdir), NOTES], user=self.ground.owner[0])
        return proof.settled(pid, wanted)

    def prove_inside(self, policy: Policy, *, workdir: str = WORKSPACE) -> Proof:
        """Whether a program in a jail of *policy* sees itself confined as it should be: it is run, and ends.

        Raises:
            SandboxError: if no jail can be made, or the program does not answer.
        """
        with self._or_nothing(policy, keeps_alive=True):
            looks, _ = self._scene(policy, workdir)
            command = [*limited(looks.size, data_bytes=looks.size.memory_bytes), *proof.probe_command()]
            whole = entry(self.ground, policy, looks, command, self.program, None)
        said = proof.told(answer(whole, LIMIT_S))
        wanted = Wanted(writable=self._writable(policy, workdir), user=USER)
        return proof.compare(said, wanted, proof.ours())
