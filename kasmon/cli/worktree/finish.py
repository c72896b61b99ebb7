"""`kasmon finish`: what is left to do of a session's branch, and doing it."""

import shlex
import sys
from typing import Annotated, Any, Literal

import msgspec

from kasmon.cli.arguments import Arg, Json, SessionArgument
from kasmon.cli.output.console import confirm, note, print_answer, print_json, say, say_block, typed
from kasmon.cli.output.json_objects import receipt_object
from kasmon.errors import RefusedError, UsageError
from kasmon.host.rpc import event_loop
from kasmon.model.session import Session
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.finish import finish as operation
from kasmon.supervisor.finish.branch_operations import How
from kasmon.supervisor.finish.finish_plan import FinishRequest, PlannedFinish, plan_finish
from kasmon.supervisor.fleet.lookup import find_here
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions import session_operations

CONFLICTS = 4
"""The exit code where an update left conflicts in the worktree."""


def finish(
    wanted: SessionArgument,
    /,
    *,
    commit: Annotated[bool, Arg("Commit all changes, also untracked files.")] = False,
    message: Annotated[
        str, Arg("Of the commit, or the squashed one (default: the session's name).", ("--message", "-m"))
    ] = "",
    update: Annotated[Literal["rebase", "merge"] | None, Arg("Bring in the commits of the base.")] = None,
    conflicts: Annotated[
        Literal["abort", "keep", "send"],
        Arg("Of --update. abort: change nothing. keep: leave them in the worktree. send: also to the agent."),
    ] = "abort",
    fetch: Annotated[bool, Arg("Of --update: fetch the base's branch of the remote first.")] = False,
    push: Annotated[bool, Arg("Push the branch.")] = False,
    pr: Annotated[bool, Arg("Push, and create a pull request against the worktree's base, by gh or glab.")] = False,
    draft: Annotated[bool, Arg("Of --pr: as a draft.")] = False,
    fix: Annotated[
        bool, Arg("Send failed checks of the pull request and review comments to the agent (no other action).")
    ] = False,
    merge: Annotated[bool, Arg("Merge the branch into its base, with a merge commit.")] = False,
    squash: Annotated[bool, Arg("Add the branch to its base as one commit.")] = False,
    ff: Annotated[bool, Arg("Fast-forward its base to the branch.")] = False,
    takes_over: Annotated[
        bool, Arg("Stage the changes in the checkout that the worktree was created from.", ("--take-over",))
    ] = False,
    discard: Annotated[bool, Arg("Remove the worktree and its branch; what is nowhere else is stored first.")] = False,
    confirm_name: Annotated[
        str, Arg("Of --discard without a terminal: the name of the session or its branch, besides --digest or --yes.")
    ] = "",
    ignored: Annotated[list[str] | None, Arg("Of --discard: git-ignored files that may be deleted.")] = None,
    rewrite: Annotated[bool, Arg("Allow --update rebase and --push to replace commits that are pushed.")] = False,
    during_turn: Annotated[bool, Arg("Also while the agent works.")] = False,
    dry_run: Annotated[bool, Arg("Only say what would be done, with its digest.")] = False,
    digest: Annotated[str, Arg("Do it without confirmation if nothing changed since --dry-run printed this.")] = "",
    yes: Annotated[bool, Arg("Do it without confirmation (not --discard).")] = False,
    propose: Annotated[
        str | None, Arg("Only propose to finish it: what was done (`-`: from stdin).", is_shown=False)
    ] = None,
    actor: Annotated[str, Arg("The agent of another machine that proposes it, as JSON.", is_shown=False)] = "",
    wants_json: Json = False,
) -> int:
    """Commit, update, push, merge, take over or discard a session's branch.

    Without an action, it lists what is left to do.
    """
    options: dict[How, bool] = {"merge": merge, "squash": squash, "ff": ff}
    merges = [how for how, is_requested in options.items() if is_requested]
    if draft and not pr:
        raise UsageError("--draft requires --pr.")
    if fetch and not update:
        raise UsageError("--fetch requires --update.")
    if len(merges) > 1:
        raise UsageError("--merge, --squash and --ff cannot be combined.", hint="Pass one of them.")
    where = user_paths()
    fleet = read_fleet(where)
    session = find_here(fleet, wanted)
    request = FinishRequest(
        commits=commit,
        message=message,
        update=update or "",
        fetches=fetch,
        conflicts=conflicts,
        pushes=push,
        proposes=pr,
        is_draft=draft,
        merge=merges[0] if merges else "",
        takes_over=takes_over,
        discards=discard,
        ignored=tuple(ignored or ()),
        rewrites=rewrite,
        during_turn=during_turn,
    )
    if propose is not None:
        if fix or not request.is_empty:
            raise UsageError("--propose cannot be combined with other actions.")
        return _propose(where, session, sys.stdin.read() if propose == "-" else propose, actor)
    if fix:
        if not request.is_empty:
            raise UsageError("--fix cannot be combined with other actions.")
        return _send_feedback(where, session, dry_run=dry_run, wants_json=wants_json)
    plan = plan_finish(where, session, request, fleet)
    if request.is_empty or dry_run:
        print_answer(*_lines(session, plan), wants_json=wants_json, session=session.id, **_object(plan))
        return 0
    if digest and digest != plan.digest:
        raise operation.changed_since(session)
    if discard:
        _confirm_discard(session, plan, confirm_name, agrees=yes or bool(digest), wants_json=wants_json)
    elif not (digest or yes):
        _confirm(session, plan, wants_json=wants_json)
    result = event_loop.run(operation.finish(where, session, plan, (lambda text: None) if wants_json else say))
    if wants_json:
        done = {"done": list(result.done), "left_conflicts": list(result.conflicts), "kept": result.kept or None}
        receipt = receipt_object(result.receipt) if result.receipt else None
        print_json(session=session.id, **_object(plan), **done, receipt=receipt)
    elif result.conflicts:
        end = "sent to the agent" if result.receipt else "resolve them there"
        note(f"conflicts in {', '.join(map(repr, result.conflicts))}: {end}.")
    return CONFLICTS if result.conflicts else 0


def _propose(where: Paths, session: Session, text: str, actor: str) -> int:
    from kasmon.supervisor.limits.agents import check_is_person  # rarely needed
    from kasmon.supervisor.machines.agent_requests import parse_actor

    check_is_person(where, "propose by a command to finish a session")  # its own kasmon runs this for one elsewhere
    by = parse_actor(actor)
    event_loop.run(session_operations.propose_finish(where, session, text, by.actor, by.name))
    print_json(session=session.id, proposed=True)
    return 0


def _send_feedback(where: Paths, session: Session, *, dry_run: bool, wants_json: bool) -> int:
    """Send the agent what its pull request needs; with *dry_run*, print the prompt instead."""
    from kasmon.supervisor.finish.feedback import read_prompt, send_feedback  # rarely needed

    if dry_run:
        prompt = read_prompt(where, session)
        print_json(session=session.id, prompt=prompt) if wants_json else say_block(prompt)
        return 0
    receipt = event_loop.run(send_feedback(where, session))
    if wants_json:
        print_json(session=session.id, receipt=receipt_object(receipt))
    else:
        say(f"{session.name}: {receipt.state.value}: {receipt.text}")
    return 0


def _confirm(session: Session, plan: PlannedFinish, *, wants_json: bool) -> None:
    """Have the user agree. Raises `RefusedError` if there is no terminal to ask on, or something else was typed."""
    refused = RefusedError("Nothing was done.")
    unasked = _build_unconfirmed_error(plan, f"--digest {plan.digest} does exactly this.")
    confirm(_lines(session, plan), "Type yes to do this", wants_json=wants_json, unasked=unasked, refused=refused)


def _confirm_discard(session: Session, plan: PlannedFinish, name: str, *, agrees: bool, wants_json: bool) -> None:
    """Have the user agree by the name of the session or of its branch: as *name*, or typed. Raises `RefusedError`."""
    names = [each for each in (session.name, plan.state.name) if each]
    if name and name not in names:
        raise RefusedError(f"{name!r} is not {' or '.join(map(repr, names))}. Nothing was done.")
    if name and agrees:
        return
    if wants_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise _build_unconfirmed_error(
            plan, f"--digest {plan.digest} --confirm-name {shlex.quote(names[0])} does exactly this."
        )
    say(*_lines(session, plan))
    if typed(f"Type {' or '.join(map(repr, names))} to discard it") not in names:
        raise RefusedError("Nothing was done.")


def _build_unconfirmed_error(plan: PlannedFinish, hint: str) -> RefusedError:
    return RefusedError(f"{'; '.join(step.text for step in plan.steps)}: not confirmed.", hint=hint)


def _lines(session: Session, plan: PlannedFinish) -> list[str]:
    state = plan.state
    lines = [f"{session.name} ({session.id}): {state.name or 'no branch'} from {state.base_name}, {state.words}"]
    for step in plan.steps:
        command = f": {step.command}" if step.command else ""
        lines.append(f"  {step.action:<10} {step.text}{command}")
        if step.hooks:
            lines.append(f"  {'':<10} your hooks run: {', '.join(step.hooks)}")
    lines += [f"  {'warning':<10} {warning}" for warning in plan.warnings]
    return [*lines, f"  {'digest':<10} {plan.digest}"] if plan.digest else lines


def _object(plan: PlannedFinish) -> dict[str, Any]:
    return {
        "branch": msgspec.to_builtins(plan.state),
        "steps": [msgspec.to_builtins(step) for step in plan.steps],
        "digest": plan.digest or None,
        "pull_request": msgspec.to_builtins(plan.pull_request),
        "pull_request_why": plan.pull_request_why or None,
        "checkout": plan.checkout or None,
        "warnings": list(plan.warnings),
        "message": plan.message,
    }
