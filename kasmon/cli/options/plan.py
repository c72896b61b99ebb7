"""Commands about plans: `kasmon plan ...`, and `recover`."""

from typing import Annotated, Literal

from kasmon.cli.arguments import Arg, Json

File = Annotated[str, Arg(completer="plan_files", help="Plan file (Markdown or TOML).")]
PlanName = Annotated[str, Arg(flags=("PLAN",), completer="plans", help="Plan that has been run: its id or its file.")]
Task = Annotated[str, Arg("Task id or number.")]


def init(file: Annotated[str, Arg("File to create (.toml or .md).")] = "plan.toml", /, *, json: Json = False) -> None:
    """Create an example plan that is valid and explains its keys."""
    from kasmon.cli.plan import commands

    commands.init(file, wants_json=json)


def check(
    file: File,
    /,
    *,
    dir: Annotated[str, Arg("Working directory for the check (default: the file's folder).")] = "",  # noqa: A002 - its flag
    json: Json = False,
) -> int:
    """Check a plan, and list its faults with their lines."""
    from kasmon.cli.plan import commands

    return commands.check(file, folder=dir, wants_json=json)


def show_plan(
    plan: Annotated[str, Arg(completer="plans", help="Plan file, or a plan that has been run.")],
    /,
    *,
    wave: Annotated[int | None, Arg("Show only this wave.")] = None,
    json: Json = False,
) -> None:
    """Show a plan as a graph, with the state of its tasks if it has been run."""
    from kasmon.cli.plan import commands

    commands.show(plan, wave=wave, wants_json=json)


def run_plan(
    file: File,
    /,
    *,
    wave: Annotated[int | None, Arg("Start with this wave; earlier waves are skipped.")] = None,
    yes: Annotated[bool, Arg("Run without showing the commands and asking first.")] = False,
    ci: Annotated[bool, Arg("Wait for the plan to end, print a report, and exit with its outcome.")] = False,
    dir: Annotated[str, Arg("Working directory (default: the file's folder).")] = "",  # noqa: A002 - its flag
    report: Annotated[Literal["text", "json", "junit"], Arg("With --ci: report format.")] = "text",
    output: Annotated[str, Arg("With --ci: write the report to this file.")] = "",
    json: Json = False,
) -> int:
    """Show every command of a plan, ask, and run it. Runs in the background."""
    from kasmon.cli.plan import commands

    return commands.run(file, wave=wave, yes=yes, ci=ci, folder=dir, form=report, output=output, wants_json=json)


def list_plans(*, json: Json = False) -> None:
    """List the plans that have been run, newest last."""
    from kasmon.cli.plan import commands

    commands.list_all(wants_json=json)


def pause(plan: PlanName, /, *, json: Json = False) -> None:
    """Pause a plan: start no new task; running tasks continue."""
    from kasmon.cli.plan import commands

    commands.steer(plan, "pause", wants_json=json)


def resume(plan: PlanName, /, *, json: Json = False) -> None:
    """Resume a plan that is paused, or that has lost its runner."""
    from kasmon.cli.plan import commands

    commands.steer(plan, "resume", wants_json=json)


def advance(plan: PlanName, /, *, json: Json = False) -> None:
    """Start the next wave, after the previous wave is done."""
    from kasmon.cli.plan import commands

    commands.steer(plan, "advance", wants_json=json)


def abort(plan: PlanName, /, *, json: Json = False) -> None:
    """Abort a plan: its sessions are stopped, its worktrees are kept."""
    from kasmon.cli.plan import commands

    commands.steer(plan, "abort", wants_json=json)


def accept(plan: PlanName, task: Task, /, *, json: Json = False) -> None:
    """Accept a finished task that has no check."""
    from kasmon.cli.plan import commands

    commands.steer(plan, "accept", task, wants_json=json)


def retry(plan: PlanName, task: Task, /, *, json: Json = False) -> None:
    """Retry a task; the agent gets the reason of the failure."""
    from kasmon.cli.plan import commands

    commands.steer(plan, "retry", task, wants_json=json)


def skip(plan: PlanName, task: Task, /, *, json: Json = False) -> None:
    """Skip a task."""
    from kasmon.cli.plan import commands

    commands.steer(plan, "skip", task, wants_json=json)


def replace(
    plan: PlanName,
    task: Task,
    /,
    *,
    agent: Annotated[str, Arg(completer="agents", help="Profile of the new agent.")],
    json: Json = False,
) -> None:
    """Retry a task with another agent."""
    from kasmon.cli.plan import commands

    commands.steer(plan, "replace", task, agent, wants_json=json)


def diff(plan: PlanName, /, *, json: Json = False) -> None:
    """Show how a plan file differs from the running plan."""
    from kasmon.cli.plan import commands

    commands.edit(plan, apply=False, yes=False, wants_json=json)


def apply(
    plan: PlanName,
    /,
    *,
    yes: Annotated[bool, Arg("Apply without showing the commands and asking first.")] = False,
    json: Json = False,
) -> None:
    """Apply plan file edits to the running plan."""
    from kasmon.cli.plan import commands

    commands.edit(plan, apply=True, yes=yes, wants_json=json)


def clean(
    plan: PlanName,
    /,
    *,
    ignored: Annotated[
        list[str] | None,
        Arg("Pattern, as in a .gitignore: ignored files that match may be removed. May be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Remove the worktrees of a finished plan, where no work would be lost.

    A worktree is kept while it has uncommitted or unpushed work, ignored files, a session, or a running process.
    """
    from kasmon.cli.plan import commands

    commands.clean(plan, ignored or (), wants_json=json)


def recover(
    *,
    dry_run: Annotated[bool, Arg("Only print what would be done.")] = False,
    choose: Annotated[
        list[str] | None,
        Arg("SESSION=ID: the conversation of a session whose conversation cannot be determined."),
    ] = None,
    json: Json = False,
) -> int:
    """After a crash or a reboot: resume the plans, and each agent in its own conversation.

    Before an agent starts, its conversation is matched by id, folder, first prompt and last message.
    """
    from kasmon.cli.plan.recover import recover_all

    return recover_all(choose or (), dry_run=dry_run, wants_json=json)
