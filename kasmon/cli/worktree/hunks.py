"""`kasmon hunks`: the hunks of a session's changes, one of them reverted or staged, and the last of these undone."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from kasmon.cli.arguments import Arg, Json, SessionArgument
from kasmon.cli.output.console import confirm, note, print_json, say
from kasmon.cli.output.table import aligned
from kasmon.cli.worktree.comments import parse_place
from kasmon.errors import NotFoundError, RefusedError, StaleRequestError, UsageError
from kasmon.model.review.comments import line_range
from kasmon.model.review.hunks import ShownHunk
from kasmon.model.session import Session
from kasmon.paths import user_paths
from kasmon.sanitize import clean_line, clean_lines
from kasmon.supervisor.fleet.lookup import find_here
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.review import hunks as operations

WOULD: Final = {
    "revert": "A hunk would be reverted",
    "stage": "A hunk would be staged",
    "undo": "The last revert or stage would be undone",
}


def hunks(
    wanted: SessionArgument,
    action: Annotated[
        Literal["ls", "revert", "stage", "undo"],
        Arg("ls: list the hunks (default). revert, stage: the one at FILE:LINE. undo: the last revert or stage."),
    ] = "ls",
    at: Annotated[
        str, Arg("A line of the hunk, as the file is now; of a deleted file, as it was.", ("FILE:LINE",))
    ] = "",
    /,
    *,
    turn: Annotated[int | None, Arg("The hunks of this turn (default: of the branch).", at_least=1)] = None,
    yes: Annotated[bool, Arg("Change without confirmation.")] = False,
    digest: Annotated[
        str, Arg("In the place of FILE:LINE: the hunk for which `ls --json` prints this, without confirmation.")
    ] = "",
    wants_json: Json = False,
) -> None:
    """List the hunks of a session's changes, revert or stage one, or undo that.

    A revert changes the file in the worktree, a stage only the index. If the file changed since, nothing is changed.
    """
    if bool(at or digest) != (action in ("revert", "stage")):
        problem = f"accepts no argument {at or digest!r}" if at or digest else "requires FILE:LINE"
        raise UsageError(f"`kasmon hunks SESSION {action}` {problem}.")
    if at and digest:
        raise UsageError("FILE:LINE and --digest cannot be combined.", hint="Pass one of them.")
    where = user_paths()
    session = find_here(read_fleet(where), wanted)
    if action == "ls":
        _list(operations.list_hunks(where, session, turn), session.id, wants_json=wants_json)
        return
    if action == "undo":
        last = operations.last_action(where, session)
        name, lines = last.name, last.lines
        question = f"Type yes to undo the {last.action} of this hunk"
    else:
        shown = operations.list_hunks(where, session, turn)
        hunk = _find_digest(shown, session, digest) if digest else _find(shown, *parse_place(session, at)[:2])
        name, lines = hunk.name, hunk.lines
        question = f"Type yes to {action} this hunk"
    if not (yes or digest):
        confirm(
            (f"{clean_line(name)} in {session.workdir!r}:", *lines),
            question,
            wants_json=wants_json,
            unasked=RefusedError(f"{WOULD[action]} in {name!r}.", hint="Pass --yes to do it without confirmation."),
            refused=RefusedError("Nothing was changed."),
        )
    if action == "undo":
        text = operations.undo_hunk(where, session, last)
    else:
        text = (operations.revert_hunk if action == "revert" else operations.stage_hunk)(where, session, hunk)
    if wants_json:
        print_json(session=session.id, action=action, file=name, done=True)
    else:
        say(f"{session.name} ({session.id}): {text}")


def _find(shown: Sequence[ShownHunk], name: str, line: int) -> ShownHunk:
    """Return the hunk with this line. Raises `NotFoundError` if there is none."""
    of_file = [hunk for hunk in shown if name in (hunk.name, clean_line(hunk.name)) or hunk.name == clean_lines(name)]
    for hunk in of_file:
        first, last = hunk.span
        if first <= line <= last:
            return hunk
    spans = ", ".join(f"{first}-{last}" for first, last in (hunk.span for hunk in of_file))
    raise NotFoundError(
        f"{name!r} has no hunk at line {line}.",
        hint=f"Its hunks have the lines {spans}." if spans else "`kasmon hunks SESSION` lists the hunks.",
    )


def _find_digest(shown: Sequence[ShownHunk], session: Session, digest: str) -> ShownHunk:
    """Return the hunk with this digest. Raises `StaleRequestError` if there is none."""
    if (found := next((hunk for hunk in shown if hunk.digest == digest), None)) is not None:
        return found
    raise StaleRequestError.of_plan(session.id, "the file of this hunk", f"`kasmon hunks {session.id}`")


def _list(shown: Sequence[ShownHunk], session: str, *, wants_json: bool) -> None:
    if wants_json:
        print_json(session=session, hunks=[_object(hunk) for hunk in shown])
    elif not shown:
        note("There are no hunks.")
    else:
        say(*aligned([_row(hunk) for hunk in shown]))


def _row(hunk: ShownHunk) -> tuple[str, str, str, str]:
    place = f"{clean_line(hunk.name)}:{line_range(*hunk.span)}"
    return place, f"+{hunk.count('+')}", f"-{hunk.count('-')}", clean_line(hunk.lines[0].split("@@", 2)[2].strip())


def _object(hunk: ShownHunk) -> dict[str, Any]:
    first, last = hunk.span
    return {
        "file": hunk.name,
        "line": first,
        "last_line": last,
        "added": hunk.count("+"),
        "removed": hunk.count("-"),
        "turn": hunk.turn,
        "lines": list(hunk.lines),
        "digest": hunk.digest,
    }
