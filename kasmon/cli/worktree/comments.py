"""`kasmon comment` and `kasmon comments`: comments on lines that a session changed, sent to it as one prompt."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from kasmon.cli.arguments import Arg, Json, SessionArgument
from kasmon.cli.output.console import note, print_json, say
from kasmon.cli.output.json_objects import receipt_object
from kasmon.cli.send import EXIT_CODES
from kasmon.errors import UsageError
from kasmon.host.rpc import event_loop
from kasmon.model.commands import When
from kasmon.model.events import ReviewComment
from kasmon.model.review.comments import LoggedComment
from kasmon.model.session import Session
from kasmon.paths import Paths, user_paths
from kasmon.sanitize import clean_line, clean_lines
from kasmon.supervisor.fleet.lookup import find_here
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.review import comments as operations
from kasmon.supervisor.worktrees.changes import top_of

LINES = re.compile(r"(?P<file>.+):(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9}))?", re.DOTALL)


def comment(
    wanted: SessionArgument,
    where: Annotated[
        str, Arg("A line or lines of a file in its worktree: FILE:LINE or FILE:LINE-LINE.", ("FILE:LINE",))
    ],
    text: Annotated[str, Arg("The comment (`-`: from stdin).", ("TEXT",), hyphen=True)],
    /,
    *,
    removed: Annotated[
        bool, Arg("The lines were removed: stdin is JSON with these `lines`, and perhaps `hunk`; and `text` for `-`.")
    ] = False,
    wants_json: Json = False,
) -> None:
    """Comment on lines in a session's worktree; `kasmon comments --send` sends all comments."""
    folders = user_paths()
    session = find_here(read_fleet(folders), wanted)
    file, first, last = parse_place(session, where)
    given = sys.stdin.read() if text == "-" or removed else ""
    if removed:
        written = _comment_on_removed(session, file, first, last, given, "" if text == "-" else text)
    else:
        written = operations.comment_on(session, file, first, last, given if text == "-" else text)
    event_loop.run(operations.write_comment(folders, session, written))
    if wants_json:
        print_json(session=session.id, comment=msgspec.to_builtins(written))
    else:
        say(f"{written.id}: comment on {where}")


class RemovedLines(msgspec.Struct, frozen=True):
    """What stdin is for a comment on removed lines."""

    lines: tuple[str, ...]
    hunk: str = ""
    text: str = ""


def _comment_on_removed(session: Session, file: str, first: int, last: int, given: str, text: str) -> ReviewComment:
    try:
        removed = msgspec.json.decode(given, type=RemovedLines)
    except msgspec.DecodeError as error:
        raise UsageError(f"stdin describes no removed lines: {error}.", hint='{"lines": ["a line"]}') from error
    if last - first + 1 != len(removed.lines):
        raise UsageError(f"{len(removed.lines)} lines are not the lines {first} to {last}.")
    lines, hunk = [clean_lines(line.replace("\n", " ")) for line in removed.lines], clean_line(removed.hunk)
    return operations.build_comment(session, file, first, lines, text or removed.text, side="old", hunk=hunk)


def comments(
    wanted: SessionArgument,
    action: Annotated[Literal["ls", "edit", "rm", "resolve", "reopen"], Arg("What to do (default: ls, list).")] = "ls",
    /,
    *words: Annotated[
        str, Arg("edit: the id of a comment, and its new text (`-`: from stdin). Otherwise: ids.", hyphen=True)
    ],
    send: Annotated[bool, Arg("Send the open comments to the agent as one prompt.")] = False,
    when: Annotated[When, Arg("Of --send, if busy: queue (idle), send anyway (now), interrupt, or refuse.")] = "now",
    delete: Annotated[str | None, Arg("Delete the comment with this id.")] = None,
    wants_json: Json = False,
) -> int:
    """List the comments on a session's changes, change them, or send them.

    A comment is resolved once its lines changed. Sent and resolved comments are not sent again; `reopen` makes them
    open again.
    """
    if send + (delete is not None) + (action != "ls") > 1:
        raise UsageError(f"--send, --delete and {action!r} cannot be combined.", hint="Pass one of them.")
    _check(action, words)
    folders = user_paths()
    session = find_here(read_fleet(folders), wanted)
    event_loop.run(_change(folders, session, *(("rm", (delete,)) if delete is not None else (action, words))))
    receipt = None
    if send:
        receipt, count = event_loop.run(operations.send_comments(folders, session, when))
        if not wants_json:
            say(f"{receipt.id}: {receipt.state}, {count} {'comment' if count == 1 else 'comments'}")
    listed = operations.list_comments(folders, session)
    if wants_json:
        sent = {"receipt": receipt_object(receipt)} if receipt is not None else {}
        print_json(session=session.id, comments=[_object(each) for each in listed], **sent)
    elif not send:
        if not listed:
            note(f"{session.name!r} has no comments.")
        for each in listed:
            head, *more = each.comment.text.split("\n")
            say(f"{each.comment.id}  {each.state:<8}  {each.place}  {head}", *(f"    {line}" for line in more))
    return EXIT_CODES.get(receipt.state, 0) if receipt is not None else 0


def _check(action: str, arguments: Sequence[str]) -> None:
    """Raise `UsageError` unless *arguments* are what *action* requires."""
    example = f"kasmon comments SESSION {action}"
    if action == "ls" and arguments:
        raise UsageError(f"`{example}` accepts no argument {arguments[0]!r}.")
    if action == "edit" and len(arguments) != 2:
        raise UsageError(f"`{example}` requires the id of a comment, and its new text.", hint=f"`{example} ID TEXT`")
    if action != "ls" and not arguments:
        raise UsageError(f"`{example}` requires the id of a comment.", hint="`kasmon comments SESSION` lists the ids.")


async def _change(folders: Paths, session: Session, action: str, arguments: Sequence[str]) -> None:
    if action == "edit":
        comment, text = arguments
        await operations.edit_comment(folders, session, comment, sys.stdin.read() if text == "-" else text)
        return
    for comment in arguments:
        if action == "rm":
            await operations.remove_comment(folders, session, comment)
        else:
            await operations.mark_comment(folders, session, comment, is_resolved=action == "resolve")


def parse_place(session: Session, where: str) -> tuple[str, int, int]:
    """Return the file of *where*, relative to the top of the session's worktree, with the first and the last line.

    Raises:
        UsageError: if it names none.
        UnableError, GitError: if the session works in no repository, or git fails.
    """
    found = LINES.fullmatch(where)
    if found is None:
        raise UsageError(f"{where!r} names no line of a file.", hint="Write FILE:LINE or FILE:LINE-LINE.")
    path, top, first = Path(found["file"]), top_of(session), int(found["first"])
    file = path.relative_to(top).as_posix() if path.is_relative_to(top) else found["file"]
    return file, first, int(found["last"] or first)


def _object(logged: LoggedComment) -> dict[str, Any]:
    shown = msgspec.to_builtins(logged.comment)
    return {
        **shown,
        "state": logged.state,
        "at": logged.at,
        "receipt": logged.receipt or None,
        "line_now": logged.line_now or None,
    }
