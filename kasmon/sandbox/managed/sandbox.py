"""One session's sandbox through its lifecycle: each step is recorded as an intent before it, and confirmed after it.

A process may die between these two records. The next one reads them, checks what exists, and continues from there: no
running sandbox is created twice, and nothing is reported as kept that is lost.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from kasmon.errors import KasmonError, RefusedError, SandboxError, SandboxUnreachableError, UnableError
from kasmon.model.sandbox.policy import SIZES, Interpreter, RunResult, SandboxPhase, SandboxPolicy, SandboxRuntime
from kasmon.model.sandbox.state import SandboxState
from kasmon.sandbox.base import EgressTier, HostedTier, MirrorTier, PauseResult, SandboxTier
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.guest_client.protocol import Output
from kasmon.sandbox.managed import heal
from kasmon.sandbox.managed.journal import (
    SandboxJournal,
    adopt_forked_snapshot,
    adopt_unrecorded_runtime,
    adopt_unrecorded_snapshot,
    measure,
    prove,
    sleeps_on_disk,
)
from kasmon.sandbox.network.allowlist import allowlist
from kasmon.sandbox.network.proxy_control import not_proxied
from kasmon.sandbox.shared.credentials import CredentialFindings, CredentialLeaks, format_paths, resolve

NAMES: Final = 8
"""How many names are listed of what could not be restored."""
MEMORY_LOST: Final = "interpreter state lost"
FILES_KEPT: Final = "files kept"
PREWARMED: Final[tuple[Interpreter, ...]] = ("bash", "python")
"""Started with the sandbox, so that no run waits for them; node takes too much memory."""
STILL_KEPT: Final = "Its memory snapshot is unchanged: try again, or remove the session."
NOT_DONE: Final = "its host ended before it was done"


class ManagedSandbox:
    """The sandbox of one session. Calls block; those that change its phase run one at a time."""

    def __init__(
        self,
        tier: SandboxTier,
        policy: SandboxPolicy,
        journal: SandboxJournal,
        reach: Callable[[SandboxRuntime], GuestChannel],
    ) -> None:
        """
        Args:
            journal: its state, and where events are recorded.
            reach: returns the guest client of a running sandbox.
        """
        self.tier = tier
        self.policy = policy
        self.journal = journal
        self.guest: GuestChannel | None = None
        self.spare: Callable[[str], bytes] = lambda _: b""
        """Returns the interpreter state of a checkpoint, with "" of the last that has any; empty if none."""
        self.settle: Callable[[], None] = lambda: None
        """Completes file changes that another process began; called before anything inside sees the files."""
        self._reach = reach
        self._leaks = CredentialLeaks()

    @property
    def phase(self) -> SandboxPhase:
        return self.journal.sandbox_state.phase

    @property
    def runs(self) -> bool:
        """Whether code can run in it at once."""
        return self.guest is not None and self.phase is SandboxPhase.RUNNING

    @property
    def workspace(self) -> str:
        """The folder of its files on this machine."""
        runtime = self.journal.sandbox_state.runtime
        return (runtime.workspace if runtime else "") or self.tier.workspace(self.policy)

    def credentials(self) -> CredentialFindings:
        return resolve(self.policy.credentials)

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
        guest = self.guest
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
        denials = self.tier.denials(self.policy, began_at) if isinstance(self.tier, EgressTier) else ()
        sentences = (f"Network: {denial.sentence}" for denial in denials[-3:])
        return msgspec.structs.replace(ran, hint=" ".join((ran.hint, *sentences)).strip()) if denials else ran

    def _add_proxy_variables(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return *variables* with the hosts to reach without a proxy: that list may have changed since the start."""
        is_gated = isinstance(self.tier, EgressTier)
        return {**not_proxied(self.policy.hosts), **variables} if is_gated else variables

    def _refresh(self) -> None:
        """Copy changes on this machine into a sandbox that has a copy of its files."""
        runtime = self.journal.sandbox_state.runtime
        if isinstance(self.tier, MirrorTier) and runtime is not None:
            try:
                messages = self.tier.refresh(self.policy, runtime)
            except KasmonError as error:
                messages = (f"Changes on this machine were not copied into the sandbox: {error.message}",)
            for sentence in messages:
                self.journal.add_notice(sentence)

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
            if self.journal.sandbox_state.runtime is not None:
                self.tier.allow(self.policy)
        except UnableError as error:
            return f"{error.message.rstrip('.')}: the session's next sandbox will have it"
        return ""

    def clean(self) -> CredentialFindings:
        """Remove credentials, so that it can be stored; `refill` restores them. If it raises, nothing may be stored."""
        findings = self.credentials()
        if self.guest is not None:
            for interpreter, names in heal.remove_credentials(self.guest, self.policy.volatile, findings).items():
                self.journal.add_notice(
                    f"{interpreter} no longer has {', '.join(names)}, which contained the value of a credential."
                )
        return findings

    def refill(self) -> None:
        """Write the volatile files again; failures are recorded."""
        if self.guest is None or not self.policy.volatile:
            return
        findings = self.credentials()
        self.journal.add_notice_once(
            *findings.missing, *heal.rewrite(self.guest, self.policy.volatile, findings.values)
        )

    def measure(self) -> None:
        """Record its usage, if its tier can report it and it changed enough.

        Raises:
            KasmonError, OSError: if it cannot be read.
        """
        if self.runs:
            measure(self.tier, self.policy, self.journal)

    def arrive(self) -> str:
        """Find the sandbox that the events describe, or create it; return what was lost, as one sentence.

        A paused sandbox stays paused.

        Raises:
            SandboxError: if there is no sandbox after this.
        """
        self.settle()
        journal = self.journal
        known = journal.sandbox_state
        if not known.generation and adopt_forked_snapshot(self.tier, self.policy, journal):
            return self.wake()
        if known.phase is SandboxPhase.EXPIRED:
            lost = ""
            if known.is_intended:
                self._finish_end(known.why or NOT_DONE)
                lost = f"it was ended ({known.why or NOT_DONE}): {MEMORY_LOST}; {FILES_KEPT}"
            return self.make(lost=lost, content=self.spare(""))
        if known.phase is SandboxPhase.CREATING or known.runtime is None:
            return self._recreate(known)
        if known.is_asleep and not known.held and self.tier.keeps_memory:
            return ""
        if not self.tier.find(self.policy, known.runtime):
            if adopt_unrecorded_snapshot(self.tier, self.policy, journal):
                return ""
            if not adopt_unrecorded_runtime(self.tier, self.policy, journal):
                return self.replace_lost("the sandbox had ended")
            known = journal.sandbox_state
        if known.is_asleep:
            if known.phase is not SandboxPhase.PAUSED:
                journal.move(SandboxPhase.PAUSED, held=True)
            return ""
        if known.phase is SandboxPhase.PERSISTING:
            journal.add_notice(f"It is unknown whether this was done: {known.why}.")
            if not known.held:  # its files were restored: processes that saw others must end
                self.stop()
                return self.make(lost=f"its host ended while {known.why}: {MEMORY_LOST}", why=known.why)
        was_asleep = known.phase in (SandboxPhase.PAUSING, SandboxPhase.RESUMING)
        lost = self._resume(PauseResult(held=True), was_asleep=was_asleep, why="found again")
        if not was_asleep:  # its former host may just have emptied its volatile files
            self.refill()
        return lost

    def wake(self) -> str:
        """Resume and heal the sandbox, or check a running one; return what was lost. If it raises, there is none."""
        known = self.journal.sandbox_state
        if known.phase is SandboxPhase.EXPIRED:
            raise SandboxError(f"the sandbox of {self.policy.session!r} cannot be resumed", known.why or "it has ended")
        was_asleep = not self.runs
        return self._resume(PauseResult(held=known.held, snapshot=known.snapshot), was_asleep=was_asleep)

    def sleep(self, *, to_disk: bool = False, why: str = "") -> str:
        """Pause it without the values of credentials, which are restored on resume. A failure is recorded as a warning.

        Values that code inside stored elsewhere are reported.

        Returns:
            Why it was not paused; empty if it was.

        Raises:
            SandboxError: if it is neither paused nor running after this.
        """
        known = self.journal.sandbox_state
        to_disk = to_disk or isinstance(self.tier, HostedTier)
        if known.phase is SandboxPhase.PAUSED and (known.held is not to_disk or not known.held):
            return ""
        if to_disk and not self.tier.keeps_memory:
            failed = f"a {self.policy.tier} cannot save its memory to disk"
            self.journal.add_notice(f"The sandbox was not paused to disk: {failed}.")
            return failed
        if not self.runs:
            self.wake()
        runtime = self.journal.sandbox_state.runtime
        assert runtime is not None
        try:
            findings = self.clean()
        except KasmonError as error:
            self.journal.add_notice(f"The sandbox was not paused: {error.message}")
            self.refill()
            return error.message.rstrip(".")
        held = not to_disk
        self.journal.move(SandboxPhase.PAUSING, intended=True, held=held, why=why, counters=self._read_counters())
        try:
            pause_result = self.tier.pause(self.policy, runtime, to_disk=to_disk, turn=known.turn)
        except KasmonError as error:
            self.journal.add_notice(f"The sandbox was not paused: {error.message}")
            self._resume(PauseResult(held=True), was_asleep=True)
            return error.message.rstrip(".")
        if pause_result.held:
            self._report_leaks(runtime, findings)
        else:
            self._disconnect()
        self.journal.move(SandboxPhase.PERSISTING, held=pause_result.held, snapshot=pause_result.snapshot)
        self.journal.move(SandboxPhase.PAUSED, held=pause_result.held, snapshot=pause_result.snapshot, why=why)
        return ""

    def end(self, why: str) -> None:
        """Remove it, except for its files and checkpoints. Idempotent. Raises `SandboxError` if something is left."""
        known = self.journal.sandbox_state
        if known.phase is SandboxPhase.EXPIRED and not known.is_intended:
            return
        self.journal.move(SandboxPhase.EXPIRED, intended=True, why=why)
        self._finish_end(why)

    def make(self, *, lost: str = "", why: str = "", content: bytes = b"", checkpoint: str = "") -> str:
        """Create a sandbox where there is none; return *lost*, with what was lost on the way.

        Args:
            lost: what was lost before.
            why: why there is a new one.
            content: the stored interpreter state of a former one.
            checkpoint: the checkpoint it is restored from, if not the last; recorded in case it must be created again.

        Raises:
            SandboxError: if it cannot be created; it is removed then.
        """
        journal = self.journal
        journal.move(
            SandboxPhase.CREATING,
            intended=True,
            generation=journal.sandbox_state.generation + 1,
            counters={},
            why=why,
            snapshot=checkpoint,
        )
        try:
            runtime = self.tier.create(self.policy)
        except KasmonError as error:
            journal.move(SandboxPhase.EXPIRED, why=error.message, lost=lost)
            raise
        journal.move(SandboxPhase.CREATING, runtime=runtime, why=why, snapshot=checkpoint)
        for notice in runtime.notices:
            journal.add_notice(notice)
        prove(self.tier, self.policy, runtime, self.journal)
        guest = self.guest = self._reach(runtime)
        self.refill()
        if content:
            lost = self._load_state(guest, content, lost)
        heal.prewarm(guest, PREWARMED)
        heal.start_services(guest, self.policy.services, self.journal.add_notice)
        journal.move(SandboxPhase.RUNNING, why=why, lost=lost)
        return lost

    def _recreate(self, before: SandboxState) -> str:
        """Create a sandbox again that another process did not finish creating; return what was lost.

        The unfinished one may lack files, and no user code has run in it.
        """
        with contextlib.suppress(KasmonError):
            self.tier.destroy(self.policy, before.runtime)
        files = f"its files are those of checkpoint {before.snapshot}" if before.snapshot else FILES_KEPT
        lost = f"its host ended while it was created: {MEMORY_LOST}; {files}" if before.generation > 1 else ""
        return self.make(lost=lost, content=self.spare(before.snapshot), checkpoint=before.snapshot)

    def replace_lost(self, why: str) -> str:
        """Replace a lost sandbox over the same files; return what was lost. Raises `SandboxError` if that fails."""
        self.stop()
        return self.make(lost=f"{why}: {MEMORY_LOST}; {FILES_KEPT}", why=why, content=self.spare(""))

    def regain(self, generation: int, why: str) -> str:
        """Check whether the sandbox of *generation* still responds; if not, create another. Return what was lost."""
        state = self.journal.sandbox_state
        if state.generation != generation:
            return state.lost
        if self.guest is not None and state.runtime and self.tier.find(self.policy, state.runtime):
            with contextlib.suppress(KasmonError):
                self.guest.ping(secrets.token_hex(8))
                return ""
        return self.replace_lost(why)

    def stop_processes(self) -> None:
        """Stop all its processes: its files do not change until its end. Raises `SandboxError` if one runs on."""
        runtime = self.journal.sandbox_state.runtime
        self._disconnect()
        if runtime is not None and self.tier.find(self.policy, runtime):
            self.tier.pause(self.policy, runtime)

    def stop(self) -> None:
        """End its processes; its files stay. Raises `SandboxError` if something is left."""
        self._disconnect()
        self.tier.destroy(self.policy, self.journal.sandbox_state.runtime)

    def _report_leaks(self, runtime: SandboxRuntime, findings: CredentialFindings) -> None:
        """Record where the paused sandbox still contains the value of a credential."""
        with contextlib.suppress(KasmonError, OSError):
            if paths := self._leaks.beside_them(self.tier, self.policy, runtime, findings):
                self.journal.add_notice_once(
                    f"The value of a credential is in {format_paths(paths)}; it stays there while"
                    " the sandbox is paused."
                )

    def _resume(self, pause_result: PauseResult, *, was_asleep: bool, why: str = "") -> str:
        journal, runtime = self.journal, self.journal.sandbox_state.runtime
        assert runtime is not None
        if was_asleep:
            journal.move(SandboxPhase.RESUMING, intended=True, held=pause_result.held, snapshot=pause_result.snapshot)
            try:
                runtime = self.tier.resume(self.policy, runtime, pause_result)
            except SandboxUnreachableError:
                journal.move(SandboxPhase.PAUSED, held=pause_result.held, snapshot=pause_result.snapshot)
                raise
            except KasmonError as error:
                why = error.message.rstrip(".")
                if not pause_result.held and sleeps_on_disk(self.tier, self.policy):
                    journal.move(SandboxPhase.PAUSED, held=False, snapshot=pause_result.snapshot)
                    raise SandboxUnreachableError(
                        f"the sandbox of {self.policy.session!r} was not resumed", why, STILL_KEPT
                    ) from error
                return self.replace_lost(f"it could not be resumed ({why})")
        journal.move(SandboxPhase.HEALING, runtime=runtime, held=pause_result.held)
        if not was_asleep or not pause_result.held:
            prove(self.tier, self.policy, runtime, self.journal)
        guest = self._reach(runtime) if self.guest is None else self.guest
        findings = self.credentials()
        healed = heal.heal(guest, self.policy, journal.sandbox_state.counters, findings.values, was_asleep=was_asleep)
        self.guest = guest
        if healed.why:
            return self.replace_lost(healed.why)
        for drift in healed.drift:
            journal.add_notice(drift)
        heal.start_services(guest, healed.down, self.journal.add_notice)
        journal.move(SandboxPhase.RUNNING, counters={}, why=why, lost=healed.lost)
        return healed.lost

    def _finish_end(self, why: str) -> None:
        self.stop()
        self.journal.move(SandboxPhase.EXPIRED, why=why)

    def _load_state(self, guest: GuestChannel, content: bytes, lost: str) -> str:
        """Load *content* into the new interpreters; return what is lost after that."""
        try:
            loaded = guest.load_state(content)
        except KasmonError as error:
            return f"{lost}; the saved state could not be loaded ({error.message.rstrip('.')})"
        if loaded.lost:
            names = ", ".join(loaded.lost[:NAMES])
            lost = f"{lost}; could not be restored: {names}" if lost else f"could not be restored: {names}"
        if loaded.kept and lost:
            return f"{lost}; {len(loaded.kept)} saved variables were restored"
        if loaded.kept:
            self.journal.add_notice(f"{len(loaded.kept)} variables were restored.", is_warning=False)
        return lost

    def _read_counters(self) -> Mapping[str, int]:
        """Return how many runs each interpreter reports."""
        if self.guest is None:
            return {}
        with contextlib.suppress(KasmonError):
            return self.guest.ping(secrets.token_hex(8)).counters
        return {}

    def _disconnect(self) -> None:
        if self.guest is not None:
            self.guest.close()
            self.guest = None
