"""The review of what a session of another machine changed: diff, hunks, comments, files; by kasmon's commands there."""

from typing import Any, Final, Literal

import msgspec

from kasmon.model.commands import Mode, Receipt, When
from kasmon.model.events import ReviewComment
from kasmon.model.review.comments import LoggedComment
from kasmon.model.review.hunks import ShownHunk
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sanitize import clean_line
from kasmon.supervisor.machines.link_client import parse_receipt, parse_reply, run_for
from kasmon.supervisor.review.hunks import DONE
from kasmon.supervisor.worktrees.changes import shorten
from kasmon.supervisor.worktrees.code_symbols import CodeSymbol
from kasmon.supervisor.worktrees.file_listing import MOST_SENT

MARKS: Final = {"open": "open", "resolved": "resolved", "sent": ""}


class _Diff(msgspec.Struct, frozen=True):
    """What `kasmon diff --json` and `kasmon sandbox diff --json` print."""

    diff: str
    turn: int | None = None


class _Comments(msgspec.Struct, frozen=True):
    """What `kasmon comments --json` prints."""

    comments: tuple[dict[str, Any], ...] = ()


class _Files(msgspec.Struct, frozen=True):
    """What `kasmon show --files --json` prints."""

    files: tuple[str, ...]


class _Symbols(msgspec.Struct, frozen=True):
    """What `kasmon show --symbols --json` prints."""

    symbols: tuple[CodeSymbol, ...]


class _Hunk(msgspec.Struct, frozen=True):
    """What `kasmon hunks --json` prints of one that was changed."""

    file: str


def read_diff(places: Paths, session: Session, turn: int | None) -> tuple[int | None, str]:
    """Return the number of the turn and its cleaned diff; of the whole branch for None, of the last turn for 0. Blocks.

    Raises:
        KasmonError: as `run_for`.
    """
    if session.mode is Mode.INTERPRETER or (session.sandbox is not None and turn is not None):
        words = ["sandbox", "diff", session.id, *([str(turn)] if turn else [])]
    else:
        words = ["diff", session.id, *([] if turn is None else [f"--turn={turn}"] if turn else ["--last"])]
    found = parse_reply(session.via, run_for(places, session, *words), _Diff)
    return found.turn, shorten(found.diff)


def list_files(places: Paths, session: Session) -> list[str]:
    """Return the files of its folder there; see `file_listing.listed`. Blocks. Raises `KasmonError` as `run_for`."""
    output = run_for(places, session, "show", session.id, "--files")
    names = parse_reply(session.via, output, _Files).files[:MOST_SENT]
    return [name for name in names if clean_line(name) == name]


def list_symbols(places: Paths, session: Session) -> list[CodeSymbol]:
    """Return the definitions in its folder there, as `find_symbols`. Blocks. Raises `KasmonError` as `run_for`."""
    found = parse_reply(session.via, run_for(places, session, "show", session.id, "--symbols"), _Symbols)
    return [each for each in found.symbols[:MOST_SENT] if clean_line(each.name + each.file) == each.name + each.file]


def list_comments(places: Paths, session: Session) -> tuple[LoggedComment, ...]:
    """Return the comments of *session* with their states. Blocks. Raises `KasmonError` as `run_for`."""
    return _parse(session.via, run_for(places, session, "comments", session.id))


def write_comment(places: Paths, session: Session, comment: ReviewComment) -> None:
    """Write *comment*; its id is chosen there. Blocks.

    Raises:
        KasmonError: as `run_for`.
    """
    place = f"{comment.file}:{comment.line}-{comment.last_line}"
    if comment.side == "old":
        removed = msgspec.json.encode({"lines": comment.lines, "hunk": comment.hunk, "text": comment.text})
        run_for(places, session, "comment", session.id, place, "-", "--removed", stdin=removed)
        return
    run_for(places, session, "comment", session.id, place, "-", stdin=comment.text.encode())


def change_comment(places: Paths, session: Session, action: str, comment: str, text: str = "") -> None:
    """Do *action* (`edit`, `rm`, `resolve`, `reopen`) with the comment of this id. Blocks. Raises as `run_for`."""
    words = ["-"] if action == "edit" else []
    run_for(places, session, "comments", session.id, action, comment, *words, stdin=text.encode())


def send_comments(places: Paths, session: Session, when: When) -> tuple[Receipt, int]:
    """Send the open comments as one prompt; return its receipt and their number. Blocks. Raises as `run_for`."""
    count = sum(each.state == "open" for each in list_comments(places, session))
    output = run_for(places, session, "comments", session.id, "--send", f"--when={when}")
    return parse_receipt(session.via, output), count


def change_hunk(places: Paths, session: Session, action: Literal["revert", "stage"], hunk: ShownHunk) -> str:
    """Revert or stage *hunk* there, if its file is still as it was shown; return a sentence that says so. Blocks.

    Raises:
        StaleRequestError: if it is not; nothing is changed then.
        KasmonError: as `run_for`.
    """
    turn = [] if hunk.turn is None else [f"--turn={hunk.turn}"]
    output = run_for(places, session, "hunks", session.id, action, f"--digest={hunk.digest}", *turn)
    return f"The hunk of {parse_reply(session.via, output, _Hunk).file} is {DONE[action]}."


def undo_hunk(places: Paths, session: Session) -> str:
    """Undo the last action on a hunk there; return a sentence that says so. Blocks. Raises as `run_for`."""
    output = run_for(places, session, "hunks", session.id, "undo", "--yes")
    return f"The last change of {parse_reply(session.via, output, _Hunk).file} by a hunk is undone."


def _parse(machine: str, output: bytes) -> tuple[LoggedComment, ...]:
    found = []
    for fields in parse_reply(machine, output, _Comments).comments:
        logged = {
            "comment": fields,
            "at": fields.get("at", 0.0),
            "receipt": fields.get("receipt") or "",
            "line_now": fields.get("line_now") or 0,
            "mark": MARKS.get(str(fields.get("state")), ""),
        }
        found.append(msgspec.convert(logged, LoggedComment))
    return tuple(found)
