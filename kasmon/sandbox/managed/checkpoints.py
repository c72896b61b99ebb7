"""Checkpoints of one sandbox: what can be kept of it is kept, without its credentials, and it goes back to that.

Files are kept whole. Of the interpreters only what can be told by name is, and what could not be is named too. Where
something kept would hold the value of a credential, it is not kept, and that is told.
"""

import contextlib
from collections.abc import Callable, Container
from pathlib import Path

from kasmon.errors import KasmonError, NotFoundError, SandboxError
from kasmon.model.events import Checkpointed
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.paths import write_private
from kasmon.sandbox.guest_client.protocol import CheckpointPoints, SavedInterpreters, When
from kasmon.sandbox.managed.sandbox import FILES_KEPT, MEMORY_LOST, ManagedSandbox
from kasmon.sandbox.shared import credential_leaks, credentials
from kasmon.sandbox.shared.credential_leaks import CredentialLeaks
from kasmon.sandbox.shared.credentials import CredentialFindings


class SandboxCheckpoints:
    """The checkpoints of one box. Its calls block, and are made like those of the box that move it."""

    def __init__(self, box: ManagedSandbox, points: CheckpointPoints, inherited: Path | None = None) -> None:
        """
        Args:
            box: the sandbox.
            points: where its checkpoints lie.
            inherited: what its interpreters begin with, if that is there.
        """
        self._box = box
        self._points = points
        self._inherited = inherited
        self._journal = box.journal
        self._leaks = CredentialLeaks()
        box.spare, box.settle = self.spare, points.finish

    @property
    def wants_before(self) -> bool:
        """Whether nobody kept what the files are like before the next turn, or others may have changed them."""
        return not self._journal.housing.checkpoints_counted or bool(self._box.policy.workspace)

    def keep(self, when: When, what: str = "") -> str:
        """Keep what can be kept as it is now; its id, empty where it failed, which is told.

        One that sleeps is woken for that: only so its interpreters can say what they hold.

        Raises:
            SandboxError: if the sandbox is not what it was after that.
        """
        journal, housing = self._journal, self._journal.housing
        if housing.is_asleep:
            self._box.wake()
            try:
                return self.keep(when, what)
            finally:
                self._box.sleep(why=housing.why)
        turn = housing.turn + (1 if when == "before" else 0)
        journal.move(
            SandboxPhase.PERSISTING, intended=True, held=True, why=f"creating a checkpoint ({when} turn {turn})"
        )
        checkpoint = ""
        try:
            checkpoint = self._kept(when, turn, what)
        except (KasmonError, OSError) as error:
            journal.tell(f"No checkpoint was created: {_why(error)}.")
        self._box.refill()
        journal.move(housing.phase, held=housing.held, snapshot=housing.snapshot, is_used=when != "asked")
        return checkpoint

    def restore(self, checkpoint: str) -> str:
        """Put the sandbox back to *checkpoint*; what is lost by that. Its processes end: they saw other files.

        Raises:
            NotFoundError: if there is no such checkpoint; nothing changed then.
            SandboxError: if it could not be done, or there is no sandbox after that.
        """
        box, journal = self._box, self._journal
        content = self._points.state(checkpoint)
        workspace = box.workspace
        journal.move(SandboxPhase.PERSISTING, intended=True, why=f"restoring checkpoint {checkpoint}")
        box.quieten()
        try:
            self._points.restore(checkpoint, workspace)
            box.stop()
        except (KasmonError, OSError) as error:
            why = f"checkpoint {checkpoint} could not be restored ({_why(error)})"
            box.stop()
            box.make(lost=f"{why}: {MEMORY_LOST}; {FILES_KEPT}", why=why)
            if isinstance(error, OSError):
                raise SandboxError("nothing was restored", why) from error
            raise
        lost = next((kept.lost for kept in journal.housing.checkpoints if kept.id == checkpoint), ())
        return box.make(
            lost=_not_kept(lost), why=f"restored checkpoint {checkpoint}", content=content, checkpoint=checkpoint
        )

    def fork(self, checkpoint: str, folder: str, memory: str = "") -> str:
        """Copy *checkpoint*, or with an empty one all as it is now, for another session; its id.

        Its files go into *folder*, what was kept of interpreters into the file *memory*.

        Raises:
            NotFoundError: if there is no such checkpoint.
            SandboxError: if it could not be copied; the folder may hold a part of it then.
        """
        checkpoint = checkpoint or self.keep("asked")
        if not checkpoint:
            raise SandboxError("cannot fork the sandbox", "no checkpoint could be created")
        self._points.fork(checkpoint, folder)
        if memory and (content := self._points.state(checkpoint)):
            write_private(Path(memory), content)
        return checkpoint

    def purge(self) -> None:
        """Forget what was kept of interpreters, once the sandbox has ended; files stay."""
        self._points.purge_memory()
        if self._inherited is not None:
            self._inherited.unlink(missing_ok=True)

    def spare(self, checkpoint: str = "") -> bytes:
        """What *checkpoint*, by default the last that has any, kept of the interpreters; empty where nothing was."""
        if checkpoint:
            with contextlib.suppress(KasmonError):
                return self._points.state(checkpoint)
            return b""
        for kept in reversed(self._journal.housing.checkpoints):
            try:
                return self._points.state(kept.id)
            except NotFoundError:
                continue
            except KasmonError:
                return b""
        with contextlib.suppress(OSError):
            return self._inherited.read_bytes() if self._inherited else b""
        return b""

    def _kept(self, when: When, turn: int, what: str) -> str:
        looked = self._box.clean()
        saved = self._saved(looked)
        point = self._points.take(self._box.workspace, turn, when, saved, self._mapped())
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
        self._tell_leaks(looked)
        return point.id

    def _saved(self, looked: CredentialFindings) -> SavedInterpreters:
        """What can be kept of the interpreters, without the values of credentials."""
        if self._box.within is None:
            return SavedInterpreters(lost=("all interpreter state: the guest program does not respond",))
        saved = self._box.within.save_state(looked.secrets)
        if holders := credentials.holders(saved.content, looked):
            return SavedInterpreters(
                lost=(*saved.lost, f"all interpreter state: it contains the value of {holders[0]}")
            )
        return saved

    def _tell_leaks(self, looked: CredentialFindings) -> None:
        """Tell of files that hold the value of a credential: what wrote it there was no part of kasmon."""
        if files := self._leaks.in_files(self._box.workspace, looked, self._mapped()):
            self._journal.tell(
                f"The value of a credential is in {credential_leaks.told(files)}, and checkpoints store it."
            )

    def _mapped(self) -> Callable[[], Container[int]]:
        return credential_leaks.mapped(self._box.tier, self._box.policy, self._journal.housing.runtime)


def _why(error: KasmonError | OSError) -> str:
    """What it says, without a full stop."""
    return (error.message if isinstance(error, KasmonError) else error.strerror or str(error)).rstrip(".")


def _not_kept(names: tuple[str, ...]) -> str:
    return f"not saved in the checkpoint: {', '.join(names[:8])}" if names else ""
