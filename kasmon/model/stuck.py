"""Whether a working agent makes progress: judged by its results, never by its output. Pure.

| it is stuck |
|---|
| after `after_s` without any effect: no result, no message, no file written in its folder, no working child |
| after `calls` identical calls in a row: the same tool with the same input |

It is not if it reported that it waits, or if all that is known of the program is that it runs or prints.
"""

import msgspec

from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

UNKNOWING = frozenset({"launch", "process", "output"})
"""Sources of a state that know nothing about what the program does."""


class StuckLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a working session counts as stuck. 0 means never."""

    after_s: float = 600.0
    calls: int = 5


def stuck(session: Session, limits: StuckLimits, seen_at: float, now: float) -> str:
    """Return why *session* counts as stuck at *now*; empty if it does not.

    Args:
        seen_at: when an effect without an event was last observed: a file written, a child that worked, text that
            is being written. In seconds since the epoch, as *now*.
    """
    if session.state is not SessionState.WORKING or session.waits or session.source in UNKNOWING:
        return ""
    if 0 < limits.calls <= session.progress.times:
        return f"the same call {limits.calls} times in a row"
    if 0 < limits.after_s <= now - max(quiet_since(session), seen_at):
        return f"no progress for {_span(limits.after_s)}"
    return ""


def quiet_since(session: Session) -> float:
    """Return since when the events of *session* show no effect, in seconds since the epoch."""
    return max(session.since, session.progress.at)


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
