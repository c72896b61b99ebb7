"""Short text for people: a session's name, state and end, glyphs of states, counts, durations and clock times."""

from datetime import datetime, tzinfo
from typing import Final

from kasmon.model.permission import Request, SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.sanitize import clean_line

GLYPHS: Final = {
    "starting": ("◌", "."),
    "idle": ("○", "o"),
    "working": ("●", "*"),
    "asking": ("◆", "!"),
    "finished": ("✦", "F"),
    "limited": ("◔", "L"),
    "paused": ("▯", "="),
    "standby": ("◐", "z"),
    "hibernated": ("◒", "h"),
    "unsure": ("?", "?"),
    "lost": ("◇", "#"),
    "ended": ("✓", "+"),
    "crashed": ("✕", "x"),
}
"""State -> its glyph, and its glyph where the output is not UTF-8."""


def count_text(count: int, noun: str) -> str:
    """Return *count* with its noun: `1 commit`, `2 commits`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def compact(count: int) -> str:
    """Return a count in at most six characters: 950, 5.2k, 3.1M."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def mb(count: int) -> str:
    """Return a number of bytes of memory as text: 350 MB, 1.2 GB."""
    return f"{count / 1e6:.0f} MB" if count < 999_500_000 else f"{count / 1e9:.1f} GB"


def age(seconds: float) -> str:
    """Return a duration in its largest whole unit: 12s, 3m, 2h, 5d."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"


def duration(seconds: float) -> str:
    """Return a duration as text: 0.4 s, 12 s, 3 min 4 s, 2 h 5 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def clock(at: float, zone: tzinfo | None = None, *, day: bool = False) -> str:
    """Return the time of day at *at*, in seconds since the epoch, in *zone* (None: this machine's).

    A time outside the calendar is shown as `--:--:--`.
    """
    try:
        when = datetime.fromtimestamp(at, zone)
    except (OverflowError, OSError, ValueError):
        return "--:--:--"
    return when.strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")


def unreachable_words(since: float, now: float) -> str:
    """Return since when a machine is unreachable: `unreachable since 12:03 (2 min)`."""
    passed = max(0.0, now - since)
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    size, unit = next((pair for pair in units if passed >= pair[0]), units[-1])
    at = clock(since)[:5] if passed < 86400 else clock(since, day=True)[:16]
    return f"unreachable since {at} ({int(passed // size)} {unit})"


def session_label(session: Session | None, fallback: SessionId) -> str:
    """Return the session's display name, with its machine if that is another; its id if it has none."""
    return clean_line(session.label) if session else str(fallback)


def state_name(session: Session) -> str:
    """Return the displayed state: a crash differs from another end, an unviewed ended turn is `finished`.

    A session whose host has an open request is `asking`, whatever its agent does.
    """
    if session.has_host_request:
        return SessionState.ASKING.value
    if session.is_unviewed:
        return "finished"
    return "crashed" if session.crashed else session.state.value


def state_label(session: Session) -> str:
    """Return the word for its state: `state_name`, but `failed` if its creation failed."""
    name = state_name(session)
    return "failed" if name == "crashed" and session.has_failed_to_start else name


def ending(session: Session) -> str:
    """Return how an agent ended, in a few words."""
    if session.stopped:
        return "stopped"
    if session.timed_out:
        return "session lifetime expired"
    if session.signal is not None:
        return f"ended by {session.signal}"
    if session.exit_code is None:
        return "failed" if session.has_failed_to_start else "ended, exit code unknown"
    return f"exit {session.exit_code}" if session.exit_code else "done"


def lost_why(session: Session) -> str:
    return clean_line(session.end_why or "host process died")


def foremost(session: Session) -> Request | None:
    """Return the open request to show first: one that is not snoozed, then the agent's, then the oldest."""
    return min(session.requests, key=lambda ask: (ask.later, ask.by_host), default=None)
