"""Which attempt of a task may work on this machine: the task's claim, a file under a lock. Calls block.

The newest attempt and epoch that the plan's runner named holds the claim. A command for an older one is refused. So
what reaches this machine late, or from a runner that was away, neither starts nor changes anything.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kasmon.errors import RefusedError, UnavailableError
from kasmon.paths import Paths, private_folder, write_private
from kasmon.store.file_lock import lock
from kasmon.supervisor.plans.machines.task_requests import AttemptReport, TaskKey
from kasmon.supervisor.plans.task_folder import OWN_FOLDER
from kasmon.supervisor.worktrees.unsaved_files import ignored


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt that holds a task on this machine."""

    attempt: int = 0
    """0 if there was none yet."""
    epoch: int = 0
    is_ended: bool = False
    claimed_at: float = 0.0
    repository: str = ""
    """The git folder of the store that its worktree is of."""
    top: str = ""
    """Its worktree; as long as `workdir` is empty, that of the attempt before."""
    workdir: str = ""
    """The folder where it works; empty until its worktree is complete."""
    base: str = ""
    """The commit that the attempt started from."""
    session: str = ""
    sandbox: str = ""
    is_started: bool = False
    """Whether its session was started, and did not fail to."""
    initial_state: str = ""
    reports: tuple[AttemptReport, ...] = ()
    """Of the attempts that ended, oldest first."""

    def is_of(self, key: TaskKey) -> bool:
        return (self.attempt, self.epoch) == (key.attempt, key.epoch)

    def is_newer(self, key: TaskKey) -> bool:
        """Whether *key* has lost the claim."""
        return self.attempt > key.attempt or self.epoch > key.epoch


class TaskClaim:
    """The claim of the task of *key*."""

    def __init__(self, paths: Paths, key: TaskKey) -> None:
        """Raises `UsageError` if *key* is invalid."""
        key.check()
        self.key = key
        self.folder = paths.plan_tasks / key.runner / key.name
        self._file = self.folder / "claim.json"

    @contextlib.contextmanager
    def hold(self) -> Iterator[Claim]:
        """Hold its lock, and yield the claim as it is; wait until the lock is free. Raises `UnavailableError`."""
        try:
            private_folder(self.folder)
            with lock(self._file):
                yield self.read()
        except OSError as error:
            raise UnavailableError(f"cannot use {str(self.folder)!r}: {error.strerror or error}.") from error

    def read(self) -> Claim:
        """Return the claim; an empty one if there is none."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Claim)
        except FileNotFoundError:
            return Claim()
        except (OSError, msgspec.DecodeError) as error:
            raise UnavailableError(f"cannot read the claim {str(self._file)!r}: {error}.") from error

    def write(self, claim: Claim) -> None:
        """Replace the claim; its lock is held."""
        write_private(self._file, msgspec.json.encode(claim), durable=True)

    def require_current(self, claim: Claim, *, may_have_ended: bool = False) -> None:
        """Raise `RefusedError` unless the key's attempt holds *claim*, and unless *may_have_ended*, has not ended."""
        if claim.is_newer(self.key):
            raise self._build_lost_error(claim)
        if not claim.is_of(self.key):
            raise RefusedError(f"attempt {self.key.attempt} of {self._what} was not prepared on this machine.")
        if claim.is_ended and not may_have_ended:
            raise RefusedError(f"attempt {self.key.attempt} of {self._what} has been ended on this machine.")

    def require_not_lost(self, claim: Claim) -> None:
        """Raise `RefusedError` if a newer attempt holds *claim*, or the key's own has ended."""
        if claim.is_newer(self.key):
            raise self._build_lost_error(claim)
        if claim.is_of(self.key):
            self.require_current(claim)

    def _build_lost_error(self, claim: Claim) -> RefusedError:
        held = f"attempt {claim.attempt} (placement {claim.epoch})"
        return RefusedError(
            f"attempt {self.key.attempt} (placement {self.key.epoch}) of {self._what} lost its claim: {held} holds it."
        )

    @property
    def _what(self) -> str:
        return f"task {self.key.name!r} of plan {self.key.plan!r}"


def result_mark(folder: Path, claim: Claim) -> Path:
    """Return the file that exists once the runner has read the result of *claim*, which is in *folder*."""
    return folder / f"result-{claim.attempt}-{claim.epoch}"


def list_own_files(top: Path, *, has_result: bool) -> tuple[str, ...]:
    """Return the git-ignored files of the worktree *top* that kasmon created, or whose content its runner has."""
    wanted = re.compile(rf"(.*/)?{re.escape(OWN_FOLDER)}/(\.gitignore{'|task-[0-9]+/result.md' * has_result})")
    return tuple(name for name in ignored(top) if wanted.fullmatch(name))


def folder_of(paths: Paths, key: TaskKey, number: int) -> Path:
    """Return the worktree of the newest attempt of another task, *number*, of the same plan.

    Raises `RefusedError` if it has none on this machine.
    """
    names = [path.name for path in (paths.plan_tasks / key.runner).glob(f"{number}*")]
    names = [name for name in names if name.partition("-")[0] == str(number)]  # an edit may have renamed the task
    others = [TaskClaim(paths, msgspec.structs.replace(key, number=number, name=name)).read() for name in names]
    others = [other for other in others if other.workdir and Path(other.top).is_dir()]
    if not others:
        raise RefusedError(f"task {number} of plan {key.plan!r} did not work on this machine, or its folder is gone.")
    return Path(max(others, key=lambda other: other.claimed_at).top)
