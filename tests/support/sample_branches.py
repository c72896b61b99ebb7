"""Builders of branches: what rows show of them, and what is left to do."""

from typing import Any

from kasmon.model.commands import Mode, SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.repository.branch import BranchState, BranchSummary, PullRequest
from kasmon.supervisor.finish.finish_plan import FinishRequest, FinishStep, PlannedFinish
from kasmon.supervisor.finish.merge_plan import BranchConflict, MergePlan, MergeStep
from tests.support.sample_fleet import fleet, idle, working

TREE = SessionWorktree(
    path="/home/you/shop-worktrees/fix", branch="kasmon/fix", base="b" * 40, base_name="main", source="/home/you/shop"
)
LEFT = (
    FinishStep(action="commit", text="3 changes, not committed", command="`kasmon finish fix --commit`"),
    FinishStep(
        action="update",
        text="1 commit behind main, with conflicts in 'a[b].txt'",
        command="`kasmon finish fix --update`",
    ),
    FinishStep(action="push", text="2 commits, not pushed", command="`kasmon finish fix --push`"),
    FinishStep(action="propose", text="#7 open, checks failed, changes requested: https://example.org/shop/pull/7"),
    FinishStep(action="fix", text="#7 changes requested, checks failed: test", command="`kasmon finish fix --fix`"),
    FinishStep(action="merge", text="2 commits, not in main", command="`kasmon finish fix --merge`"),
)


def branch(*, pull_request: PullRequest | None = None, **fields: Any) -> BranchSummary:
    """A branch `kasmon/fix` from main, with nothing left to do unless *fields* say so."""
    base: dict[str, Any] = {
        "name": "kasmon/fix", "head": "a" * 40, "base_name": "main", "base_ref": "refs/heads/main", "base": "b" * 40,
        "ahead": 0, "behind": 0, "conflicts": (), "staged": 0, "unstaged": 0, "untracked": 0, "unmerged": 0,
    }  # fmt: skip
    return BranchSummary(state=BranchState(**(base | fields)), pull_request=pull_request)


def pull_request(number: int = 7, **fields: Any) -> PullRequest:
    return PullRequest(number=number, url="https://example.org/7", branch="kasmon/fix", base="main", **fields)


BUSY = branch(
    ahead=2,
    behind=1,
    unstaged=3,
    conflicts=("a.txt",),
    pull_request=pull_request(checks="failed", review="changes requested"),
)


def planned(request: FinishRequest, digest: str = "d1") -> PlannedFinish:
    """What is left to do; for a request, one step that names it."""
    steps: tuple[FinishStep, ...] = LEFT
    if not request.is_empty:
        text = f"do {request.message or 'it'} {request.update}{request.merge}".strip()
        steps = (FinishStep(action="commit", text=text, hooks=("pre-commit",)),)
    return PlannedFinish(
        request=request,
        tree=TREE,
        state=branch(unstaged=3, behind=1).state,
        message=request.message or "fix",
        steps=steps,
        warnings=("the agent 'docs' (working) works in '/home/you/shop'",) if request.merge else (),
        digest="" if request.is_empty else digest,
    )


STEPS = tuple(
    MergeStep(session=SessionId(name), name=name, branch=f"kasmon/{name}", head="a" * 40, commits=1, files=1)
    for name in ("fix", "docs")
)
MERGES = MergePlan(
    base_name="main", base_ref="refs/heads/main", base="b" * 40, how="merge", steps=STEPS, skipped=(), check="",
    pairs=(BranchConflict(one="fix", other="docs", files=("a[b].txt",)),), warnings=(), digest="d1",
)  # fmt: skip


def finisher() -> Fleet:
    """A session whose branch is to be finished, and others."""
    return fleet(idle("fix", worktree=TREE, mode=Mode.SDK), working("docs", worktree=TREE), working("search"))


BRANCHES = {
    SessionId("fix"): BUSY,
    SessionId("docs"): branch(ahead=1, pull_request=pull_request(12, is_draft=True, checks="running")),
}
