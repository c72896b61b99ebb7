"""Use of a running sandbox: runs, network access, credentials, and resource usage."""

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from kasmon.errors import KasmonError, RefusedError, UnableError
from kasmon.model.sandbox.policy import SIZES, Interpreter, RunResult, SandboxPhase, SandboxPolicy, SandboxRuntime
from kasmon.sandbox.base import EgressTier, MirrorTier, SandboxTier
from kasmon.sandbox.guest_client.protocol import GuestClient, Output
from kasmon.sandbox.managed import heal, usage_events
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.network.allowlist import allowlist
from kasmon.sandbox.network.proxy_control import not_proxied
from kasmon.sandbox.shared import credentials as credential
from kasmon.sandbox.shared.credential_leaks import CredentialLeaks
from kasmon.sandbox.shared.credentials import CredentialFindings


class SandboxUse:
    """The sandbox of one session, as its users see it. Calls block."""

    def __init__(
        self,
        tier: SandboxTier,
        policy: SandboxPolicy,
        journal: SandboxJournal,
        reach: Callable[[SandboxRuntime], GuestClient],
    ) -> None:
        """
        Args:
            tier: the sandbox's tier.
            policy: its policy.
            journal: its state, and where events are recorded.
            reach: returns the guest client of a running sandbox.
        """
        self.tier = tier
        self.policy = policy
        self.journal = journal
        self.within: GuestClient | None = None
        self.spare: Callable[[str], bytes] = lambda _: b""
        """Returns the interpreter state of a checkpoint, with "" of the last that has any; empty if none."""
        self.settle: Callable[[], None] = lambda: None
        """Completes file changes that another process began; called before anything inside sees the files."""
        self._reach = reach
        self._leaks = CredentialLeaks()

    @property
    def phase(self) -> SandboxPhase:
        """Its phase, by its events."""
        return self.journal.housing.phase

    @property
    def runs(self) -> bool:
        """Whether code can run in it at once."""
        return self.within is not None and self.phase is SandboxPhase.RUNNING

    @property
    def workspace(self) -> str:
        """The folder of its files on this machine."""
        runtime = self.journal.housing.runtime
        return (runtime.workspace if runtime else "") or self.tier.workspace(self.policy)

    def credentials(self) -> CredentialFindings:
        """Return the current values of its credentials."""
        return credential.looked_up(self.policy.credentials)

    def run(
        self,
        interpreter: Interpreter,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: Output | None = None,
        cap: int | None = None,
        run: str = "",
        variables: Mapping[str, str] = {},
    ) -> RunResult:
        """Run *code* with *variables*; the result reports what was retained. Several runs may overlap.

        Raises:
            RefusedError: if it is paused.
            SandboxError: if its guest is gone; whether the code ran is unknown then.
        """
        guest = self.within
        if guest is None or not self.runs:
            raise RefusedError(f"the sandbox of {self.policy.session!r} is {self.phase}: it cannot run anything.")
        self._refresh()
        allowed_s, began_at = SIZES[self.policy.size].time_s, time.time()
        ran = guest.run(
            interpreter,
            code,
            timeout_s=allowed_s if timeout_s is None else min(timeout_s, allowed_s),
            variables=self._add_proxy_variables(variables),
            on_output=on_output,
            cap=cap,
            run=run,
        )
        if (
            self.policy.hosts
            and isinstance(self.tier, EgressTier)
            and (refused := self.tier.refusals(self.policy, began_at))
        ):
            return msgspec.structs.replace(ran, hint=f"{ran.hint} {refused}".strip())
        return ran

    def _add_proxy_variables(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return *variables* with the hosts to reach without a proxy: that list may have changed since the start."""
        is_gated = self.policy.hosts and isinstance(self.tier, EgressTier)
        return {**not_proxied(self.policy.hosts), **variables} if is_gated else variables

    def _refresh(self) -> None:
        """Copy changes on this machine into a sandbox that has a copy of its files."""
        runtime = self.journal.housing.runtime
        if isinstance(self.tier, MirrorTier) and runtime is not None:
            try:
                told = self.tier.refresh(self.policy, runtime)
            except KasmonError as error:
                told = (f"Changes on this machine were not copied into the sandbox: {error.message}",)
            for sentence in told:
                self.journal.tell(sentence)

    def allow(self, hosts: Sequence[str]) -> str:
        """Allow *hosts* too, from now on; return why that only applies to the next sandbox, or "".

        Raises:
            UsageError: if they are not valid hosts; nothing changed then.
        """
        allowlist(hosts)
        more = tuple(host for host in hosts if host not in self.policy.hosts)
        self.policy = msgspec.structs.replace(self.policy, hosts=(*self.policy.hosts, *more))
        if not isinstance(self.tier, EgressTier):
            return "this tier cannot change it while the sandbox runs: the session's next sandbox will have it"
        try:
            if self.journal.housing.runtime is not None:
                self.tier.allow(self.policy)
        except UnableError as error:
            return f"{error.message.rstrip('.')}: the session's next sandbox will have it"
        return ""

    def clean(self) -> CredentialFindings:
        """Remove credentials from the sandbox, so that it can be stored; `refill` restores them.

        Raises:
            SandboxError: if they may not all be removed; nothing may be stored then.
        """
        findings = self.credentials()
        if self.within is not None:
            for interpreter, names in heal.remove_credentials(self.within, self.policy.volatile, findings).items():
                self.journal.tell(
                    f"{interpreter} no longer has {', '.join(names)}, which contained the value of a credential."
                )
        return findings

    def refill(self) -> None:
        """Write the volatile files again; failures are recorded."""
        if self.within is None or not self.policy.volatile:
            return
        findings = self.credentials()
        self.journal.tell_once(*findings.missing, *heal.rewrite(self.within, self.policy.volatile, findings.values))

    def measure(self) -> None:
        """Record its usage, if its tier can report it and it changed enough.

        Raises:
            KasmonError, OSError: if it cannot be read.
        """
        if self.runs:
            usage_events.measure(self.tier, self.policy, self.journal)

    def _read_counters(self) -> Mapping[str, int]:
        """Return how many runs each interpreter reports."""
        if self.within is None:
            return {}
        with contextlib.suppress(KasmonError):
            return self.within.ping(secrets.token_hex(8)).counters
        return {}

    def _disconnect(self) -> None:
        if self.within is not None:
            self.within.close()
            self.within = None
