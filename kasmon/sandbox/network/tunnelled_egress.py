"""The way out of sandboxes that see no socket of ours: what is led there comes over their one line."""

from pathlib import Path

from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.network.denials import Denial


class TunnelledEgress:
    """A tier of such sandboxes; a subclass says where each one's gate is, and how its line is opened for that."""

    def refusals(self, policy: SandboxPolicy, since: float, /) -> str:
        """Whom it did not reach after *since*, and how that is allowed; empty where nobody was refused."""
        return proxy_control.hint(self._gate(policy), since) if policy.hosts else ""

    def denials(self, policy: SandboxPolicy) -> tuple[Denial, ...]:
        """Whom it did not reach since its way out was made, oldest first; nobody where it may reach nobody."""
        return proxy_control.denials(self._gate(policy)) if policy.hosts else ()

    def allow(self, policy: SandboxPolicy, /) -> None:
        """Let those inside reach whom *policy* says from now on, also where they had no way out so far.

        Raises:
            UsageError: if what *policy* says is no list of hosts.
            SandboxError: if its proxy, or the sandbox, does not answer.
        """
        if proxy_control.found(self._gate(policy)):
            proxy_control.allow(self._gate(policy), policy.hosts)
        elif (runtime := self._awake(policy)) is not None:
            self._open_gate(policy, runtime.pid)
            self._led_out(policy)
            self._surrounded(policy, runtime)

    def _gate(self, policy: SandboxPolicy) -> Path:
        """The folder of its gate; nobody inside sees it."""
        raise NotImplementedError

    def _gate_owner(self) -> tuple[int, int]:
        """Whom the gate runs as, where we are root."""
        raise NotImplementedError

    def _awake(self, policy: SandboxPolicy) -> SandboxRuntime | None:
        """The sandbox that lives and is not asleep on disk."""
        raise NotImplementedError

    def _led_out(self, policy: SandboxPolicy) -> None:
        """Let what programs send to their proxy come to the gate, if *policy* wants one.

        Raises:
            SandboxError: if the sandbox does not answer.
        """
        raise NotImplementedError

    def _open_gate(self, policy: SandboxPolicy, pid: int = 0) -> None:
        """Have the gate that *policy* wants, if it wants one; it ends with process *pid*."""
        if policy.hosts:
            proxy_control.opened(self._gate(policy), policy.session, policy.hosts, owner=self._gate_owner())
            if pid:
                proxy_control.belongs(self._gate(policy), pid)

    def _surrounded(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> None:
        """Let programs of a sandbox that runs already find their proxy, if *policy* wants one."""
        if policy.hosts:
            inside = GuestChannel(runtime.socket)
            try:
                inside.surround(proxy_control.finding({}, policy.hosts))
            finally:
                inside.close()
