"""Checkpoints of one sandbox: store what can be stored, without its credentials, and restore it.

Files are stored whole. Interpreter state is stored by variable name; what could not be stored is listed. State that
contains the value of a credential is not stored, and this is recorded.

To be forked with its memory, a sandbox is paused to disk meanwhile. If the host dies in between, it stays paused and
can be resumed as usual; the copy is either whole or marked as incomplete (`model.sandbox.snapshot.ForkOrigin`).
"""

import contextlib
from collections.abc import Callable, Container
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import KasmonError, NotFoundError, SandboxError, SnapshotRefusedError, explain_error
from kasmon.model.commands import Fork
from kasmon.model.events import Checkpointed
from kasmon.model.sandbox.policy import SandboxPhase, SandboxPolicy
from kasmon.paths import write_private
from kasmon.sandbox.base import ForkTier, PauseResult
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.guest_client.protocol import CheckpointTime, SavedInterpreters
from kasmon.sandbox.managed.sandbox import FILES_KEPT, MEMORY_LOST, ManagedSandbox
from kasmon.sandbox.shared import credentials
from kasmon.sandbox.shared.credentials import CredentialFindings, CredentialLeaks


class SandboxCheckpoints:
    """The checkpoints of one sandbox. Calls block, and run one at a time, like those that move the sandbox."""

    def __init__(self, sandbox: ManagedSandbox, points: CheckpointStore, inherited: Path | None = None) -> None:
        """
        Args:
            points: the store of its checkpoints.
            inherited: the file with the initial interpreter state, if it exists.
        """
        self._sandbox = sandbox
        self._points = points
        self._inherited = inherited
        self._journal = sandbox.journal
        self._leaks = CredentialLeaks()
        sandbox.spare, sandbox.settle = self.spare, points.finish

    @property
    def wants_before(self) -> bool:
        """Whether the files need a checkpoint before the next turn: none exists, or others may have changed them."""
        return not self._journal.sandbox_state.checkpoints_counted or bool(self._sandbox.policy.workspace)

    def create(self, when: CheckpointTime, what: str = "") -> str:
        """Create a checkpoint and return its id; empty if that failed, which is recorded.

        A paused sandbox is resumed for that, since its interpreters must report their state.

        Raises:
            SandboxError: if the sandbox is not in its former state after that.
        """
        journal, state = self._journal, self._journal.sandbox_state
        if state.is_asleep:
            self._sandbox.wake()
            try:
                return self.create(when, what)
            finally:
                self._sandbox.sleep(why=state.why)
        turn = state.turn + (1 if when == "before" else 0)
        journal.move(
            SandboxPhase.PERSISTING, intended=True, held=True, why=f"creating a checkpoint ({when} turn {turn})"
        )
        checkpoint = ""
        try:
            checkpoint = self._create_checkpoint(when, turn, what)
        except (KasmonError, OSError) as error:
            journal.add_notice(f"No checkpoint was created: {explain_error(error)}.")
        self._sandbox.refill()
        journal.move(state.phase, held=state.held, snapshot=state.snapshot, is_used=when != "asked")
        return checkpoint

    def restore(self, checkpoint: str) -> str:
        """Restore the sandbox to *checkpoint* and return what that lost. Its processes end: they saw other files.

        Raises:
            NotFoundError: if the checkpoint does not exist; nothing changed then.
            SandboxError: if it could not be restored, or there is no sandbox after that.
        """
        sandbox, journal = self._sandbox, self._journal
        content = self._points.state(checkpoint)
        workspace = sandbox.workspace
        journal.move(SandboxPhase.PERSISTING, intended=True, why=f"restoring checkpoint {checkpoint}")
        sandbox.stop_processes()
        try:
            self._points.restore(checkpoint, workspace)
            sandbox.stop()
        except (KasmonError, OSError) as error:
            why = f"checkpoint {checkpoint} could not be restored ({explain_error(error)})"
            sandbox.stop()
            sandbox.make(lost=f"{why}: {MEMORY_LOST}; {FILES_KEPT}", why=why)
            if isinstance(error, OSError):
                raise SandboxError("nothing was restored", why) from error
            raise
        lost = next((kept.lost for kept in journal.sandbox_state.checkpoints if kept.id == checkpoint), ())
        not_kept = f"not saved in the checkpoint: {', '.join(lost[:8])}" if lost else ""
        return sandbox.make(
            lost=not_kept, why=f"restored checkpoint {checkpoint}", content=content, checkpoint=checkpoint
        )

    def fork(self, checkpoint: str, folder: str, memory: str = "") -> str:
        """Copy *checkpoint* (if empty, the present state) for another session and return its id.

        Its files go to *folder*, its stored interpreter state to the file *memory*.

        Raises:
            NotFoundError: if the checkpoint does not exist.
            SandboxError: if it could not be copied; *folder* may hold a part of it.
        """
        checkpoint = checkpoint or self.create("asked")
        if not checkpoint:
            raise SandboxError("cannot fork the sandbox", "no checkpoint could be created")
        self._points.fork(checkpoint, folder)
        if memory and (content := self._points.state(checkpoint)):
            write_private(Path(memory), content)
        return checkpoint

    def purge(self) -> None:
        """Delete stored interpreter state once the sandbox has ended; files stay."""
        self._points.purge_memory()
        if self._inherited is not None:
            self._inherited.unlink(missing_ok=True)

    def spare(self, checkpoint: str = "") -> bytes:
        """Return the interpreter state of *checkpoint*, by default of the last that has any; empty if none has."""
        if checkpoint:
            with contextlib.suppress(KasmonError):
                return self._points.state(checkpoint)
            return b""
        for kept in reversed(self._journal.sandbox_state.checkpoints):
            try:
                return self._points.state(kept.id)
            except NotFoundError:
                continue
            except KasmonError:
                return b""
        with contextlib.suppress(OSError):
            return self._inherited.read_bytes() if self._inherited else b""
        return b""

    def _create_checkpoint(self, when: CheckpointTime, turn: int, what: str) -> str:
        findings = self._sandbox.clean()
        saved = self._save_interpreters(findings)
        point = self._points.create(self._sandbox.workspace, turn, when, saved, self._find_mapped())
        self._journal.note(
            Checkpointed(
                at=self._journal.clock(),
                checkpoint=point.id,
                turn=turn,
                when=when,
                commit=point.commit,
                size_bytes=point.size_bytes,
                kept=saved.kept,
                lost=saved.lost,
                what=what,
            )
        )
        self._report_leaks(findings)
        return point.id

    def _save_interpreters(self, findings: CredentialFindings) -> SavedInterpreters:
        """Return the interpreter state that can be stored, without the values of credentials."""
        if self._sandbox.guest is None:
            return SavedInterpreters(lost=("all interpreter state: the guest program does not respond",))
        saved = self._sandbox.guest.save_state(findings.secrets)
        if holders := credentials.holders(saved.content, findings):
            return SavedInterpreters(
                lost=(*saved.lost, f"all interpreter state: it contains the value of {holders[0]}")
            )
        return saved

    def _report_leaks(self, findings: CredentialFindings) -> None:
        """Record which files contain the value of a credential; the code in the sandbox wrote it there, not kasmon."""
        if files := self._leaks.in_files(self._sandbox.workspace, findings, self._find_mapped()):
            self._journal.add_notice(
                f"The value of a credential is in {credentials.format_paths(files)}, and checkpoints store it."
            )

    def _find_mapped(self) -> Callable[[], Container[int]]:
        return credentials.find_mapped_inodes(
            self._sandbox.tier, self._sandbox.policy, self._journal.sandbox_state.runtime
        )


FORKED: Final = "it is copied"
AT_CHECKPOINT: Final = "a checkpoint contains no memory"


class ForkResult(NamedTuple):
    """What the other session got."""

    checkpoint: str = ""
    """The checkpoint whose files and interpreter state it has; empty if it has all memory."""
    why: str = ""
    """Why it has no memory."""
    lost: str = ""
    """What the source sandbox lost by being copied; empty if nothing."""


def fork_sandbox(
    sandbox: ManagedSandbox, checkpoints: SandboxCheckpoints, command: Fork, other: SandboxPolicy | None
) -> ForkResult:
    """Copy the sandbox of *sandbox*, as *command* asks, for the sandbox of *other*, which must not exist yet.

    If its tier cannot copy memory, or the sandbox could not be paused to disk, a checkpoint is copied.

    Raises:
        NotFoundError: if the checkpoint does not exist.
        SandboxError: if it could not be copied, or its snapshot may not be resumed; parts of *other* may exist then.
    """
    why = AT_CHECKPOINT if command.checkpoint else ""
    if not isinstance(sandbox.tier, ForkTier):
        why = why or f"a {sandbox.policy.tier} cannot copy its memory"
    if not why and other is not None:
        was_awake = sandbox.runs
        why = sandbox.sleep(to_disk=True, why=FORKED)
        if not why:
            try:
                _fork_with_memory(sandbox, other)
            finally:
                lost = sandbox.wake() if was_awake else ""
            return ForkResult(lost=lost)
    return ForkResult(checkpoint=checkpoints.fork(command.checkpoint, command.folder, command.memory), why=why)


def _fork_with_memory(sandbox: ManagedSandbox, other: SandboxPolicy) -> None:
    state = sandbox.journal.sandbox_state
    assert isinstance(sandbox.tier, ForkTier)
    if state.phase is not SandboxPhase.PAUSED or state.held:
        raise SandboxError("it could not be copied", "it is not paused to disk")
    try:
        sandbox.tier.fork(sandbox.policy, PauseResult(held=False, snapshot=state.snapshot), other)
    except SnapshotRefusedError as error:
        hint = "Fork one of its checkpoints instead: `--at`."
        raise SandboxError("it cannot be copied with its memory", error.why, hint) from error
