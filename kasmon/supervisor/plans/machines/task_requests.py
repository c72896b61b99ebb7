"""What a plan's runner asks of the machine where a task works, and the replies: JSON for `kasmon task`.

Each request can be repeated: after a cut line it is unknown whether the last one was carried out.
"""

import re
from typing import Final, Literal

import msgspec

from kasmon.errors import UsageError

FIRST_PART_BYTES, LONGEST_PART_BYTES = 1 << 20, 4 << 20
"""How much of a pack the first request or reply has, and one at most: in base64 it must fit into a frame."""
PART_S: Final = 2.0
"""A part that takes longer, in seconds, is followed by a smaller one: signs of life must pass in between."""
LONGEST_PACK_BYTES: Final = 4 << 30
_RUNNER: Final = re.compile(r"[0-9a-f]{16}")
_PLAN: Final = re.compile(r"[a-z0-9_][a-z0-9_-]{0,63}")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_commit(text: str) -> bool:
    """Whether *text* is the full id of a commit, or could be."""
    return _COMMIT.fullmatch(text) is not None


def next_part_bytes(size: int, took_s: float) -> int:
    """Return how much of a pack the next request or reply has, after one of *size* bytes took *took_s* seconds."""
    return min(2 * size, LONGEST_PART_BYTES) if took_s < PART_S else max(size // 2, FIRST_PART_BYTES // 4)


class TaskKey(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one task of a plan that another kasmon runs."""

    runner: str
    """Identifies the plan's run: 16 hexadecimal digits that its runner chose once."""
    plan: str
    number: int
    """The task's, counted from 1."""
    name: str
    """The suffix of the task's branch."""
    attempt: int
    epoch: int
    """How often the task was placed so far, on any machine; so the same attempt can be placed twice."""

    @property
    def branch(self) -> str:
        return f"plan/{self.plan}.{self.name}.a{self.attempt}"

    def check(self) -> None:
        """Raise `UsageError` unless each part is valid; parts are used in paths and in the name of a branch."""
        texts = ((self.runner, _RUNNER), (self.plan, _PLAN), (self.name, _NAME))
        is_valid = all(pattern.fullmatch(text) for text, pattern in texts)
        if not is_valid or min(self.number, self.attempt, self.epoch) < 1:
            raise UsageError(f"{self} names no task of a plan.")


class PrepareTask(msgspec.Struct, frozen=True, kw_only=True):
    """Claim the task, and have a worktree for it at *commit*."""

    key: TaskKey
    commit: str
    root: str
    """The first commit of the repository's history, which identifies the repository."""
    folder: str = ""
    """The plan's folder within the repository."""
    follows: int = 0
    """The number of the task in whose folder it continues; 0 for a folder of its own."""
    remote: str = ""
    """Where the machine fetches commits that it lacks, with its own credentials; empty if it gets them as a pack."""

    def check(self) -> None:
        """Raise `UsageError` unless each part is valid."""
        self.key.check()
        if not is_commit(self.commit) or not is_commit(self.root) or self.follows < 0:
            raise UsageError(f"{self} names no commit.")


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to `PrepareTask`."""

    workdir: str = ""
    """The folder where the task works; empty as long as the commit is missing."""
    branch: str = ""
    available: tuple[str, ...] = ()
    """Commits that are there, as the pack need not have them."""


class AddCommits(msgspec.Struct, frozen=True, kw_only=True):
    """Add a part of a pack with the commit that a task starts from."""

    key: TaskKey
    commit: str
    root: str
    digest: str
    """The SHA-256 of the whole pack."""
    size: int
    offset: int
    content: bytes


class AddedCommits(msgspec.Struct, frozen=True, kw_only=True):
    received: int
    """How much of the pack is there: where the next part begins."""


class StartTask(msgspec.Struct, frozen=True, kw_only=True):
    """Start the session of a prepared attempt."""

    key: TaskKey
    agent: str = ""
    mode: str = ""
    sandbox: str = ""
    argv: tuple[str, ...] = ()
    prompt: str = ""
    wave: int
    peers: int
    environment: tuple[str, ...] = ()
    """Names of variables of that machine's kasmon."""


class StartedTask(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    name: str
    agent: str
    mode: str
    sandbox: str = ""
    argv: tuple[str, ...] = ()
    state: str = ""
    """A digest of the worktree's state before it began."""


class RunTaskCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Start the task's check unless it runs or has ended, and return its state."""

    key: TaskKey
    task: str
    wave: int
    command: str
    limit_s: float


class CheckState(msgspec.Struct, frozen=True, kw_only=True):
    has_ended: bool
    is_passed: bool = False
    exit_code: int | None = None
    why: str = ""
    output: str = ""
    took_s: float = 0.0


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    key: TaskKey


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    commit: str
    changed: int | None = None
    """The number of files that differ from its start; None if unknown."""
    uncommitted: str = ""
    """How many files are not committed, as a phrase; empty if all are."""
    problem: str = ""
    """What was not copied from its sandbox."""


class FetchCommits(msgspec.Struct, frozen=True, kw_only=True):
    """Return a part of a pack with what *commit* has and *excluded* have not."""

    key: TaskKey
    commit: str
    excluded: tuple[str, ...]
    offset: int = 0
    limit: int = LONGEST_PART_BYTES
    """How many bytes are returned at most."""


class FetchedCommits(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    """The SHA-256 of the whole pack."""
    size: int
    content: bytes


class EndTask(msgspec.Struct, frozen=True, kw_only=True):
    """End the attempt: its session, its check, its claim."""

    key: TaskKey
    is_check_only: bool = False
    """Whether only its check is ended, which may be started again."""
    removes_worktree: bool = False
    """Whether its worktree is removed too, if nothing in it could be lost."""
    has_result: bool = False
    saved: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    """Which files that git ignores may be removed with it, in the syntax of `.gitignore`."""


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt did until it was ended."""

    attempt: int
    epoch: int
    session: str = ""
    state: Literal["none", "ended", "stopped"] = "none"
    """Whether its session had ended by itself or was stopped by this; `none` if it had none."""
    commits: int = 0
    changed: int | None = None
    uncommitted: str = ""
    branch: str = ""
    """Where the work is, on that machine; empty if there is none."""
    removed: str = ""
    """The worktree that was removed now."""
    retained: str = ""
    """Why it was not, and what to do about it."""
