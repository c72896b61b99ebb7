"""`kasmon plan`: inspect a plan, confirm and run it, and decide on its questions."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from kasmon.cli.arguments import Arg, Json, OnMachine
from kasmon.cli.ls import is_utf8
from kasmon.cli.output.console import accepts, check_machine, note, note_other_machines, print_answer, print_json, say
from kasmon.cli.output.json_objects import error_object
from kasmon.cli.plan import example
from kasmon.cli.plan.json_objects import plan_object, run_object
from kasmon.cli.plan.report import PlanStoppedError, follow, report, state_label
from kasmon.config import Config, load
from kasmon.errors import PlanFaultyError, PlanNotFoundError, RefusedError, UsageError
from kasmon.model.plan import graph
from kasmon.model.plan.diff import changes
from kasmon.model.plan.events import PlanAction
from kasmon.model.plan.parser import is_plan, parse_for_display, read
from kasmon.model.plan.plan import Plan, Task, describe_fault
from kasmon.model.plan.progress import PlanRun, TaskRun
from kasmon.model.plan.scheduler import NextSteps
from kasmon.paths import expanded, user_paths
from kasmon.store.machines import ALL, own_names
from kasmon.store.plan_log import PlanLog, plans
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans import approval, decisions, start, worktree_removal
from kasmon.supervisor.plans.folders import PlanFolders
from kasmon.supervisor.plans.sandboxes import must_be_able
from kasmon.supervisor.plans.start_limits import describe_waits
from kasmon.supervisor.plans.view import apply_config, approved_plan, read_view
from kasmon.supervisor.worktrees.unsaved_files import list_files

OUTCOMES = {"done": 0, "claimed": 0, "failed": 1, "aborted": 1}
"""The outcome of a plan -> the exit code of a command that waited for it."""
NO_PLAN = "No plan has been run yet."


PlanFileArgument = Annotated[str, Arg("Plan file (Markdown or TOML).", completer="plan_files")]
PlanName = Annotated[str, Arg("Plan that has been run: its id or its file.", ("PLAN",), completer="plans")]
TaskArgument = Annotated[str, Arg("Task id or number.")]
On = Annotated[
    str,
    Arg("Machine of tasks that name none: a registered one, `any`, or `label:LABEL,LABEL`.", completer="machines"),
]


def init(
    file: Annotated[str, Arg("File to create (.toml or .md).")] = "plan.toml", /, *, wants_json: Json = False
) -> None:
    """Create an example plan that is valid and explains its keys."""
    path = Path(file)
    if not is_plan(path.name):
        raise UsageError(f"{file!r} is not a valid plan file name.", hint="Use a name that ends in .toml or .md.")
    try:
        with path.open("x", encoding="utf-8") as new:
            new.write(example.TOML if path.suffix.lower() == ".toml" else example.MARKDOWN)
    except FileExistsError as error:
        raise RefusedError(f"{file!r} already exists; it was not changed.", hint="Give another name.") from error
    except OSError as error:
        raise RefusedError(f"{file!r} cannot be written: {error.strerror or error}.") from error
    print_answer(f"created {file}; edit it, then check it with `kasmon plan check`", wants_json=wants_json, file=file)


def check(
    file: PlanFileArgument,
    /,
    *,
    folder: Annotated[str, Arg("Working directory for the check (default: the file's folder).", ("--dir",))] = "",
    on: On = "",
    wants_json: Json = False,
) -> int:
    """Check a plan, and list its faults with their lines."""
    where, text = user_paths(), start.text_of(Path(file))
    config = load(where)
    plan, faults = parse_for_display(text, file, tuple(config.agents), on)
    remarks: list[str] = []
    machines: dict[str, Any] = {}
    if not faults:
        at = _folder(file, folder)
        must_be_able(where, config, plan, at)
        remarks = approval.check_repository(plan, at, start.next_id(where, plan))
        preview = approval.ask_machines(where, config, apply_config(plan, config), at)
        remarks += preview.remarks
        machines = {
            id_: {"machine": choice.machine or None, "why": choice.why} for id_, choice in preview.choices.items()
        }
    if wants_json:
        found = [{"file": file, "line": fault.line, "why": fault.why} for fault in faults]
        error = error_object(PlanFaultyError([describe_fault(file, fault) for fault in faults])) if faults else {}
        warnings = [{"file": file, "line": warning.line, "why": warning.why} for warning in plan.warnings]
        print_json(**error, plan=plan_object(plan), faults=found, warnings=warnings, remarks=remarks, machines=machines)
        return UsageError.exit_code if faults else 0
    for warning in plan.warnings:
        say(f"warning: {describe_fault(file, warning)}")
    if faults:
        say(*(describe_fault(file, fault) for fault in faults))
        raise PlanFaultyError([describe_fault(file, fault) for fault in faults])
    tasks = "1 task" if len(plan.tasks) == 1 else f"{len(plan.tasks)} tasks"
    say(
        f"{file}: {tasks} in {plan.waves} {'wave' if plan.waves == 1 else 'waves'}, no faults",
        *(f"but {remark}" for remark in remarks),
        *(f"task {id_}: {each['machine'] or 'no machine now'} ({each['why']})" for id_, each in machines.items()),
    )
    return 0


def _folder(file: str, wanted: str) -> Path:
    """Return the folder that a plan runs in: *wanted*, else that of its *file*. Raises `UsageError`."""
    at = expanded(wanted or str(Path(file).absolute().parent)).absolute()
    if not at.is_dir():
        raise UsageError(f"the folder {str(at)!r} does not exist.", hint="Create it first, or pass another --dir.")
    return at


def show(
    wanted: Annotated[str, Arg("Plan file, or a plan that has been run.", ("PLAN",), completer="plans")],
    /,
    *,
    wave: Annotated[int | None, Arg("Show only this wave.")] = None,
    machine: OnMachine = "",
    wants_json: Json = False,
) -> None:
    """Show a plan as a graph, with the state of its tasks if it has been run."""
    check_machine(machine)
    where = user_paths()
    if wanted in plans(where) or not Path(wanted).exists():
        seen = read_view(start.find_plan(where, wanted), read_fleet(where), load(where))
        plan, run, ahead = seen.plan, seen.run, seen.ahead
    else:
        plan, run, ahead = read(start.text_of(Path(wanted)), wanted, tuple(load(where).agents)), None, NextSteps((), {})
    if wave is not None:
        plan = _only(plan, wave)
    if wants_json:
        print_json(plan=plan_object(plan, run, ahead))
        return
    states = {} if run is None else {task.id: _state_words(run, task.id, ahead) for task in plan.tasks}
    if run is not None:
        plan = msgspec.structs.replace(plan, tasks=tuple(_as_run(plan, task, run.of(task.id)) for task in plan.tasks))
    say(*graph.text(plan, states, utf8=is_utf8()))
    if run is not None:
        say(f"{run.plan}: {run.outcome or run.state}" + (f" ({run.why})" if run.why else ""))
        if ahead.question:
            say(f"asks: {ahead.question}")
        elif ahead.held:
            say(f"held: {ahead.held}")


def _as_run(plan: Plan, task: Task, at: TaskRun) -> Task:
    """Return *task* with the agent and the machine that it ran with, or will run with."""
    machine, labels = (at.machine, ()) if at.machine else (task.machine, task.labels)
    return msgspec.structs.replace(task, agent=at.agent_for(plan, task), machine=machine, labels=labels)


def run(
    file: PlanFileArgument,
    /,
    *,
    wave: Annotated[int | None, Arg("Start with this wave; earlier waves are skipped.")] = None,
    yes: Annotated[bool, Arg("Run without showing the commands and asking first.")] = False,
    ci: Annotated[bool, Arg("Wait for the plan to end, print a report, and exit with its outcome.")] = False,
    folder: Annotated[str, Arg("Working directory (default: the file's folder).", ("--dir",))] = "",
    form: Annotated[Literal["text", "json", "junit"], Arg("With --ci: report format.", ("--report",))] = "text",
    output: Annotated[str, Arg("With --ci: write the report to this file.")] = "",
    on: On = "",
    wants_json: Json = False,
) -> int:
    """Show every command of a plan, ask, and run it. Runs in the background."""
    where, path = user_paths(), Path(file).absolute()
    config, text = load(where), start.text_of(path)
    plan = read(text, file, tuple(config.agents), on)
    at = _folder(file, folder)
    must_be_able(where, config, plan, at)
    if wave is not None:
        _only(plan, wave)
    remarks = approval.check_repository(plan, at, start.next_id(where, plan))
    preview = approval.ask_machines(where, config, apply_config(plan, config), at)
    remarks += preview.remarks
    _agree(file, plan, config, at, remarks, preview, yes=yes, quiet=wants_json or ci)
    plan_log = start.store_approved_plan(where, plan, text, path, at, headless=ci, on=on)
    for task in plan.tasks:
        if wave is not None and task.wave < wave:
            plan_log.record_decision("skip", task.id)
    for _ in range(1, wave or 1):
        plan_log.record_decision("advance")
    if ci:
        form = "json" if wants_json else form
        try:
            finished = asyncio.run(follow(where, plan_log, quiet=wants_json or (form != "text" and not output)))
        except PlanStoppedError as stopped:
            plan_log.more()
            report(plan, plan_log.run, form, output, stopped)
            if not wants_json or output:
                raise
            note(f"{stopped.message} {stopped.hint}")  # the object on stdout contains it too
            return stopped.exit_code
        report(plan, finished, form, output)
        return OUTCOMES.get(finished.outcome, 1)
    start.run(where, plan_log)
    print_answer(plan_log.plan, wants_json=wants_json, plan=plan_object(plan, plan_log.run))
    return 0


def decide(wanted: str, decision: PlanAction, task: str = "", agent: str = "", *, wants_json: bool) -> None:
    """Apply a decision to a running plan; `resume` also restarts its runner.

    Raises:
        PlanNotFoundError: if there is no such plan.
        RefusedError: if it is over, or the decision does not apply.
        UsageError: if it has no such task, or there is no such agent.
    """
    where = user_paths()
    seen = decisions.record_decision(where, load(where), read_fleet(where), wanted, decision, task, agent)
    if wants_json:
        print_json(plan=plan_object(seen.plan, seen.run))
    else:
        say(f"{seen.run.plan}: {decision}{f' {task}' if task else ''}")


def edit(wanted: str, *, apply: bool, yes: bool, wants_json: bool) -> None:
    """Print how a plan's file differs from the running plan, and with *apply* apply it.

    Raises:
        PlanFaultyError: if the file has faults.
        RefusedError: if the edit removes a started task, or the user did not confirm it.
    """
    where = user_paths()
    plan_log = start.find_plan(where, wanted)
    file = Path(plan_log.run.file)
    text, config = start.text_of(file), load(where)
    new = read(text, str(file), tuple(config.agents), plan_log.run.on)
    old = approved_plan(plan_log)
    edited = changes(old, new, plan_log.run)
    if apply and plan_log.run.state == "ended":
        raise RefusedError(f"plan {plan_log.plan!r} has ended: {plan_log.run.outcome}.", hint="Run its file again.")
    if wants_json and (not apply or not edited.lines):
        print_json(changes=list(edited.lines), refused=list(edited.refused))
        return
    if not edited.lines:
        say(f"{plan_log.plan}: its file does not differ from the running plan")
        return
    if not wants_json:
        say(*edited.lines)
    if edited.refused:
        raise RefusedError(f"the edit of {plan_log.plan!r} cannot be applied: {'; '.join(edited.refused)}.")
    if apply:
        folder = Path(plan_log.run.folder)
        must_be_able(where, config, new, folder)
        remarks = approval.check_repository(new, folder, plan_log.plan, plan_log.run)
        preview = approval.ask_machines(where, config, apply_config(new, config), folder)
        remarks += preview.remarks
        _agree(str(file), new, config, folder, remarks, preview, yes=yes, quiet=wants_json)
        decisions.apply_edit(where, config, plan_log.plan, start.digest(text))
        if wants_json:
            print_json(changes=list(edited.lines), refused=[])


def _count_tasks(plan_log: PlanLog) -> int | None:
    """Return how many tasks a plan has; None if its text is missing."""
    try:
        return len(approved_plan(plan_log).tasks)
    except (PlanNotFoundError, PlanFaultyError):
        return None


def list_all(*, machine: OnMachine = "", wants_json: Json = False) -> int:
    """List the plans that have been run, newest last."""
    if machine == ALL:
        from kasmon.cli.machines.tables import MachineTable, print_all  # only for several machines

        table = MachineTable(("plan", "ls"), "plans", _ListedPlan, ("PLAN", "STATE", "DONE", "FILE"), _cells, NO_PLAN)
        return print_all(table, wants_json=wants_json)
    check_machine(machine)
    where = user_paths()
    plan_logs = sorted(
        (start.find_plan(where, id_) for id_ in plans(where)), key=lambda plan_log: plan_log.run.began_at
    )
    listed = [run_object(each, is_run=start.is_run(each), tasks=_count_tasks(each)) for each in plan_logs]
    if wants_json:
        print_json(plans=listed)
        return 0
    for each in listed:
        say("  ".join(_cells(msgspec.convert(each, _ListedPlan))))
    for found in PlanFolders(load(where).plans.folders).read():
        wrong = f", {len(found.faults)} faults (`kasmon plan check`)" if found.faults else ""
        say(f"-  not run: {len(found.plan.tasks)} tasks in {found.plan.waves} waves{wrong}  {found.file}")
    if not plan_logs:
        say(NO_PLAN)
    note_other_machines(where, machine, "plan ls")
    return 0


class _ListedPlan(msgspec.Struct, frozen=True):
    """One of those that `kasmon plan ls --json` prints, as far as a row shows it."""

    id: str
    state: str
    file: str
    outcome: str | None = None
    running: bool = False
    stopped: bool = False
    done: int | None = None
    tasks: int | None = None


def _cells(listed: _ListedPlan) -> tuple[str, str, str, str]:
    held = ", no runner (`kasmon recover`)"
    if listed.state == "ended" or listed.running:
        held = ""
    elif listed.stopped:
        held = f", stopped (`kasmon plan resume {listed.id}`)"
    of_all = "" if listed.tasks is None else f"/{listed.tasks}"
    done = "-" if listed.done is None else f"{listed.done}{of_all} done"
    return listed.id, f"{listed.outcome or listed.state}{held}", done, listed.file


def clean(
    wanted: PlanName,
    /,
    *,
    ignored: Annotated[
        list[str] | None, Arg("Pattern, as in a .gitignore: ignored files that match may be removed. May be repeated.")
    ] = None,
    wants_json: Json = False,
) -> None:
    """Remove the worktrees of a finished plan, where no work would be lost.

    A worktree is kept while it has uncommitted or unpushed work, ignored files, a session, or a running process.
    """
    where = user_paths()
    plan_log = start.find_plan(where, wanted)
    found = worktree_removal.find_ignored(plan_log, ignored or ())
    if not wants_json:
        for path, files in found.items():
            say(*([f"{path}: git ignores {list_files(files.listed)}"] if files.listed else []))
            say(*(f"{path}: `--ignored` matches {name!r}" for name in files.listed if name in files.deletable))
    removed, kept = worktree_removal.clean(plan_log, read_fleet(where), found)
    from kasmon.supervisor.plans.machines.registered_tasks import RegisteredTasks  # only a runner needs it otherwise

    elsewhere = RegisteredTasks(where, plan_log).clean(approved_plan(plan_log), ignored or ())
    removed, kept = (*removed, *elsewhere[0]), (*kept, *elsewhere[1])
    if wants_json:
        listed = {str(path): files.listed for path, files in found.items() if files.listed}
        print_json(removed=removed, kept=kept, ignored=listed)
    else:
        say(*(f"removed {path}" for path in removed))
    if kept:
        hold = [path for path, files in found.items() if set(files.listed) - files.deletable]
        hint = "`--ignored PATTERN` removes ignored files that match, as in a `.gitignore`." if hold else ""
        raise RefusedError(" ".join(kept), hint=hint)


def _state_words(run: PlanRun, id_: str, ahead: NextSteps) -> str:
    at = run.of(id_)
    label = state_label(at)
    if at.attempt > 1:
        label += f" (attempt {at.attempt})"
    if at.state.value == "claimed" and at.changed == 0:
        label += ", no files changed"
    if at.ran is not None and at.ran.account:
        label += f", account {at.ran.account}"
    if at.branch:
        label += f", on {at.branch}" + (f" from {at.base[:12]}" if at.base else "")
    if at.is_checked:
        label += ", check passed"
    why = ahead.blocked.get(id_) or (at.why if at.state.value in ("failed", "claimed") else "")
    return f"{label}: {why}" if why else label


def _only(plan: Plan, wave: int) -> Plan:
    if not plan.wave(wave):
        raise UsageError(f"there is no wave {wave}.", hint=f"The plan has {plan.waves}.")
    return msgspec.structs.replace(plan, tasks=plan.wave(wave))


def _agree(
    file: str,
    plan: Plan,
    config: Config,
    folder: Path,
    remarks: Sequence[str],
    preview: approval.MachinePreview,
    *,
    yes: bool,
    quiet: bool,
) -> None:
    """Show every command that *plan* would run, and *remarks*, and have the user confirm it; *file* is its name.

    Raises:
        RefusedError: if it is not confirmed.
    """
    warnings = [f"  warning: {describe_fault(file, warning)}" for warning in plan.warnings]
    remarks = [*(f"  but {remark}" for remark in remarks), *warnings]
    sessions = read_fleet(user_paths()).sessions
    if yes and quiet:
        for remark in [*remarks, *describe_waits(config, plan, sessions)]:
            note(remark.strip())
    else:
        plan = apply_config(plan, config)
        described = approval.describe_plan(plan, config, folder, preview.choices, own_names(user_paths()), sessions)
        for line in [*described, *remarks]:
            note(line) if quiet else say(line)
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or quiet:
        raise RefusedError(
            "the plan was not confirmed: there is no terminal to ask on.", hint="Review the commands, then pass --yes."
        )
    if not accepts("Run this?", sys.stdout):
        raise RefusedError("nothing was run.")


def pause(wanted: PlanName, /, *, wants_json: Json = False) -> None:
    """Pause a plan: start no new task; running tasks continue."""
    decide(wanted, "pause", wants_json=wants_json)


def resume(wanted: PlanName, /, *, wants_json: Json = False) -> None:
    """Resume a plan that is paused, or that has lost its runner."""
    decide(wanted, "resume", wants_json=wants_json)


def advance(wanted: PlanName, /, *, wants_json: Json = False) -> None:
    """Start the next wave, after the previous wave is done."""
    decide(wanted, "advance", wants_json=wants_json)


def abort(wanted: PlanName, /, *, wants_json: Json = False) -> None:
    """Abort a plan: its sessions are stopped, its worktrees are kept."""
    decide(wanted, "abort", wants_json=wants_json)


def accept(wanted: PlanName, task: TaskArgument, /, *, wants_json: Json = False) -> None:
    """Accept a finished task that has no check."""
    decide(wanted, "accept", task, wants_json=wants_json)


def retry(wanted: PlanName, task: TaskArgument, /, *, wants_json: Json = False) -> None:
    """Retry a task; the agent gets the reason of the failure."""
    decide(wanted, "retry", task, wants_json=wants_json)


def skip(wanted: PlanName, task: TaskArgument, /, *, wants_json: Json = False) -> None:
    """Skip a task."""
    decide(wanted, "skip", task, wants_json=wants_json)


def replace(
    wanted: PlanName,
    task: TaskArgument,
    /,
    *,
    agent: Annotated[str, Arg(completer="agents", help="Profile of the new agent.")],
    wants_json: Json = False,
) -> None:
    """Retry a task with another agent."""
    decide(wanted, "replace", task, agent, wants_json=wants_json)


def diff(wanted: PlanName, /, *, wants_json: Json = False) -> None:
    """Show how a plan file differs from the running plan."""
    edit(wanted, apply=False, yes=False, wants_json=wants_json)


def apply(
    wanted: PlanName,
    /,
    *,
    yes: Annotated[bool, Arg("Apply without showing the commands and asking first.")] = False,
    wants_json: Json = False,
) -> None:
    """Apply plan file edits to the running plan."""
    edit(wanted, apply=True, yes=yes, wants_json=wants_json)
