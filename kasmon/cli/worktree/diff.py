"""`kasmon diff`: what a session changed, in a turn or in all of its branch."""

from typing import Annotated, Any

from kasmon.cli.arguments import Arg, Json, SessionArgument
from kasmon.cli.output.console import note, print_json, say, say_block
from kasmon.cli.output.table import aligned
from kasmon.errors import UsageError
from kasmon.model.formatting import count_text
from kasmon.model.review.file_changes import FileChange, split
from kasmon.paths import user_paths
from kasmon.sanitize import clean_line
from kasmon.supervisor.fleet.lookup import find_here
from kasmon.supervisor.fleet.snapshot import read_fleet


def diff(
    wanted: SessionArgument,
    /,
    *,
    turn: Annotated[int | None, Arg("The changes of this turn, by its number.", at_least=1)] = None,
    last: Annotated[bool, Arg("The changes of the last turn.")] = False,
    branch: Annotated[bool, Arg("All changes since the branch began (default).")] = False,
    stat: Annotated[bool, Arg("Only the files, with the number of added and removed lines.")] = False,
    wants_json: Json = False,
) -> None:
    """Show what a session changed in its worktree."""
    if sum((turn is not None, last, branch)) > 1:
        raise UsageError("--turn, --last and --branch cannot be combined.", hint="Pass one of them.")
    where = user_paths()
    session = find_here(read_fleet(where), wanted)
    number: int | None = None
    if turn is None and not last:
        from kasmon.supervisor.worktrees.changes import diff_of

        text = diff_of(session)
    else:
        from kasmon.supervisor.worktrees.turn_changes import turn_diff

        found, text = turn_diff(where, session, turn)
        number = found.number
    files = split(text)
    if wants_json:
        print_json(session=session.id, turn=number, files=[_object(each) for each in files], diff=text)
    elif not files:
        note(f"{session.name!r} changed no file{'' if number is None else f' in turn {number}'}.")
    elif stat:
        say(*aligned([(clean_line(each.name), f"+{each.added}", f"-{each.removed}", each.kind) for each in files]))
        added, removed = sum(each.added for each in files), sum(each.removed for each in files)
        say(f"{count_text(len(files), 'file')}, +{added} -{removed}")
    else:
        say_block(text.rstrip("\n"))


def _object(change: FileChange) -> dict[str, Any]:
    return {"file": change.name, "added": change.added, "removed": change.removed, "kind": change.kind or "changed"}
