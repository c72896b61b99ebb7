"""The branch of a session's worktree, and its pull request: values that are shown. Pure."""

from typing import Final

import msgspec

CHANGES_REQUESTED: Final = "changes requested"
"""The review of a pull request in which a reviewer requested changes."""


class BranchState(msgspec.Struct, frozen=True, kw_only=True):
    """A worktree as it is now, against the base that it was created from."""

    name: str
    """The branch; empty if none is checked out."""
    head: str
    base_name: str
    """What the base was requested as: a branch, a tag, `pr:12`."""
    base_ref: str
    """The full name of that branch or tag; empty if it has none, or no longer exists."""
    base: str
    """The commit of the base now; the one that the worktree began at if the base is no branch."""
    ahead: int
    """How many of its commits the base does not have."""
    behind: int
    conflicts: tuple[str, ...] | None
    """Files in which the commits conflict with the base, at most 20; None if git could not merge them."""
    staged: int
    unstaged: int
    untracked: int
    unmerged: int
    """How many files have conflicts that are not resolved."""
    operation: str = ""
    """A merge or rebase that is not finished."""
    remote: str = ""
    """The branch of the same name on a remote, as last fetched: `origin/fix`; empty if there is none."""
    remote_head: str = ""
    unpushed: int | None = None
    """How many commits that branch does not have; None if there is none."""
    pull_request: int | None = None
    """The number of its newest pull request, where it was read before."""

    @property
    def uncommitted(self) -> int:
        return self.staged + self.unstaged + self.untracked + self.unmerged

    @property
    def words(self) -> str:
        """What is left to do, in one line: `2 ahead, 1 behind, 3 changes, conflicts in 'a.txt', not pushed`."""
        changes = f"{self.uncommitted} change{'' if self.uncommitted == 1 else 's'}" if self.uncommitted else ""
        files = ", ".join(map(repr, self.conflicts or ()))
        parts = (
            self.operation,
            f"{self.ahead} ahead" if self.ahead else "",
            f"{self.behind} behind" if self.behind else "",
            changes,
            f"conflicts in {files}" if files else "",
            ("pushed" if not self.unpushed else f"{self.unpushed} not pushed") if self.remote else "",
            f"#{self.pull_request}" if self.pull_request is not None else "",
        )
        return ", ".join(part for part in parts if part) or "no changes"


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request of GitHub, or a merge request of GitLab."""

    number: int
    url: str
    branch: str
    base: str
    state: str = "open"
    """`open`, `merged` or `closed`."""
    is_draft: bool = False
    head: str = ""
    """The commit that it proposes, as last read."""
    review: str = ""
    """`approved`, `changes requested`, `review required`; empty if unknown."""
    checks: str = ""
    """`passed`, `failed`, `running`; empty if unknown, or if there are none."""

    failed: tuple[str, ...] = ()

    @property
    def needs_work(self) -> bool:
        """Whether it is open and a check failed, or a reviewer requested changes."""
        return self.state == "open" and (self.checks == "failed" or self.review == CHANGES_REQUESTED)

    @property
    def note(self) -> str:
        """What it needs, in a few words; empty for nothing."""
        if not self.needs_work:
            return ""
        names = f": {', '.join(self.failed)}" if self.failed else ""
        checks = f"checks failed{names}" if self.checks == "failed" else ""
        review = self.review if self.review == CHANGES_REQUESTED else ""
        return f"#{self.number} {', '.join(part for part in (review, checks) if part)}"

    @property
    def words(self) -> str:
        """It in one line: `#7 open, checks failed`."""
        checks = f"checks {self.checks}" if self.checks else ""
        state = "draft" if self.is_draft and self.state == "open" else self.state
        return f"#{self.number} " + ", ".join(part for part in (state, checks, self.review) if part)


class BranchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the dashboard shows of a session's branch."""

    state: BranchState
    pull_request: PullRequest | None = None
    """The newest one, as last read."""

    @property
    def words(self) -> str:
        """Its name and base, what is left to do, and its pull request, in one line."""
        state = self.state
        request = f", {self.pull_request.words}" if self.pull_request else ""
        return f"{state.name or 'no branch'} from {state.base_name}: {state.words}{request}"
