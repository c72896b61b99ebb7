"""Merge the branches of a plan one by one, each after its check in a temporary worktree.

The base only gets what passes. A branch that breaks a check is bisected against those before it.
"""

import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.config import load
from kasmon.errors import KasmonError, LaunchError, RefusedError
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.git import git, repository
from kasmon.supervisor.finish.finish import finish
from kasmon.supervisor.finish.finish_plan import FinishRequest, plan_finish
from kasmon.supervisor.finish.merge_plan import (
    TRIAL,
    MergeOutcome,
    MergePlan,
    MergeStep,
    OnConflict,
    changed_since,
    plan_merges,
)
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.folder_config import in_folder
from kasmon.supervisor.worktrees.branch_state import read_state
from kasmon.supervisor.worktrees.recognized_worktree import worktree_of
from kasmon.supervisor.worktrees.setup import prepare_worktree, run_command

CHECK_S: Final = 1800.0

DecideConflict = Callable[["MergeStep", tuple[str, ...]], Awaitable[OnConflict]]
"""Returns what is done with a branch, and gets the files with conflicts."""


async def stop_at_conflict(step: MergeStep, files: tuple[str, ...]) -> OnConflict:
    return "stop"


async def merge_one_by_one(
    paths: Paths,
    sessions: Sequence[Session],
    plan: MergePlan,
    report: Callable[[str], None],
    decide: DecideConflict = stop_at_conflict,
) -> MergeOutcome:
    """Merge the branches as *plan*, which was shown, says, and stop at the first that breaks a check.

    Args:
        report: gets a sentence after each step.
        decide: says what is done with a branch that conflicts.

    Raises:
        StaleRequestError: if a branch, the base or a file changed since the plan was made; nothing is done then.
        RefusedError: if the check fails on the base itself.
    """
    checks = {step.session: step.check for step in plan.steps}
    fleet = await run_in_thread(read_fleet, paths)
    now = await run_in_thread(lambda: plan_merges(paths, sessions, plan.how, plan.check, checks, fleet=fleet))
    if now.digest != plan.digest:
        raise changed_since()
    known = {session.id: session for session in sessions}
    merged, left_out, sent = list[MergeStep](), list[str](), list[str]()
    stop, stopped_at = MergeOutcome(), ""
    with _check_folder(paths, known, plan) as checker:
        for step in plan.steps:
            session = known[step.session]
            outcome = await _merge(paths, session, plan, merged, step, checker, report)
            choice: OnConflict = "stop"
            if outcome is not None and outcome.conflicts:
                choice = await decide(step, outcome.conflicts)
            if outcome is not None and choice == "send":
                outcome = await _send_conflict(paths, session, report) or outcome
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


async def _send_conflict(paths: Paths, session: Session, report: Callable[[str], None]) -> MergeOutcome | None:
    """Merge the base into the branch of *session* and have its agent resolve the conflicts; return why not, or None."""
    try:
        request = FinishRequest(update="merge", conflicts="send")
        planned = await run_in_thread(lambda: plan_finish(paths, session, request, read_fleet(paths)))
        result = await finish(paths, session, planned, report)
        report(f"sent the conflicts to {session.name}" if result.receipt else f"updated {session.name}: no conflicts")
    except KasmonError as error:
        return MergeOutcome(why=error.message, hint=error.hint)
    return None


async def _merge(
    paths: Paths,
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
        tree = await run_in_thread(worktree_of, session)
        if tree is None:
            raise RefusedError(f"the worktree of {session.name!r} is gone.")
        state = await run_in_thread(read_state, tree)
        if state.head != step.head:
            raise RefusedError(f"the branch {step.branch!r} has other commits than shown.", hint="Plan it again.")
        if state.conflicts:
            hint = f"`kasmon finish {session.id} --update merge --conflicts send` has the agent resolve that."
            return MergeOutcome(
                why=f"{step.branch!r} conflicts with {plan.base_name}", hint=hint, conflicts=state.conflicts
            )
        if checker is not None:
            report(f"checking {step.name}")
            if (broken := await run_in_thread(checker.find_broken, state.base, merged, step)) is not None:
                return broken
        steps = await run_in_thread(lambda: plan_finish(paths, session, request, read_fleet(paths)))
        if (steps.state.head, steps.state.base) != (state.head, state.base):
            raise RefusedError(
                f"{step.branch!r} or {plan.base_name!r} changed during the check.", hint="Plan it again."
            )
        await finish(paths, session, steps, report)
    except KasmonError as error:
        return MergeOutcome(why=error.message, hint=error.hint)
    return None


@contextlib.contextmanager
def _check_folder(
    paths: Paths, sessions: Mapping[SessionId, Session], plan: MergePlan
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
            config = in_folder(paths, load(paths), tree.source).config.worktree
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
                arguments = ("merge", "--quiet", "--no-ff", "-m", "trial", head)
                git(self._top, *arguments, settings=TRIAL)
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
