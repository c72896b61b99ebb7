"""The progress of an agent's work by its events; the host uses it to detect a stuck agent. Pure."""

from collections.abc import Sequence

import msgspec

from kasmon.model import events


class WorkProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an agent's work by its events."""

    at: float = 0.0
    """The time of the last effect, in seconds since the epoch."""
    call: str = ""
    """A digest of its last call."""
    times: int = 0
    """How often it made that call in a row."""
    output: int = 0
    """The number of tokens that it has written."""


def update_progress(progress: WorkProgress, event: events.Event) -> WorkProgress:
    put = msgspec.structs.replace
    match event:
        case events.ToolStarted():
            call = _digest((event.within, event.tool, event.input or event.title))
            times = progress.times + 1 if call == progress.call else 1
            return put(progress, at=event.at, call=call, times=times)
        case events.SessionStarted() | events.TurnStarted():
            return WorkProgress(at=event.at, output=progress.output)
        case (
            events.MessageWritten()
            | events.ThoughtWritten()
            | events.PartialTextWritten()
            | events.ToolFinished()
            | events.PlanUpdated()
            | events.SubtaskChanged()
            | events.RequestAnswered()
        ):
            return put(progress, at=event.at)
        case events.UsageReported() if event.output != progress.output:
            return put(progress, at=event.at, output=event.output)
        case events.SignalSeen(source="hook" | "program"):
            return put(progress, at=event.at)
    return progress


def _digest(parts: Sequence[str]) -> str:
    import hashlib  # only here: most importers take no digest, and the library takes 4 ms to load

    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]
