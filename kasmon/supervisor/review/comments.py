"""Comments on the lines that a session changed: written into its log, listed with their state, sent as one prompt."""

import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from kasmon.errors import LogMissingError, NotFoundError, SessionEndedError, UnavailableError, UsageError
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.model.commands import Receipt, ReceiptState, When
from kasmon.model.events import (
    CommentEvent,
    CommentMarked,
    CommentRemoved,
    CommentsSent,
    CommentWritten,
    Event,
    ReviewComment,
    decode,
)
from kasmon.model.review.comments import LoggedComment, build_prompt, find_lines, fold_comments, resolved
from kasmon.model.session import Session
from kasmon.paths import Paths, open_regular
from kasmon.sanitize import clean_block, clean_lines
from kasmon.store.event_log import EventLog
from kasmon.supervisor.fleet.lookup import check_here
from kasmon.supervisor.machines.dispatch import dispatch
from kasmon.supervisor.worktrees.changes import find_shown_file, top_of

LINE_BEGINS: Final = b'{"kind":"comment.'
"""How the log's lines with these events begin; the others are not decoded."""
LONGEST_TEXT: Final = 20_000
"""A comment has at most so many characters."""
MOST_LINES: Final = 500
LARGEST_FILE: Final = 8 << 20
"""Lines are found in files of at most so many bytes."""
MARKS: Final = {"open": "open", "resolved": "resolved", "sent": ""}
"""The state of a comment of another machine -> the mark that a person gave it."""
UNDELIVERED: Final = frozenset({ReceiptState.REFUSED, ReceiptState.LOST, ReceiptState.FAILED})
"""Receipts of prompts that the agent does not have."""


@dispatch
def list_comments(paths: Paths, session: Session) -> tuple[LoggedComment, ...]:
    """Return the comments of *session*, oldest first, each with its state by the current files. Blocks."""
    logged = fold_comments(_read_events(paths, session))
    if not logged:
        return ()
    contents = {name: _read_lines(session, name) for name in {each.comment.file for each in logged}}
    return tuple(resolved(each, contents[each.comment.file]) for each in logged)


class _Comments(msgspec.Struct, frozen=True):
    """What `kasmon comments --json` prints."""

    comments: tuple[dict[str, Any], ...] = ()


@list_comments.elsewhere
def _list_comments_there(paths: Paths, session: Session) -> tuple[LoggedComment, ...]:
    from kasmon.supervisor.machines.link_client import parse_reply, run_for  # only for other machines, as below

    found = []
    for fields in parse_reply(session.via, run_for(paths, session, "comments", session.id), _Comments).comments:
        logged = {
            "comment": fields,
            "at": fields.get("at", 0.0),
            "receipt": fields.get("receipt") or "",
            "line_now": fields.get("line_now") or 0,
            "mark": MARKS.get(str(fields.get("state")), ""),
        }
        found.append(msgspec.convert(logged, LoggedComment))
    return tuple(found)


def comment_on(session: Session, file: str, first: int, last: int, text: str) -> ReviewComment:
    """Return a new comment on the lines *first* to *last* of *file*, relative to the worktree's top. Blocks.

    Raises `UsageError` if the file has no such lines, or there is no text; else as `top_of`.
    """
    lines = _read_lines(session, file)
    if not lines:
        raise UsageError(f"cannot comment on {file!r}: it is no text file in {str(top_of(session))!r}.")
    if not 1 <= first <= last <= len(lines):
        raise UsageError(f"{file!r} has the lines 1 to {len(lines)}, not {first} to {last}.")
    return build_comment(session, file, first, lines[first - 1 : last], text)


def build_comment(
    session: Session,
    file: str,
    first: int,
    lines: Iterable[str],
    text: str,
    *,
    side: Literal["new", "old"] = "new",
    hunk: str = "",
) -> ReviewComment:
    """Return a new comment on *lines*, whose first has the number *first*. Blocks.

    Raises `UsageError` as `check_text`, or if there are too many lines.
    """
    lines, text = tuple(lines), check_text(text)
    if not 0 < len(lines) <= MOST_LINES:
        raise UsageError(f"a comment is on 1 to {MOST_LINES} lines, not {len(lines)}.")
    return ReviewComment(
        id=secrets.token_hex(3),
        file=file,
        line=first,
        last_line=first + len(lines) - 1,
        side=side,
        lines=lines,
        occurrences=0 if session.via else len(find_lines(lines, _read_lines(session, file))),
        hunk=hunk,
        text=text,
    )


def check_text(text: str) -> str:
    """Return *text* as it is stored: cleaned and stripped. Raises `UsageError` if that is empty or too long."""
    clean = clean_block(text).strip()
    if not clean:
        raise UsageError("the comment is empty.")
    if len(clean) > LONGEST_TEXT:
        raise UsageError(f"the comment has {len(clean):,} characters; {LONGEST_TEXT:,} are possible.")
    return clean


@dispatch
async def write_comment(paths: Paths, session: Session, comment: ReviewComment) -> None:
    """Log *comment*; one with the same id is replaced. Raises `KasmonError` as `_record`."""
    await _record(paths, session, CommentWritten(at=time.time(), comment=comment))


@write_comment.elsewhere
async def _write_comment_there(paths: Paths, session: Session, comment: ReviewComment) -> None:
    """Write *comment*; its id is chosen there."""
    from kasmon.supervisor.machines.link_client import run_for

    arguments, stdin = [f"{comment.file}:{comment.line}-{comment.last_line}", "-"], comment.text.encode()
    if comment.side == "old":
        arguments.append("--removed")
        stdin = msgspec.json.encode({"lines": comment.lines, "hunk": comment.hunk, "text": comment.text})
    await run_in_thread(run_for, paths, session, "comment", session.id, *arguments, stdin=stdin)


@dispatch
async def edit_comment(paths: Paths, session: Session, comment: str, text: str) -> ReviewComment:
    """Replace the text of the comment with this id, and return it; it is open again if it was sent.

    Raises as `find_comment`, `check_text` and `_record`.
    """
    known = await run_in_thread(find_comment, paths, session, comment)
    edited = msgspec.structs.replace(known, text=check_text(text))
    await write_comment(paths, session, edited)
    return edited


@edit_comment.elsewhere
async def _edit_comment_there(paths: Paths, session: Session, comment: str, text: str) -> ReviewComment:
    from kasmon.supervisor.machines.link_client import run_for

    known, text = await run_in_thread(find_comment, paths, session, comment), check_text(text)
    await run_in_thread(run_for, paths, session, "comments", session.id, "edit", comment, "-", stdin=text.encode())
    return msgspec.structs.replace(known, text=text)


@dispatch
async def remove_comment(paths: Paths, session: Session, comment: str) -> None:
    """Delete the comment with this id. Raises as `find_comment` and `_record`."""
    await run_in_thread(find_comment, paths, session, comment)
    await _record(paths, session, CommentRemoved(at=time.time(), comment=comment))


@remove_comment.elsewhere
async def _remove_comment_there(paths: Paths, session: Session, comment: str) -> None:
    from kasmon.supervisor.machines.link_client import run_for

    await run_in_thread(run_for, paths, session, "comments", session.id, "rm", comment)


@dispatch
async def mark_comment(paths: Paths, session: Session, comment: str, *, is_resolved: bool) -> None:
    """Mark the comment with this id as resolved, or reopen it: then it is sent again. Raises as `remove_comment`."""
    await run_in_thread(find_comment, paths, session, comment)
    await _record(paths, session, CommentMarked(at=time.time(), comment=comment, is_resolved=is_resolved))


@mark_comment.elsewhere
async def _mark_comment_there(paths: Paths, session: Session, comment: str, *, is_resolved: bool) -> None:
    from kasmon.supervisor.machines.link_client import run_for

    await run_in_thread(
        run_for, paths, session, "comments", session.id, "resolve" if is_resolved else "reopen", comment
    )


def find_comment(paths: Paths, session: Session, comment: str) -> ReviewComment:
    """Return the comment with this id. Blocks. Raises `NotFoundError` if there is none."""
    for each in fold_comments(_read_events(paths, session)):
        if each.comment.id == comment:
            return each.comment
    raise NotFoundError(
        f"{session.name!r} has no comment {comment!r}.", hint=f"`kasmon comments {session.id}` lists them."
    )


@dispatch
async def send_comments(paths: Paths, session: Session, when: When = "now") -> tuple[Receipt, int]:
    """Send the open comments to the agent as one prompt; return its receipt and their number.

    Raises `NotFoundError` if no comment is open; else as `session_operations.send`, and as `_record`.
    """
    from kasmon.supervisor.sessions import session_operations  # heavy: comments are listed more often than sent

    listed = await run_in_thread(list_comments, paths, session)
    waiting = [each for each in listed if each.state == "open"]
    if not waiting:
        raise NotFoundError(f"{session.name!r} has no open comments.", hint="Each is sent, resolved or deleted.")
    receipt = await session_operations.send(paths, session, build_prompt(waiting), when)
    if receipt.state not in UNDELIVERED:
        names = tuple(each.comment.id for each in waiting)
        await _record(paths, session, CommentsSent(at=time.time(), comments=names, receipt=receipt.id))
    return receipt, len(waiting)


@send_comments.elsewhere
async def _send_comments_there(paths: Paths, session: Session, when: When = "now") -> tuple[Receipt, int]:
    from kasmon.supervisor.machines.link_client import parse_receipt, run_for

    count = sum(each.state == "open" for each in await run_in_thread(list_comments, paths, session))
    output = await run_in_thread(run_for, paths, session, "comments", session.id, "--send", f"--when={when}")
    return parse_receipt(session.via, output), count


async def _record(paths: Paths, session: Session, event: CommentEvent) -> None:
    """Have the session's host log *event*; without a host, append it.

    Raises:
        UnavailableError: if it cannot be written.
        HostUnreachableError, TimedOutError, ProtocolVersionError: if the host does not do it.
        OtherMachineError: if the log is another machine's.
    """
    check_here(session)
    if await run_in_thread(_append, paths, session, event):
        return
    from kasmon.host.rpc.connect import reach  # as above
    from kasmon.host.rpc.frames import RecordComment

    try:
        async with reach(paths, session.id, session.mode) as host:
            await host.ask(RecordComment(n=0, session=session.id, event=event))
    except SessionEndedError:  # it has just ended
        if not await run_in_thread(_append, paths, session, event):
            raise


def _append(paths: Paths, session: Session, event: CommentEvent) -> bool:
    """Append *event* to the session's log, unless a host runs; return whether it was appended."""
    from kasmon.supervisor.sessions.start import open_log  # as above

    try:
        with open_log(paths, session.id) as session_log:
            if session_log is not None and not session_log.append(event):
                raise UnavailableError(f"cannot write {str(paths.log(session.id))!r}: {session_log.trouble}.")
            return session_log is not None
    except OSError as error:
        raise UnavailableError(f"cannot write {str(paths.log(session.id))!r}: {error.strerror or error}.") from error


def _read_events(paths: Paths, session: Session) -> Iterator[Event]:
    try:
        for line, _ in EventLog(paths.log(session.id)).lines():
            if line.startswith(LINE_BEGINS):
                yield decode(line)
    except LogMissingError:
        return


def _read_lines(session: Session, name: str) -> tuple[str, ...]:
    """Return the cleaned lines of the file *name* in the worktree; none if it is no regular text file there."""
    top = top_of(session)
    try:
        path = find_shown_file(top, name)
        if ".." in Path(name).parts or not path.parent.resolve().is_relative_to(top.resolve()):
            return ()
        handle = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return ()
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        content = file.read() if stat.S_ISREG(facts.st_mode) and facts.st_size <= LARGEST_FILE else b""
    lines = clean_lines(content.decode("utf-8", "replace")).split("\n")
    return tuple(lines[:-1] if lines[-1] == "" else lines)
