"""The commit at which a task's own worktree starts: its `base`, else the work of the tasks that it needs.

Several branches are merged in that worktree, on the task's branch; no other branch or checkout changes. So is, as a
task that inherits the worktree begins, what that task needs. A conflict is left there for the user to resolve. Calls
block; use a thread. They raise `GitError` if git fails.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kasmon.errors import GitError, KasmonError, MergeConflictError, RefusedError
from kasmon.model.plan.placement import worktree_of
from kasmon.model.plan.plan import NEEDS, Plan, Task, predecessors
from kasmon.model.plan.progress import PlanRun, TaskState
from kasmon.model.plan.shared_terminal import root_of
from kasmon.repository.git import git, head, knows, list_names
from kasmon.supervisor.worktrees.unsaved_files import not_committed
from kasmon.supervisor.worktrees.worktree import TaskWorktree, check_branches, commit_of, create, no_commit

MERGE: Final = (
    *("merge", "--quiet", "--no-edit", "--no-ff", "--no-squash", "--commit", "--no-stat", "--no-log"),
    *("--no-gpg-sign", "--no-verify-signatures", "--no-autostash", "--no-rerere-autoupdate"),
)
"""A merge that runs nothing configured in the repository, and ends as one commit or as a conflict."""
WHO: Final = {"user.name": "kasmon", "user.email": "kasmon@localhost"}
"""The committer of a merge if git's config names none."""
PLAN_HEAD: Final = "HEAD"
"""The plan's own checkout, among the branches that a task needs: tasks that work in its folder commit there."""


def begin_worktree(repo: Path, path: Path, branch: str, plan: Plan, task: Task, run: PlanRun) -> TaskWorktree:
    """Create or reuse the worktree at *path* on *branch* in which *task* works, with the work that it starts from.

    Raises:
        MergeConflictError: if the branches that it needs conflict.
        RefusedError: if one of them is gone, or an earlier merge is not finished.
        UsageError: if its `base` names no commit.
    """
    start = _find_start(repo, branch, plan, task, run)
    base, is_given, has_begun, commits = start.base, bool(start.base_name), start.has_begun, start.commits
    tree = create(repo, path, branch, start.base_name or next(iter(commits.values()), "HEAD"))
    sides = [branch, *commits] if is_given or has_begun else [*commits]
    if commits:
        _check_finished(path, sides)
    missing = {name: commit for name, commit in commits.items() if not _contains(path, "HEAD", commit)}
    for name, commit in missing.items():
        _merge(path, sides, name, commit)
    if missing or not (is_given or has_begun):
        base = head(path)
    return msgspec.structs.replace(tree, base=base or tree.base)


def begin_branch(repo: Path, path: Path, branch: str, plan: Plan, task: Task, run: PlanRun) -> TaskWorktree:
    """Have *branch* at the work that *task*, which works on another machine, starts from; no worktree is left.

    Only a merge needs one, at *path* until it is done; its conflicts are resolved there. Raises as `begin_worktree`,
    and `RefusedError` if the branch exists, but was not created for the task.
    """
    start, ref = _find_start(repo, branch, plan, task, run), f"refs/heads/{branch}"
    name = ref if start.has_begun else start.base_name or next(iter(start.commits.values()), "HEAD")
    if not knows(repo, "HEAD"):
        raise no_commit(repo)
    commit = commit_of(repo, name)
    has_worktree = os.path.lexists(path / ".git")
    if knows(repo, ref) and not start.has_begun and not has_worktree:  # from a runner that was killed
        head_commit = commit_of(repo, ref)
        if not all(_contains(repo, head_commit, each) for each in (commit, *start.commits.values())):
            check_branches(repo, [branch])
        return TaskWorktree(path=str(path), branch=branch, base=head_commit)
    if has_worktree or not all(_contains(repo, commit, each) for each in start.commits.values()):
        if start.has_begun and not has_worktree:
            git(repo, "worktree", "add", "--quiet", "--", str(path), branch)
        tree = begin_worktree(repo, path, branch, plan, task, run)
        git(repo, "worktree", "remove", "--", str(path))
        return tree
    if not start.has_begun:
        git(repo, "update-ref", ref, commit, "")
    return TaskWorktree(path=str(path), branch=branch, base=start.base if start.has_begun else commit)


def begin_placed_worktree(repo: Path, path: Path, branch: str, plan: Plan, task: Task, run: PlanRun) -> TaskWorktree:
    """As `begin_worktree`, for a task that may have begun on another machine: its branch is here, and no worktree."""
    if not os.path.lexists(path / ".git"):
        begin_branch(repo, path, branch, plan, task, run)
        git(repo, "worktree", "add", "--quiet", "--", str(path), branch)
    return begin_worktree(repo, path, branch, plan, task, run)


class _Start(NamedTuple):
    """What a task's branch starts from."""

    base: str
    """The `base` logged for it; empty if it did not begin yet."""
    base_name: str
    """What the plan gives as its base; empty for the work that it needs."""
    has_begun: bool
    commits: dict[str, str]
    """The branches that it needs and their commits."""


def _find_start(repo: Path, branch: str, plan: Plan, task: Task, run: PlanRun) -> _Start:
    root, base = root_of(plan, task), _base_of(plan, task, run)
    base_name = root.base or plan.base
    base_name = "" if base_name == NEEDS else base_name
    has_begun = bool(base) and knows(repo, f"refs/heads/{branch}")
    needed: dict[str, str] = {}
    if not base_name and not has_begun:  # do not merge what was committed since into that work
        needed |= branches_of(plan, root, run)
    if task is not root and not run.of(task.id).base and (root.base == NEEDS or plan.base in ("", NEEDS)):
        needed |= branches_of(plan, task, run)
    needed.pop(branch, None)
    return _Start(
        base,
        base_name,
        has_begun,
        _independent(repo, {name: _head_of(repo, name, of) for name, of in needed.items()}),
    )


def branches_of(plan: Plan, task: Task, run: PlanRun) -> dict[str, str]:
    """Return the branches whose work *task* needs -> the task of each branch. Pure.

    A needed task that was skipped, or had no branch, is replaced by its own needs; one that worked in the plan's folder
    adds `PLAN_HEAD`. In a plan with waves, a task without explicit needs requires the wave before its own.
    """
    found: dict[str, str] = {}
    seen: set[str] = set()
    waiting = list(predecessors(plan, task))
    while waiting:
        need = waiting.pop(0)
        if need in seen:
            continue
        seen.add(need)
        at, needed = run.of(need), plan.task(need)
        if at.state is TaskState.DONE and at.branch:
            found.setdefault(at.branch, need)
            continue
        if at.state is TaskState.DONE and worktree_of(plan, needed) == "folder":
            found.setdefault(PLAN_HEAD, need)
        waiting += predecessors(plan, needed)
    return found


def _base_of(plan: Plan, task: Task, run: PlanRun) -> str:
    """Return the `base` logged for the worktree of *task*: by it, else by the first task that used it; else empty."""
    root = root_of(plan, task)
    users = (one.id for one in plan.tasks if root_of(plan, one).id == root.id)
    return next((base for id_ in (task.id, root.id, *users) if (base := run.of(id_).base)), "")


def uncommitted(path: Path) -> str:
    """Describe how many files of the worktree at *path* are uncommitted; empty if none, or if git fails."""
    try:
        dirty = list_names(path, "status", "--porcelain", "-z", "--no-renames")
    except (KasmonError, OSError):
        return ""
    return not_committed(len(dirty)) if dirty else ""


def _head_of(repo: Path, branch: str, task: str) -> str:
    if branch == PLAN_HEAD:
        return head(repo)
    if not knows(repo, f"refs/heads/{branch}"):
        raise RefusedError(
            f"the branch {branch!r} with the work of task {task!r} no longer exists in {str(repo)!r}.",
            hint="Create it again, or give the dependent task a `base`.",
        )
    return commit_of(repo, f"refs/heads/{branch}")


def _independent(repo: Path, commits: dict[str, str]) -> dict[str, str]:
    """Return those of *commits* that are in no other one's history, in their order."""
    if len(commits) < 2:
        return commits
    independent = git(repo, "merge-base", "--independent", *dict.fromkeys(commits.values())).split()
    by_commit = {commit: name for name, commit in reversed(commits.items()) if commit in independent}
    return {name: commit for name, commit in commits.items() if by_commit.get(commit) == name}


def _check_finished(path: Path, branches: Sequence[str]) -> None:
    """Raise if the merge of an earlier attempt is unresolved or uncommitted."""
    if not knows(path, "MERGE_HEAD"):
        return
    if files := _conflicts(path):
        raise MergeConflictError(branches, str(path), files)
    raise RefusedError(
        f"the merge in {str(path)!r} is resolved but not committed.", hint="Commit it (`git commit`), then retry."
    )


def _contains(path: Path, tip: str, commit: str) -> bool:
    return git(path, "merge-base", tip, commit, fails=True).strip() == commit


def _merge(path: Path, branches: Sequence[str], branch: str, commit: str) -> None:
    author = {key: value for key, value in WHO.items() if not git(path, "config", key, fails=True).strip()}
    message = "Merge HEAD of the plan's folder" if branch == PLAN_HEAD else f"Merge branch '{branch}'"
    try:
        git(path, *MERGE, "-m", message, "--", commit, settings=author)
    except GitError:
        if files := _conflicts(path):
            raise MergeConflictError(branches, str(path), files) from None
        raise


def _conflicts(path: Path) -> tuple[str, ...]:
    return tuple(sorted({*list_names(path, "diff", "--name-only", "--diff-filter=U", "--no-renames", "-z")}))
