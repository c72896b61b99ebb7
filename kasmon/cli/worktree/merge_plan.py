"""`kasmon merge-plan`: the order in which branches of several sessions are merged, and merging them one by one."""

import sys
from collections.abc import Mapping
from typing import Annotated

import msgspec

from kasmon.cli.arguments import Arg, Json, OnMachine
from kasmon.cli.output.console import check_machine, confirm, note, print_answer, print_json, say, typed
from kasmon.errors import RefusedError, UsageError
from kasmon.host.rpc import event_loop
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths
from kasmon.supervisor.finish import merge_plan as operation
from kasmon.supervisor.finish.merge_execution import merge_one_by_one
from kasmon.supervisor.finish.merge_plan import HowToMerge, MergePlan, MergeStep, OnConflict, outcome_lines, plan_lines
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet

STOPPED = 4
"""The exit code where a branch was not merged."""


def merge_plan(
    *wanted: Annotated[str, Arg("Sessions (id or name) with a worktree each.", ("SESSION",), completer="sessions")],
    plan: Annotated[str, Arg("All branches of the tasks of this plan that has been run, with their checks.")] = "",
    check: Annotated[str, Arg("Shell command that has to pass on the base and after each merge.")] = "",
    squash: Annotated[bool, Arg("Add each branch as one commit, not by a merge commit.")] = False,
    on_conflict: Annotated[
        OnConflict | None,
        Arg("With a branch that conflicts: stop, skip it, or send the conflict to its agent (default: ask, or stop)."),
    ] = None,
    dry_run: Annotated[bool, Arg("Only show the order and what conflicts, with a digest.")] = False,
    digest: Annotated[str, Arg("Do it without confirmation if nothing changed since --dry-run printed this.")] = "",
    yes: Annotated[bool, Arg("Do it without confirmation.")] = False,
    machine: OnMachine = "",
    wants_json: Json = False,
) -> int:
    """Merge the branches of several sessions into their base one by one, after showing which conflict.

    It asks what to do with a branch that conflicts, and stops at the first that breaks the check.
    """
    check_machine(machine)
    where = user_paths()
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
        print_answer(*plan_lines(planned), wants_json=wants_json, plan=msgspec.to_builtins(planned))
        return 0
    if digest and digest != planned.digest:
        raise operation.changed_since()
    if not (digest or yes):
        unasked = RefusedError(
            f"{len(planned.steps)} branches into {planned.base_name}: not confirmed.",
            hint=f"--digest {planned.digest} does exactly this.",
        )
        refused = RefusedError("Nothing was done.")
        confirm(plan_lines(planned), "Type yes to merge", wants_json=wants_json, unasked=unasked, refused=refused)
    report = (lambda text: None) if wants_json else say
    asks = on_conflict is None and not wants_json and sys.stdin.isatty() and sys.stdout.isatty()

    async def decide(step: MergeStep, files: tuple[str, ...]) -> OnConflict:
        return _ask(planned, step, files) if asks else on_conflict or "stop"

    outcome = event_loop.run(merge_one_by_one(where, sessions, planned, report, decide))
    if wants_json:
        print_json(plan=msgspec.to_builtins(planned), outcome=msgspec.to_builtins(outcome))
    elif outcome.stopped_at or outcome.left_out:
        for line in outcome_lines(outcome, len(planned.steps)):
            note(line)
    return STOPPED if outcome.stopped_at or outcome.left_out else 0


def _ask(plan: MergePlan, step: MergeStep, files: tuple[str, ...]) -> OnConflict:
    """Return what the user chooses for the branch of *step*."""
    say(f"{step.branch} conflicts with {plan.base_name} in {', '.join(map(repr, files))}.")
    reply = typed(f"Type skip to leave out {step.name!r}, or send to also have its agent resolve that")
    return "skip" if reply == "skip" else "send" if reply == "send" else "stop"
