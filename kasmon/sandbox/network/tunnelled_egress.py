"""Network access of sandboxes that see no socket of this machine: it is tunnelled over their one connection."""

from pathlib import Path

from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.network.denials import Denial


class TunnelledEgress:
    """Base of such tiers; a subclass locates each sandbox's proxy and opens the tunnel to it."""

    def refusals(self, policy: SandboxPolicy, since: float, /) -> str:
        """Return which hosts were refused after *since* and how to allow them; empty if none."""
        return proxy_control.hint(self._gate(policy), since) if policy.hosts else ""

    def denials(self, policy: SandboxPolicy) -> tuple[Denial, ...]:
        """Return the connections refused since its proxy was set up, oldest first; empty without network access."""
        return proxy_control.denials(self._gate(policy)) if policy.hosts else ()

    def allow(self, policy: SandboxPolicy, /) -> None:
        """Allow the hosts of *policy* from now on, even if the sandbox had no network access before.

        Raises:
            UsageError: if the policy's hosts are not a valid list.
            SandboxError: if its proxy, or the sandbox, does not answer.
        """
        if proxy_control.is_running(self._gate(policy)):
            proxy_control.allow(self._gate(policy), policy.hosts)
        elif (runtime := self._awake(policy)) is not None:
            self._open_gate(policy, runtime.pid)
            self._led_out(policy)
            self._surrounded(policy, runtime)

    def _gate(self, policy: SandboxPolicy) -> Path:
        """Return the folder of its proxy, which is not visible inside."""
        raise NotImplementedError

    def _gate_owner(self) -> tuple[int, int]:
        """Return the user and group of the proxy, if kasmon is root."""
        raise NotImplementedError

    def _awake(self, policy: SandboxPolicy) -> SandboxRuntime | None:
        """Return the sandbox if it is running and not paused to disk."""
        raise NotImplementedError

    def _led_out(self, policy: SandboxPolicy) -> None:
        """Tunnel the proxy connections of programs inside to the proxy, if *policy* has hosts.

        Raises:
            SandboxError: if the sandbox does not answer.
        """
        raise NotImplementedError

    def _open_gate(self, policy: SandboxPolicy, pid: int = 0) -> None:
        """Open the proxy if *policy* has hosts; it ends with process *pid*."""
        if policy.hosts:
            proxy_control.open_proxy(self._gate(policy), policy.session, policy.hosts, owner=self._gate_owner())
            if pid:
                proxy_control.bind_to_process(self._gate(policy), pid)

    def _surrounded(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> None:
        """Set the proxy variables in a running sandbox, if *policy* has hosts."""
        if policy.hosts:
            inside = GuestChannel(runtime.socket)
            try:
                inside.surround(proxy_control.add_proxy_variables({}, policy.hosts))
            finally:
                inside.close()
