"""Comments on lines of a diff: from the events that hold them, and whether their lines changed since. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from kasmon.model.events import CommentMarked, CommentRemoved, CommentsSent, CommentWritten, Event, ReviewComment
from kasmon.model.review.hunks import HunkedFile, numbered_lines
from kasmon.sanitize import HIDDEN, clean_line

MOST_QUOTED: Final = 40
"""A prompt quotes at most this many lines of a comment."""


class LoggedComment(msgspec.Struct, frozen=True, kw_only=True):
    """A comment as the log has it now."""

    comment: ReviewComment
    at: float
    """When it was written or edited last, in seconds since the epoch."""
    receipt: str = ""
    """The receipt of the prompt that it was sent with, since then; empty if it was not sent."""
    line_now: int = 0
    """The number of its first line in the current file; 0 if its lines are not there."""
    is_resolved: bool = False
    """Whether its lines changed: they are gone, or removed ones are back."""

    mark: Literal["", "resolved", "open"] = ""
    """What a person marked it as; it counts more than whether its lines changed."""

    @property
    def state(self) -> str:
        """`resolved`, `sent` or `open`."""
        is_resolved = self.is_resolved if not self.mark else self.mark == "resolved"
        return "resolved" if is_resolved else "sent" if self.receipt else "open"

    @property
    def place(self) -> str:
        """The file with the numbers of its lines: `FILE:3-5`."""
        comment = self.comment
        return f"{comment.file}:{line_range(comment.line, comment.last_line)}"


def line_range(first: int, last: int) -> str:
    """Return `3`, or `3-5`."""
    return str(first) if first == last else f"{first}-{last}"


def fold_comments(events: Iterable[Event]) -> tuple[LoggedComment, ...]:
    """Return the comments that *events* leave, in the order in which they were first written."""
    found: dict[str, LoggedComment] = {}
    for event in events:
        match event:
            case CommentWritten(comment=comment):
                is_reopened = comment.id in found and found[comment.id].mark == "open"
                found[comment.id] = LoggedComment(comment=comment, at=event.at, mark="open" if is_reopened else "")
            case CommentRemoved():
                found.pop(event.comment, None)
            case CommentsSent():
                for name in event.comments:
                    if name in found:
                        found[name] = msgspec.structs.replace(found[name], receipt=event.receipt)
            case CommentMarked(comment=name) if name in found:
                known = found[name]
                receipt, mark = (known.receipt, "resolved") if event.is_resolved else ("", "open")
                found[name] = msgspec.structs.replace(known, receipt=receipt, mark=mark)
            case _:
                pass
    return tuple(found.values())


def resolved(logged: LoggedComment, content: Sequence[str]) -> LoggedComment:
    """Return *logged* as it is with the lines of its file now, *content*; no lines if the file is gone."""
    comment = logged.comment
    starts = find_lines(comment.lines, content)
    nearest = min(starts, key=lambda at: abs(at + 1 - comment.line), default=None)
    is_back = comment.side == "old" and len(starts) > comment.occurrences
    is_gone = comment.side == "new" and nearest is None
    return msgspec.structs.replace(
        logged, line_now=0 if nearest is None else nearest + 1, is_resolved=is_back or is_gone
    )


def find_lines(lines: Sequence[str], content: Sequence[str]) -> list[int]:
    """Return the indexes in *content* at which all *lines* occur; a line with a redacted secret equals any."""
    count = len(lines)
    if not count:
        return []
    wanted = [None if HIDDEN in line else line for line in lines]
    return [
        at
        for at in range(len(content) - count + 1)
        if all(each is None or each == content[at + step] for step, each in enumerate(wanted))
    ]


def place_in(logged: LoggedComment, file: HunkedFile) -> int | None:
    """Return the index of the line of *file*, its diff, that the comment is shown below; None if it is not in it."""
    comment = logged.comment
    numbered = numbered_lines(file, comment.side)
    starts = find_lines(comment.lines, [file.lines[at].text[1:] for at, _ in numbered])
    wanted = logged.line_now if logged.line_now and comment.side == "new" else comment.line
    if starts:
        nearest = min(starts, key=lambda start: abs(numbered[start][1] - wanted))
        return numbered[nearest + len(comment.lines) - 1][0]
    return next((at for at, number in numbered if number == comment.last_line), None)


def build_prompt(comments: Sequence[LoggedComment]) -> str:
    """Return the prompt that sends *comments*: each with its file, line, hunk, the commented lines, and its text."""
    parts = ["Review comments on your changes. Please address each one."]
    for logged in comments:
        comment = logged.comment
        first = logged.line_now or comment.line
        span = line_range(first, first + comment.last_line - comment.line)
        where = f"{clean_line(comment.file)}:{span}" + (" (removed lines)" if comment.side == "old" else "")
        sign = "-" if comment.side == "old" else " "
        quoted = [f"> {sign}{line}" for line in comment.lines[:MOST_QUOTED]]
        rest = len(comment.lines) - MOST_QUOTED
        more = [f"> … {rest} more lines"] if rest > 0 else []
        head = [f"> {comment.hunk}"] if comment.hunk else []
        parts.append("\n".join((where, *head, *quoted, *more, comment.text)))
    return "\n\n".join(parts)
