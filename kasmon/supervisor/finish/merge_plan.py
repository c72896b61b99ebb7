"""Plan how the branches of several sessions are merged into their base; `merge_execution` merges them.

What conflicts is found by `git merge-tree`, which writes to a temporary folder and touches no worktree. Functions raise
`GitError` or `TimedOutError` if git fails.
"""

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from kasmon.config import load
from kasmon.config.profile import programs
from kasmon.errors import RefusedError, StaleRequestError, UnableError
from kasmon.model.commands import SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import count_text
from kasmon.model.permission import SessionId
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import PlanRun
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.branch import BranchState
from kasmon.repository.git import current_branch, git, git_folders, where
from kasmon.supervisor.finish.branch_operations import find_worktree_of
from kasmon.supervisor.finish.finish_plan import local_base
from kasmon.supervisor.worktrees.branch_state import merge_trees, read_state
from kasmon.supervisor.worktrees.changes import digest_texts, state_digest
from kasmon.supervisor.worktrees.recognized_worktree import worktree_of
from kasmon.supervisor.worktrees.shared_checkout import describe_agents_in
from kasmon.supervisor.worktrees.turn_changes import check_resting

TRIAL: Final = {"user.name": "kasmon", "user.email": "kasmon@localhost", "commit.gpgSign": "false"}
"""The settings for merge commits that are only tried."""

HowToMerge = Literal["merge", "squash"]
OnConflict = Literal["stop", "skip", "send"]
"""What is done with a branch that conflicts: stop before it, leave it out, or leave it out and send the conflict to its
agent, as an update of its branch does."""


class BranchConflict(msgspec.Struct, frozen=True, kw_only=True):
    """Two branches that conflict, by the names of their sessions."""

    one: str
    other: str
    files: tuple[str, ...]


class MergeStep(msgspec.Struct, frozen=True, kw_only=True):
    """One branch, at its place in the order."""

    session: SessionId
    name: str
    branch: str
    head: str
    commits: int
    files: int
    check: str = ""
    conflicts: tuple[str, ...] = ()
    """The files in which it conflicts with the base after the branches before it; it cannot be merged then."""


class MergePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How the branches are merged."""

    base_name: str
    base_ref: str
    base: str
    how: HowToMerge
    steps: tuple[MergeStep, ...]
    pairs: tuple[BranchConflict, ...]
    skipped: tuple[str, ...]
    """The names of sessions whose branches have no commit that the base does not have."""
    check: str
    """The command that has to pass on the base and after each merge; empty for that of each step alone."""
    warnings: tuple[str, ...]
    """A clause for each agent that works in the checkout of the base."""
    digest: str


class MergeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was merged, and where it stopped."""

    merged: tuple[str, ...] = ()
    """The names of the sessions, in the order of their merges."""
    left_out: tuple[str, ...] = ()
    """The names of those whose branches conflict, and that were left out."""
    sent: tuple[str, ...] = ()
    """The names of those among them whose agents got the conflict as a prompt."""
    stopped_at: SessionId | Literal[""] = ""
    """The session whose branch was not merged; empty if all were."""
    why: str = ""
    hint: str = ""
    conflicts: tuple[str, ...] = ()
    broken_by: tuple[str, ...] = ()
    """The names of the sessions whose branches together break the check."""


class _Branch(NamedTuple):
    session: Session
    path: Path
    state: BranchState
    check: str


def plan_merges(
    paths: Paths,
    sessions: Sequence[Session],
    how: HowToMerge,
    check: str,
    checks: Mapping[SessionId, str] | None = None,
    *,
    fleet: Fleet,
) -> MergePlan:
    """Return the order in which the branches of *sessions* are merged: those with the fewest conflicts first. Blocks.

    Args:
        how: by a merge commit, or as one commit.
        check: a shell command that has to pass on the base and after each merge; empty for none.
        checks: session -> a command that has to pass from the merge of its branch on.
        fleet: all sessions, of which agents may work in the checkout of the base.

    Raises:
        UnableError: if a session has no worktree.
        SessionBusyError: if a turn runs.
        RefusedError: if a branch has changes that are not committed, or their bases differ.
    """
    found = [_read(session, (checks or {}).get(session.id, "")) for session in sessions]
    bases = {(git_folders(each.path)[1], local_base(each.state)) for each in found}
    if len(bases) != 1:
        raise RefusedError(
            "the branches have different bases or repositories, so they cannot be merged in one order.",
            hint="`kasmon worktrees` lists them. Name sessions with one base.",
        )
    branches = [each for each in found if each.state.ahead]
    skipped = tuple(each.session.name for each in found if not each.state.ahead)
    state, path = found[0].state, found[0].path
    with _trials(path) as merge:
        pairs = [
            BranchConflict(one=one.session.name, other=other.session.name, files=files)
            for one, other in itertools.combinations(branches, 2)
            if (files := merge(one.state.head, other.state.head)[1])
        ]
        names = [name for pair in pairs for name in (pair.one, pair.other)]
        ordered = sorted(branches, key=lambda each: (bool(each.state.conflicts), names.count(each.session.name)))
        steps, tip = list[MergeStep](), state.base
        for each in ordered:
            merged, files = merge(tip, each.state.head)
            steps.append(_step(each, files))
            tip = merged or tip
    checkout = find_worktree_of(path, state.base_ref)
    warnings = describe_agents_in(str(checkout or ""), fleet.sessions, programs(load(paths)))
    return MergePlan(
        base_name=state.base_name,
        base_ref=local_base(state),
        base=state.base,
        how=how,
        steps=tuple(steps),
        pairs=tuple(pairs),
        skipped=skipped,
        check=check,
        warnings=warnings,
        digest=_digest(state, how, check, ordered, checkout, warnings),
    )


def _read(session: Session, check: str) -> _Branch:
    if session.via:
        raise UnableError(
            f"{session.name!r} is on {session.via!r}: only branches of this machine are merged one by one.",
            hint=f"Run `kasmon merge-plan --machine {session.via}`.",
        )
    tree = worktree_of(session)
    if tree is None:
        raise UnableError(f"{session.name!r} works in no git worktree.", hint="Merge its branch with git.")
    check_resting(session)
    state = read_state(tree)
    changes = count_text(state.uncommitted, "uncommitted change") if state.uncommitted else ""
    if why := state.operation or changes:
        raise RefusedError(
            f"{session.name!r} cannot be merged: {why} in {tree.path!r}.",
            hint=f"`kasmon finish {session.id}` says what is left to do.",
        )
    return _Branch(session, Path(tree.path), state, check)


def _step(branch: _Branch, conflicts: tuple[str, ...]) -> MergeStep:
    state = branch.state
    names = git(branch.path, "diff", "--name-only", "--no-renames", "-z", f"{state.base}...{state.head}")
    return MergeStep(
        session=branch.session.id,
        name=branch.session.name,
        branch=state.name,
        head=state.head,
        commits=state.ahead,
        files=names.count("\0"),
        check=branch.check,
        conflicts=conflicts,
    )


def _digest(
    state: BranchState,
    how: str,
    check: str,
    branches: Sequence[_Branch],
    checkout: Path | None,
    warnings: Sequence[str],
) -> str:
    parts = [state.base_ref, state.base, how, check]
    for each in branches:
        parts += [each.session.id, each.state.name, each.state.head, each.check, state_digest(each.path)]
    if checkout is not None:
        parts += [state_digest(checkout), *warnings]
    return digest_texts(parts)


@contextlib.contextmanager
def _trials(path: Path) -> Iterator[Callable[[str, str], tuple[str, tuple[str, ...]]]]:
    """Yield what merges two commits of the repository of *path* in a temporary folder.

    It returns the merge commit, or empty and the files that conflict.
    """
    objects = git_folders(path)[1] / "objects"
    with tempfile.TemporaryDirectory(prefix="kasmon-merge-") as folder:
        new = (Path(folder), objects)

        def merge(one: str, other: str) -> tuple[str, tuple[str, ...]]:
            tree, files = merge_trees(path, one, other, new)
            if not tree:
                raise RefusedError("git cannot merge the branches: their commits have nothing in common.")
            if files:
                return "", files
            arguments = ("commit-tree", tree, "-p", one, "-p", other, "-m", "trial")
            return git(path, *arguments, settings=TRIAL, new_objects=new).strip(), ()

        yield merge


def plan_lines(plan: MergePlan) -> list[str]:
    """Return the order, what conflicts, and the digest, a line each."""
    branches = "1 branch" if len(plan.steps) == 1 else f"{len(plan.steps)} branches"
    lines = [f"{branches} into {plan.base_name} ({plan.base[:12]}), in this order:"]
    cells = max((len(step.name) for step in plan.steps), default=0)
    for number, step in enumerate(plan.steps, 1):
        work = f"{count_text(step.commits, 'commit')}, {count_text(step.files, 'file')}"
        lines.append(f"  {number:>2}  {step.name:<{cells}}  {step.branch}: {work}")
        if step.conflicts:
            lines.append(f"      {'':<{cells}}  conflicts in {', '.join(map(repr, step.conflicts))}")
        if step.check:
            lines.append(f"      {'':<{cells}}  check: {step.check}")
    lines += [f"  {pair.one} and {pair.other} conflict in {', '.join(map(repr, pair.files))}" for pair in plan.pairs]
    lines += [f"  {name}: nothing to merge" for name in plan.skipped]
    lines += [f"  warning: {warning}" for warning in plan.warnings]
    lines += [f"  check: {plan.check}"] if plan.check else []
    return [*lines, f"  digest {plan.digest}"]


def outcome_lines(outcome: MergeOutcome, count: int) -> list[str]:
    """Return what was merged of *count* branches, which were left out, and where it stopped, a line each."""
    lines = [f"merged {len(outcome.merged)} of {count} branches."]
    for name in outcome.left_out:
        what = (
            "its agent resolves the conflict; merge it once that is committed" if name in outcome.sent else "left out"
        )
        lines.append(f"{name}: {what}.")
    if outcome.stopped_at:
        files = f" in {', '.join(map(repr, outcome.conflicts))}" if outcome.conflicts else ""
        lines.append(f"{outcome.why.rstrip('.')}{files}. {outcome.hint}".strip())
    return lines


def changed_since() -> StaleRequestError:
    what = "a branch, the base, or files"
    return StaleRequestError.of_plan("", what, "`kasmon merge-plan --dry-run` with the same sessions")


def find_plan_branches(run: PlanRun, plan: Plan, fleet: Fleet) -> tuple[list[Session], dict[SessionId, str]]:
    """Return the sessions of the tasks of *plan*, one for each branch, and the checks by session. Blocks.

    A session has the worktree of its task; its base is the branch that is checked out in the plan's folder. Raises
    `RefusedError` if there is no such base, or no branch.
    """
    if not (base := current_branch(Path(run.folder))):
        raise RefusedError(f"no branch is checked out in {run.folder!r}, so there is no base.", hint="Check one out.")
    by_branch, checks = dict[str, Session](), dict[SessionId, str]()
    for task in plan.tasks:
        at = run.of(task.id)
        session = fleet.get(SessionId(at.session)) if at.session else None
        if session is None or not at.branch or not Path(at.workdir).is_dir():
            continue
        tree = SessionWorktree(
            path=where(Path(at.workdir))[0], branch=at.branch, base=at.base or base, base_name=base, source=run.folder
        )
        known = by_branch.setdefault(at.branch, msgspec.structs.replace(session, worktree=tree, plan=None))
        both = (checks.get(known.id, ""), task.check)
        checks[known.id] = " && ".join(f"({each})" if all(both) else each for each in both if each)
    if not by_branch:
        raise RefusedError(f"no task of plan {run.plan!r} has a branch.", hint="`kasmon plan show` lists them.")
    return list(by_branch.values()), checks
