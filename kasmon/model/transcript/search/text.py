"""The searchable text of a session's events, and the position of a match in it. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kasmon.model import events
from kasmon.model.commands import FAILED_RECEIPTS
from kasmon.model.permission import SessionId
from kasmon.model.transcript.search.pattern import SearchPattern
from kasmon.sanitize import Clean, clean_block

What: TypeAlias = Literal[
    "prompt", "said", "thought", "tool", "output", "diff", "plan", "asked", "answer", "notice", "note", "end", "printed"
]
"""The kind of a text; `printed` is terminal output."""
CUT: Final = re.compile(r"\n… [\d,]+ more characters, blob [0-9a-f]{64}\Z")
"""The end of a text whose full version is in a blob."""


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId
    at: float
    """When it was written or printed, in seconds since the epoch."""
    source: Literal["transcript", "terminal"]
    position: int
    """Of a transcript: the event's byte offset in its log. Of a terminal: the line number."""
    what: What
    line: str
    start: int
    """The character offset of the match in the line."""
    end: int
    before: tuple[str, ...] = ()
    """The lines above, the last one next to it."""
    after: tuple[str, ...] = ()


def texts(event: events.Event, in_terminal: bool = False) -> list[tuple[What, Clean]]:
    """Return the texts of *event* with their kinds; without those that a blob has in full.

    Args:
        event: an event of a session's log.
        in_terminal: the session runs in a terminal, so that no turn reports its prompts.
    """
    found_texts = [(what, text) for what, text in _texts(event, in_terminal) if text and not CUT.search(text)]
    return [(what, clean_block(text)) for what, text in found_texts]


def _texts(event: events.Event, in_terminal: bool) -> list[tuple[What, str]]:
    match event:
        case events.EntryImported():
            return _texts(event.entry, in_terminal)
        case events.TurnStarted():
            return [("prompt", event.prompt)]
        case events.ReceiptChanged():
            is_lost = event.receipt.state in FAILED_RECEIPTS
            reason: list[tuple[What, str]] = [("notice", event.receipt.reason)] if is_lost else []
            return [("prompt", event.prompt if in_terminal else ""), *reason]
        case events.MessageWritten():
            return [("said", "" if event.blob else event.text)]
        case events.ThoughtWritten():
            return [("thought", event.text)]
        case events.ToolStarted():
            return [("tool", _format_call(event))]
        case events.ToolFinished():
            return [] if event.blob else [("output", event.output), ("diff", event.diff)]
        case events.SubtaskChanged():
            return [("output", event.output)]
        case events.PlanUpdated():
            return [("plan", "\n".join(item.text for item in event.items))]
        case events.RequestOpened(request=asked):
            return [("asked", "\n".join((f"{asked.tool} {asked.title}".strip(), asked.shown, *asked.options)))]
        case events.RequestAnswered():
            return [("answer", "\n".join((event.reason, *event.labels)).strip("\n")), ("diff", event.diff)]
        case events.NoticeRaised() | events.LimitReached():
            return [("notice", event.text)]
        case events.CommentWritten(comment=comment):
            return [("note", comment.text)]
        case events.PeerMessageWritten() | events.FinishProposed():
            return [("note", event.text)]
        case events.ContextReported():
            return [("note", event.waiting or ""), ("note", event.done or "")]
        case events.TurnEnded():
            return [("notice", event.error)]
        case events.SessionEnded():
            return [("end", "\n".join(part for part in (event.why, event.last_words) if part))]
        case _:
            return []


def _format_call(event: events.ToolStarted) -> str:
    try:
        given = [text for text in _leaves(msgspec.json.decode(event.input)) if text != event.title]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        given = [event.input]
    return "\n".join((f"{event.tool} {event.title}".strip(), *given))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for member in value:
            yield from _leaves(member)
    elif isinstance(value, dict):
        for member in value.values():
            yield from _leaves(member)


def find_lines(lines: Sequence[str], pattern: SearchPattern) -> Iterator[tuple[int, int, int]]:
    """Yield which of *lines* match *pattern*, each with the match's character offsets."""
    for number, line in enumerate(lines):
        span = pattern.find(line)
        if span is not None:
            yield number, *span


def around(lines: Sequence[str], number: int, context: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the *context* lines above line *number*, and those below it."""
    return tuple(lines[max(0, number - context) : number]), tuple(lines[number + 1 : number + 1 + context])
