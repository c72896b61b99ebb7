"""`kasmon merge-plan`: the order in which branches of several sessions are merged, and merging them one by one."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import confirm, note, print_json, say
from kasmon.cli.output.json_objects import answer
from kasmon.errors import RefusedError, UsageError
from kasmon.host.rpc import event_loop
from kasmon.model.permission import SessionId
from kasmon.paths import places
from kasmon.supervisor.finish import merge_plan as operation
from kasmon.supervisor.finish.finish_plan import count_text
from kasmon.supervisor.finish.merge_plan import HowToMerge, MergeOutcome, MergePlan
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet

STOPPED = 4
"""The exit code where a branch was not merged."""


def merge_plan(
    *wanted: Annotated[str, Arg("Sessions (id or name) with a worktree each.", ("SESSION",), completer="sessions")],
    plan: Annotated[str, Arg("All branches of the tasks of this plan that has been run, with their checks.")] = "",
    check: Annotated[str, Arg("Shell command that has to pass on the base and after each merge.")] = "",
    squash: Annotated[bool, Arg("Add each branch as one commit, not by a merge commit.")] = False,
    dry_run: Annotated[bool, Arg("Only show the order and what conflicts, with a digest.")] = False,
    digest: Annotated[str, Arg("Do it without confirmation if nothing changed since --dry-run printed this.")] = "",
    yes: Annotated[bool, Arg("Do it without confirmation.")] = False,
    wants_json: Json = False,
) -> int:
    """Merge the branches of several sessions into their base one by one, after showing which conflict.

    It stops at the first branch that conflicts, or that breaks the check.
    """
    where = places()
    fleet = read_fleet(where)
    if bool(wanted) == bool(plan):
        raise UsageError("name sessions, or a plan with --plan.", hint="`kasmon merge-plan fix docs`.")
    checks: Mapping[SessionId, str] = {}
    sessions = [find(fleet, name) for name in dict.fromkeys(wanted)]
    if plan:
        from kasmon.supervisor.plans.start import find_plan  # imports all plan modules
        from kasmon.supervisor.plans.view import approved_plan

        plan_log = find_plan(where, plan)
        sessions, checks = operation.find_plan_branches(plan_log.run, approved_plan(plan_log), fleet)
    how: HowToMerge = "squash" if squash else "merge"
    planned = operation.plan_merges(where, sessions, how, check, {} if check else checks, fleet=fleet)
    if dry_run or not planned.steps:
        if wants_json:
            print_json(answer(**_object(planned)))
        else:
            say(*_lines(planned))
        return 0
    if digest and digest != planned.digest:
        raise operation.changed_since()
    if not (digest or yes):
        unasked = RefusedError(
            f"{len(planned.steps)} branches into {planned.base_name}: not confirmed.",
            hint=f"--digest {planned.digest} does exactly this.",
        )
        refused = RefusedError("Nothing was done.")
        confirm(_lines(planned), "Type yes to merge", wants_json=wants_json, unasked=unasked, refused=refused)
    report = (lambda text: None) if wants_json else say
    outcome = event_loop.run(operation.merge_one_by_one(where, sessions, planned, report))
    if wants_json:
        print_json(answer(**_object(planned), outcome=msgspec.to_builtins(outcome)))
    elif outcome.stopped_at:
        note(_stop_text(outcome, len(planned.steps)))
    return STOPPED if outcome.stopped_at else 0


def _stop_text(outcome: MergeOutcome, count: int) -> str:
    files = f" in {', '.join(map(repr, outcome.conflicts))}" if outcome.conflicts else ""
    return f"merged {len(outcome.merged)} of {count} branches. {outcome.why.rstrip('.')}{files}. {outcome.hint}".strip()


def _lines(plan: MergePlan) -> list[str]:
    branches = "1 branch" if len(plan.steps) == 1 else f"{len(plan.steps)} branches"
    lines = [f"{branches} into {plan.base_name} ({plan.base[:12]}), in this order:"]
    cells = max((len(step.name) for step in plan.steps), default=0)
    for number, step in enumerate(plan.steps, 1):
        work = f"{count_text(step.commits, 'commit')}, {count_text(step.files, 'file')}"
        lines.append(f"  {number:>2}  {step.name:<{cells}}  {step.branch}: {work}")
        if step.conflicts:
            lines.append(f"      {'':<{cells}}  stops here: conflicts in {', '.join(map(repr, step.conflicts))}")
        if step.check:
            lines.append(f"      {'':<{cells}}  check: {step.check}")
    lines += [f"  {pair.one} and {pair.other} conflict in {', '.join(map(repr, pair.files))}" for pair in plan.pairs]
    lines += [f"  {name}: nothing to merge" for name in plan.skipped]
    lines += [f"  warning: {warning}" for warning in plan.warnings]
    lines += [f"  check: {plan.check}"] if plan.check else []
    return [*lines, f"  digest {plan.digest}"]


def _object(plan: MergePlan) -> dict[str, Any]:
    return {"plan": msgspec.to_builtins(plan)}
