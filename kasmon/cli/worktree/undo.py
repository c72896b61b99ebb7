"""`kasmon undo`: give the files that a turn changed their earlier contents."""

from typing import Annotated

from kasmon.cli.arguments import Arg, Json, SessionArgument
from kasmon.cli.output.console import confirm, note, print_json, say
from kasmon.errors import RefusedError, UsageError
from kasmon.model.formatting import count_text
from kasmon.model.session import Session
from kasmon.paths import user_paths
from kasmon.supervisor.fleet.lookup import find_here
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.worktrees import turn_changes
from kasmon.supervisor.worktrees.turn_changes import PlannedUndo


def undo(
    wanted: SessionArgument,
    /,
    *,
    turn: Annotated[int | None, Arg("Undo this turn, by its number (default: the last).", at_least=1)] = None,
    redo: Annotated[bool, Arg("Take back the last undo.")] = False,
    dry_run: Annotated[bool, Arg("Only say what would change.")] = False,
    yes: Annotated[bool, Arg("Undo without confirmation.")] = False,
    wants_json: Json = False,
) -> int:
    """Undo what a turn changed in the files of a session's worktree.

    Commits, branches and staged changes stay as they are. If files changed since the turn, nothing is undone.
    """
    if redo and turn is not None:
        raise UsageError("--turn and --redo cannot be combined.", hint="Pass one of them.")
    where = user_paths()
    session = find_here(read_fleet(where), wanted)
    planned = turn_changes.plan_redo(where, session) if redo else turn_changes.plan_undo(where, session, turn)
    failed: tuple[str, ...] = ()
    if not dry_run:
        if not yes and not planned.plan.changed_since:
            _confirm(session, planned, wants_json=wants_json)
        failed = turn_changes.undo(where, session, planned)
    if wants_json:
        changed_since = list(turn_changes.cleaned(planned.plan.changed_since))
        fields = {"files": list(planned.files), "changed_since": changed_since, "failed": list(failed)}
        print_json(session=session.id, turn=planned.turn, done=not dry_run, **fields)
        return int(bool(failed))
    if dry_run:
        say(*_describe_undo(planned))
    for why in failed:
        note(f"Not restored: {why}.")
    if not dry_run:
        done = "the last undo is taken back" if redo else f"turn {planned.turn} is undone"
        say(f"{session.name} ({session.id}): {done} in {count_text(len(planned.files) - len(failed), 'file')}")
    return int(bool(failed))


def _describe_undo(planned: PlannedUndo) -> list[str]:
    since = set(turn_changes.cleaned(planned.plan.changed_since))
    return [f"  {name}{' (changed since: nothing is undone)' if name in since else ''}" for name in planned.files]


def _confirm(session: Session, planned: PlannedUndo, *, wants_json: bool) -> None:
    """List the files and have the user type `yes`. Raises `RefusedError`."""
    confirm(
        (f"In {session.workdir!r}:", *_describe_undo(planned)),
        "Type yes to change these files",
        wants_json=wants_json,
        unasked=RefusedError(
            f"{count_text(len(planned.files), 'file')} in {session.workdir!r} would change.",
            hint="Pass --dry-run to see them, and --yes to change them without confirmation.",
        ),
        refused=RefusedError("Nothing was undone."),
    )
