"""What came of an agent's work, as far as its facts tell: by that it is judged whether it gets anywhere. Pure."""

from collections.abc import Sequence

import msgspec

from kasmon.model.events import (
    Event,
    MessageWritten,
    PartialTextWritten,
    PlanUpdated,
    RequestAnswered,
    SessionStarted,
    SignalSeen,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    UsageReported,
)


class WorkProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an agent's work, as far as its facts tell."""

    at: float = 0.0
    """When something last came of it, in seconds since the epoch."""
    call: str = ""
    """What its last call was, as a digest."""
    times: int = 0
    """How often it made that call in a row."""
    output: int = 0
    """How many tokens it has written."""


def progressed(progress: WorkProgress, event: Event) -> WorkProgress:
    """*progress* after *event*."""
    put = msgspec.structs.replace
    match event:
        case ToolStarted():
            call = _digest((event.within, event.tool, event.input or event.title))
            times = progress.times + 1 if call == progress.call else 1
            return put(progress, at=event.at, call=call, times=times)
        case SessionStarted() | TurnStarted():
            return WorkProgress(at=event.at, output=progress.output)
        case (
            MessageWritten()
            | ThoughtWritten()
            | PartialTextWritten()
            | ToolFinished()
            | PlanUpdated()
            | RequestAnswered()
        ):
            return put(progress, at=event.at)
        case UsageReported() if event.output != progress.output:
            return put(progress, at=event.at, output=event.output)
        case SignalSeen(source="hook" | "program"):
            return put(progress, at=event.at)
    return progress


def _digest(parts: Sequence[str]) -> str:
    import hashlib  # only here: who only reads what was seen takes no digest, and the library takes 4 ms to load

    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]
