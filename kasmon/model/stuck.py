"""Whether an agent that works gets anywhere: judged by what comes of it, never by what it prints. Pure.

| it is stuck |
|---|
| when nothing came of it for `after_s`: no result, no word, no file written where it works, no work of a child |
| when it made the same call `calls` times in a row: the same tool with the same input |

Unless it said that it waits.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from kasmon.model.event import (
    Event,
    MessageSaid,
    PlanUpdated,
    RequestAnswered,
    SessionStarted,
    SignalSeen,
    ThoughtSaid,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    UsageReported,
)
from kasmon.model.state import SessionState

if TYPE_CHECKING:
    from kasmon.model.session import Session


class StuckLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a session that works counts as stuck. 0 means never."""

    after_s: float = 600.0
    calls: int = 5


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an agent's work, as far as its facts tell."""

    at: float = 0.0
    """When something last came of it, in seconds since the epoch."""
    call: str = ""
    """What its last call was, as a digest."""
    times: int = 0
    """How often it made that call in a row."""
    output: int = 0
    """How many tokens it has written."""


def progressed(progress: Progress, event: Event) -> Progress:
    """*progress* after *event*."""
    put = msgspec.structs.replace
    match event:
        case ToolStarted():
            call = _digest((event.within, event.tool, event.input or event.title))
            times = progress.times + 1 if call == progress.call else 1
            return put(progress, at=event.at, call=call, times=times)
        case SessionStarted() | TurnStarted():
            return Progress(at=event.at, output=progress.output)
        case MessageSaid() | ThoughtSaid() | ToolFinished() | PlanUpdated() | RequestAnswered():
            return put(progress, at=event.at)
        case UsageReported() if event.output != progress.output:
            return put(progress, at=event.at, output=event.output)
        case SignalSeen(source="hook" | "program"):
            return put(progress, at=event.at)
    return progress


def stuck(session: "Session", limits: StuckLimits, seen_at: float, now: float) -> str:
    """Why *session* counts as stuck at *now*; empty where it does not.

    Args:
        seen_at: when an effect that no fact tells of was last seen: a file written, a child that worked, text that
            is being written. In seconds since the epoch, as *now*.
    """
    if session.state is not SessionState.WORKING or session.waits:
        return ""
    if 0 < limits.calls <= session.progress.times:
        return f"the same call {limits.calls} times in a row"
    if 0 < limits.after_s <= now - max(quiet_since(session), seen_at):
        return f"nothing came of it for {_span(limits.after_s)}"
    return ""


def quiet_since(session: "Session") -> float:
    """Since when the facts of *session* tell of no effect, in seconds since the epoch."""
    return max(session.since, session.progress.at)


def _digest(parts: Sequence[str]) -> str:
    import hashlib  # only here: who only reads what was seen takes no digest, and the library takes 4 ms to load

    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
