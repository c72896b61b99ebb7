"""Plan how the branches of several sessions are merged into their base, and merge them one by one.

What conflicts is found by `git merge-tree`, which writes to a temporary folder and touches no worktree. A check runs in
a temporary worktree before the base moves, so the base only gets what passes.
"""

import contextlib
import hashlib
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from kasmon.config import load
from kasmon.config.profile import programs
from kasmon.errors import KasmonError, LaunchError, RefusedError, StaleRequestError, UnableError
from kasmon.host.rpc.event_loop import in_thread
from kasmon.model.commands import SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import PlanRun
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.branch import BranchState
from kasmon.repository.git import git, git_folders, repository, where
from kasmon.sanitize import clean_line
from kasmon.supervisor.finish.branch_operations import find_checkout
from kasmon.supervisor.finish.finish import finish
from kasmon.supervisor.finish.finish_plan import FinishRequest, count_text, local_base, plan_finish
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.folder_config import in_folder
from kasmon.supervisor.worktrees.branch_state import MOST_FILES, read_state
from kasmon.supervisor.worktrees.changes import state_digest
from kasmon.supervisor.worktrees.recognized_worktree import worktree_of
from kasmon.supervisor.worktrees.setup import prepare_worktree, run_command
from kasmon.supervisor.worktrees.shared_checkout import describe_agents_in
from kasmon.supervisor.worktrees.turn_changes import check_resting

CHECK_S: Final = 1800.0
"""How long a check may take, in seconds."""
TRIAL: Final = {"user.name": "kasmon", "user.email": "kasmon@localhost", "commit.gpgSign": "false"}
"""The settings for merge commits that are only tried."""

HowToMerge = Literal["merge", "squash"]
OnConflict = Literal["stop", "skip", "send"]
"""What is done with a branch that conflicts: stop before it, leave it out, or leave it out and send the conflict to its
agent, as an update of its branch does."""
DecideConflict = Callable[["MergeStep", tuple[str, ...]], Awaitable[OnConflict]]
"""Returns what is done with a branch, and gets the files with conflicts."""


class BranchConflict(msgspec.Struct, frozen=True, kw_only=True):
    """Two branches that conflict, by the names of their sessions."""

    one: str
    other: str
    files: tuple[str, ...]


class MergeStep(msgspec.Struct, frozen=True, kw_only=True):
    """One branch, at its place in the order."""

    session: SessionId
    name: str
    """The session's name."""
    branch: str
    head: str
    commits: int
    files: int
    """How many files it changes."""
    check: str = ""
    conflicts: tuple[str, ...] = ()
    """The files in which it conflicts with the base after the branches before it; it cannot be merged then."""


class MergePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How the branches are merged."""

    base_name: str
    base_ref: str
    base: str
    """The commit of the base now."""
    how: HowToMerge
    steps: tuple[MergeStep, ...]
    pairs: tuple[BranchConflict, ...]
    """Which branches conflict with each other."""
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
    places: Paths,
    sessions: Sequence[Session],
    how: HowToMerge,
    check: str,
    checks: Mapping[SessionId, str] | None = None,
    *,
    fleet: Fleet,
) -> MergePlan:
    """Return the order in which the branches of *sessions* are merged: those with the fewest conflicts first. Blocks.

    Args:
        places: where the config is.
        sessions: they have a worktree each.
        how: by a merge commit, or as one commit.
        check: a shell command that has to pass on the base and after each merge; empty for none.
        checks: session -> a command that has to pass from the merge of its branch on.
        fleet: all sessions, of which agents may work in the checkout of the base.

    Raises:
        UnableError: if a session has no worktree.
        SessionBusyError: if a turn runs.
        RefusedError: if a branch has changes that are not committed, or their bases differ.
        GitError, TimedOutError: if git fails.
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
    checkout = find_checkout(path, state.base_ref)
    warnings = describe_agents_in(str(checkout or ""), fleet.sessions, programs(load(places)))
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
    tree = worktree_of(session)
    if tree is None:
        raise UnableError(f"{session.name!r} works in no git worktree.", hint="Merge its branch with git.")
    check_resting(session)
    state = read_state(tree)
    changes = f"{state.uncommitted} uncommitted change{'' if state.uncommitted == 1 else 's'}"
    if why := state.operation or (changes if state.uncommitted else ""):
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
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


@contextlib.contextmanager
def _trials(path: Path) -> Iterator[Callable[[str, str], tuple[str, tuple[str, ...]]]]:
    """Yield what merges two commits of the repository of *path* in a temporary folder.

    It returns the merge commit, or empty and the files that conflict.
    """
    objects = git_folders(path)[1] / "objects"
    with tempfile.TemporaryDirectory(prefix="kasmon-merge-") as folder:
        new = (Path(folder), objects)

        def merge(one: str, other: str) -> tuple[str, tuple[str, ...]]:
            words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", one, other)
            tree, *files = git(path, *words, fails=True, new_objects=new).split("\0")
            if not tree:
                raise RefusedError("git cannot merge the branches: their commits have nothing in common.")
            if named := tuple(dict.fromkeys(clean_line(name) for name in files if name)):
                return "", named[:MOST_FILES]
            commit = git(
                path, "commit-tree", tree, "-p", one, "-p", other, "-m", "trial", settings=TRIAL, new_objects=new
            )
            return commit.strip(), ()

        yield merge


async def stop_at_conflict(step: MergeStep, files: tuple[str, ...]) -> OnConflict:
    """Have the merges end before *step*."""
    return "stop"


async def merge_one_by_one(
    places: Paths,
    sessions: Sequence[Session],
    plan: MergePlan,
    report: Callable[[str], None],
    decide: DecideConflict = stop_at_conflict,
) -> MergeOutcome:
    """Merge the branches as *plan* says, and stop at the first that breaks a check.

    Args:
        places: where kasmon's files are.
        sessions: those of the plan.
        plan: what was shown.
        report: gets a sentence after each step.
        decide: says what is done with a branch that conflicts.

    Raises:
        StaleRequestError: if a branch, the base or a file changed since the plan was made; nothing is done then.
        RefusedError: if the check fails on the base itself.
    """
    checks = {step.session: step.check for step in plan.steps}
    fleet = await in_thread(read_fleet, places)
    now = await in_thread(lambda: plan_merges(places, sessions, plan.how, plan.check, checks, fleet=fleet))
    if now.digest != plan.digest:
        raise changed_since()
    known = {session.id: session for session in sessions}
    merged, left_out, sent = list[MergeStep](), list[str](), list[str]()
    stop, stopped_at = MergeOutcome(), ""
    with _check_folder(places, known, plan) as checker:
        for step in plan.steps:
            session = known[step.session]
            outcome = await _merge(places, session, plan, merged, step, checker, report)
            choice: OnConflict = "stop"
            if outcome is not None and outcome.conflicts:
                choice = await decide(step, outcome.conflicts)
            if outcome is not None and choice == "send":
                outcome = await _send_conflict(places, session, report) or outcome
                choice = "send" if outcome.conflicts else "stop"
            if outcome is None:
                merged.append(step)
            elif choice == "stop":
                stop, stopped_at = outcome, step.session
                break
            else:
                left_out.append(step.name)
                sent += [step.name] if choice == "send" else []
    return msgspec.structs.replace(
        stop,
        merged=tuple(each.name for each in merged),
        left_out=tuple(left_out),
        sent=tuple(sent),
        stopped_at=stopped_at,
    )


async def _send_conflict(places: Paths, session: Session, report: Callable[[str], None]) -> MergeOutcome | None:
    """Merge the base into the branch of *session* and have its agent resolve the conflicts; return why not, or None."""
    try:
        request = FinishRequest(update="merge", conflicts="send")
        planned = await in_thread(lambda: plan_finish(places, session, request, read_fleet(places)))
        result = await finish(places, session, planned, report)
        report(f"sent the conflicts to {session.name}" if result.receipt else f"updated {session.name}: no conflicts")
    except KasmonError as error:
        return MergeOutcome(why=error.message, hint=error.hint)
    return None


async def _merge(
    places: Paths,
    session: Session,
    plan: MergePlan,
    merged: Sequence[MergeStep],
    step: MergeStep,
    checker: "_CheckFolder | None",
    report: Callable[[str], None],
) -> MergeOutcome | None:
    """Merge the branch of *step*; return why that was not done, or None."""
    try:
        request = FinishRequest(merge=plan.how)
        tree = await in_thread(worktree_of, session)
        if tree is None:
            raise RefusedError(f"the worktree of {session.name!r} is gone.")
        state = await in_thread(read_state, tree)
        if state.head != step.head:
            raise RefusedError(f"the branch {step.branch!r} has other commits than shown.", hint="Plan it again.")
        if state.conflicts:
            hint = f"`kasmon finish {session.id} --update merge --conflicts send` has the agent resolve that."
            return MergeOutcome(
                why=f"{step.branch!r} conflicts with {plan.base_name}", hint=hint, conflicts=state.conflicts
            )
        if checker is not None:
            report(f"checking {step.name}")
            if (broken := await in_thread(checker.find_broken, state.base, merged, step)) is not None:
                return broken
        steps = await in_thread(lambda: plan_finish(places, session, request, read_fleet(places)))
        if (steps.state.head, steps.state.base) != (state.head, state.base):
            raise RefusedError(
                f"{step.branch!r} or {plan.base_name!r} changed during the check.", hint="Plan it again."
            )
        await finish(places, session, steps, report)
    except KasmonError as error:
        return MergeOutcome(why=error.message, hint=error.hint)
    return None


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
    """Return the error that a plan is out of date."""
    error = StaleRequestError("")
    KasmonError.__init__(
        error,
        "a branch, the base, or files changed since this was planned. Nothing was done.",
        hint="Review it again: `kasmon merge-plan --dry-run` with the same sessions.",
    )
    return error


@contextlib.contextmanager
def _check_folder(
    places: Paths, sessions: Mapping[SessionId, Session], plan: MergePlan
) -> Iterator["_CheckFolder | None"]:
    """Yield a temporary worktree for checks, set up as a new one; None without checks.

    Raises:
        RefusedError: if the check fails on the base.
        LaunchError: if the worktree cannot be set up.
    """
    if not plan.steps or not (plan.check or any(step.check for step in plan.steps)):
        yield None
        return
    tree = worktree_of(sessions[plan.steps[0].session])
    assert tree is not None
    path = Path(tree.path)
    with tempfile.TemporaryDirectory(prefix="kasmon-check-") as folder:
        top = Path(folder).resolve() / "worktree"
        git(path, "worktree", "add", "--quiet", "--detach", "--", str(top), plan.base)
        try:
            config = in_folder(places, load(places), tree.source).config.worktree
            try:
                prepare_worktree(config, repository(Path(tree.source)), top, lambda text: None)
            except LaunchError as error:
                error.hint = "The check runs in a temporary worktree with the setup of a new one. Nothing was merged."
                raise
            checker = _CheckFolder(top, plan)
            if plan.check and (why := checker.run(plan.base, [], [plan.check])):
                raise RefusedError(
                    f"the check fails on {plan.base_name!r} already: {why}",
                    hint="Nothing was merged.",
                )
            yield checker
        finally:
            git(path, "worktree", "remove", "--force", "--", str(top))


class _CheckFolder:
    """A temporary worktree in which merges are tried and checked; no ref keeps the commits of these merges."""

    def __init__(self, top: Path, plan: MergePlan) -> None:
        self._top, self._plan = top, plan

    def run(self, base: str, heads: Sequence[str], checks: Sequence[str]) -> str:
        """Return why one of *checks* fails on *base* with *heads* merged; empty if all pass."""
        git(self._top, "checkout", "--quiet", "--force", "--detach", base)
        git(self._top, "clean", "-fdq")
        try:
            for head in heads:
                words = ("merge", "--quiet", "--no-ff", "-m", "trial", head)
                git(self._top, *words, settings=TRIAL)
            for check in checks:
                run_command(check, self._top, CHECK_S, "check", lambda text: None)
        except KasmonError as error:
            if not isinstance(error, LaunchError):
                git(self._top, "merge", "--abort", fails=True)
            return error.message
        return ""

    def find_broken(self, base: str, merged: Sequence[MergeStep], step: MergeStep) -> MergeOutcome | None:
        """Return which branches break a check once that of *step* is merged into *base*; None if all checks pass.

        *merged* are those before it, whose checks passed.
        """
        for check in self._checks([*merged, step]):
            if why := self.run(base, [step.head], [check]):
                partner = self._find_partner(merged, step, check)
                text = f"{step.branch!r} breaks the check {check!r}" + (
                    f" together with {partner!r}" if partner else ""
                )
                broken_by = (*([partner] if partner else []), step.name)
                return MergeOutcome(why=f"{text}: {why}", hint="It was not merged.", broken_by=broken_by)
        return None

    def _find_partner(self, merged: Sequence[MergeStep], step: MergeStep, check: str) -> str:
        """Return the name of the branch with which *step* breaks *check*, by bisection; empty if it does so alone.

        The branches that *check* belongs to are always part of what is tried.
        """
        owners = [each for each in merged if each.check == check and step.check != check]
        others = [each for each in merged if each not in owners]
        low, high = 0, len(others)
        while low < high:
            middle = (low + high) // 2
            chosen = [each.head for each in merged if each in owners or each in others[:middle]]
            if self.run(self._plan.base, [*chosen, step.head], [check]):
                high = middle
            else:
                low = middle + 1
        return others[low - 1].name if low else next((each.name for each in owners), "")

    def _checks(self, steps: Sequence[MergeStep]) -> list[str]:
        found = [self._plan.check] if self._plan.check else [step.check for step in steps]
        return [check for check in dict.fromkeys(found) if check]


def find_plan_branches(run: PlanRun, plan: Plan, fleet: Fleet) -> tuple[list[Session], dict[SessionId, str]]:
    """Return the sessions of the tasks of *plan*, one for each branch, and the checks by session. Blocks.

    A session has the worktree of its task; its base is the branch that is checked out in the plan's folder.

    Raises:
        RefusedError: if no task has a branch that exists, or no branch is checked out in the plan's folder.
    """
    base = git(Path(run.folder), "symbolic-ref", "--quiet", "--short", "HEAD", fails=True).strip()
    if not base:
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
