"""The commands about plans: `kasmon plan ...`, and `recover`."""

from typing import Annotated, Literal

from cyclopts import App, Parameter

from kasmon.cli.parameter import Json, agents, plan_files, plans

File = Annotated[str, Parameter(completer=plan_files, help="The plan's file: Markdown or TOML.")]
PlanName = Annotated[str, Parameter(name="PLAN", completer=plans, help="A plan that was run: its id, or its file.")]
Task = Annotated[str, Parameter(help="The task's id or number.")]

app = App(
    name="plan", help="Check, draw and run plans of many tasks, and decide on what they ask.", help_formatter="plain"
)


@app.command
def check(file: File, /, *, json: Json = False) -> int:
    """Say whether a plan holds together, and what is wrong with it line by line."""
    from kasmon.commands import planning

    return planning.check(file, wants_json=json)


@app.command(name="show")
def show_plan(
    plan: Annotated[str, Parameter(completer=plans, help="A plan's file, or one that was run.")],
    /,
    *,
    wave: Annotated[int | None, Parameter(help="Only this wave.")] = None,
    json: Json = False,
) -> None:
    """Draw a plan, with the state of its tasks where it was run."""
    from kasmon.commands import planning

    planning.show(plan, wave=wave, wants_json=json)


@app.command(name="run")
def run_plan(
    file: File,
    /,
    *,
    wave: Annotated[int | None, Parameter(help="Begin with this wave; those before it are skipped.")] = None,
    yes: Annotated[bool, Parameter(negative=(), help="Agree to what it runs, without being shown it first.")] = False,
    ci: Annotated[bool, Parameter(negative=(), help="Wait for its end, report, and exit by its outcome.")] = False,
    dir: Annotated[str, Parameter(help="Where it runs; by default the file's folder.")] = "",  # noqa: A002 - its flag
    report: Annotated[Literal["text", "json", "junit"], Parameter(help="With --ci: the report's form.")] = "text",
    output: Annotated[str, Parameter(help="With --ci: write the report into this file.")] = "",
    json: Json = False,
) -> int:
    """Run a plan, after showing every command that it would run. It goes on without a dashboard."""
    from kasmon.commands import planning

    return planning.run(file, wave=wave, yes=yes, ci=ci, folder=dir, form=report, output=output, wants_json=json)


@app.command(name="ls")
def list_plans(*, json: Json = False) -> None:
    """List the plans that were run, the newest last."""
    from kasmon.commands import planning

    planning.list_all(wants_json=json)


@app.command
def pause(plan: PlanName, /, *, json: Json = False) -> None:
    """Begin no further task; what runs goes on."""
    from kasmon.commands import planning

    planning.steer(plan, "pause", wants_json=json)


@app.command
def resume(plan: PlanName, /, *, json: Json = False) -> None:
    """Go on with a plan that was paused, or that nobody runs any more."""
    from kasmon.commands import planning

    planning.steer(plan, "resume", wants_json=json)


@app.command
def advance(plan: PlanName, /, *, json: Json = False) -> None:
    """Begin the next wave, once the one before it is done."""
    from kasmon.commands import planning

    planning.steer(plan, "advance", wants_json=json)


@app.command
def abort(plan: PlanName, /, *, json: Json = False) -> None:
    """Give a plan up: its sessions end, its worktrees stay."""
    from kasmon.commands import planning

    planning.steer(plan, "abort", wants_json=json)


@app.command
def accept(plan: PlanName, task: Task, /, *, json: Json = False) -> None:
    """Take a task for done that its agent calls done, and that nothing checks."""
    from kasmon.commands import planning

    planning.steer(plan, "accept", task, wants_json=json)


@app.command
def retry(plan: PlanName, task: Task, /, *, json: Json = False) -> None:
    """Do a task again; its agent is told what went wrong."""
    from kasmon.commands import planning

    planning.steer(plan, "retry", task, wants_json=json)


@app.command
def skip(plan: PlanName, task: Task, /, *, json: Json = False) -> None:
    """Go on without a task."""
    from kasmon.commands import planning

    planning.steer(plan, "skip", task, wants_json=json)


@app.command
def replace(
    plan: PlanName,
    task: Task,
    /,
    *,
    agent: Annotated[str, Parameter(completer=agents, help="The profile.")],
    json: Json = False,
) -> None:
    """Do a task again with another agent."""
    from kasmon.commands import planning

    planning.steer(plan, "replace", task, agent, wants_json=json)


@app.command
def diff(plan: PlanName, /, *, json: Json = False) -> None:
    """Show how a plan's file differs from what runs."""
    from kasmon.commands import planning

    planning.edit(plan, apply=False, yes=False, wants_json=json)


@app.command
def apply(
    plan: PlanName,
    /,
    *,
    yes: Annotated[bool, Parameter(negative=(), help="Agree to what it runs.")] = False,
    json: Json = False,
) -> None:
    """Take the edits of a plan's file over into what runs."""
    from kasmon.commands import planning

    planning.edit(plan, apply=True, yes=yes, wants_json=json)


@app.command
def clean(plan: PlanName, /, *, json: Json = False) -> None:
    """Remove the worktrees of a plan that is over, where nothing in them could be lost."""
    from kasmon.commands import planning

    planning.clean(plan, wants_json=json)


def recover(
    *,
    dry_run: Annotated[bool, Parameter(negative=(), help="Only say what would be done.")] = False,
    choose: Annotated[
        tuple[str, ...],
        Parameter(negative=(), help="SESSION=ID: which conversation a session had, where nobody can tell."),
    ] = (),
    json: Json = False,
) -> int:
    """After a crash or a reboot: plans go on where they were, and each agent in its own conversation.

    A conversation is known by its id, its folder, its first prompt and its last message before its agent is started.
    """
    from kasmon.commands.recovering import recover_all

    return recover_all(choose, dry_run=dry_run, wants_json=json)
