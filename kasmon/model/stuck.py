"""Whether an agent that works gets anywhere: judged by what comes of it, never by what it prints. Pure.

| it is stuck |
|---|
| when nothing came of it for `after_s`: no result, no word, no file written where it works, no work of a child |
| when it made the same call `calls` times in a row: the same tool with the same input |

Unless it said that it waits, or is a program of which only is known that it runs or prints.
"""

import msgspec

from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

UNKNOWING = frozenset({"launch", "process", "output"})
"""Sources of a state that know nothing of what the program does."""


class StuckLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a session that works counts as stuck. 0 means never."""

    after_s: float = 600.0
    calls: int = 5


def stuck(session: Session, limits: StuckLimits, seen_at: float, now: float) -> str:
    """Why *session* counts as stuck at *now*; empty where it does not.

    Args:
        seen_at: when an effect that no fact tells of was last seen: a file written, a child that worked, text that
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
    """Since when the facts of *session* tell of no effect, in seconds since the epoch."""
    return max(session.since, session.progress.at)


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
