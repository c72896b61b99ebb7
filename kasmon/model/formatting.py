"""Short text for people: the glyphs of session states, counts, durations and clock times."""

from datetime import datetime, tzinfo
from typing import Final

GLYPHS: Final = {
    "starting": ("◌", "."),
    "idle": ("○", "o"),
    "working": ("●", "*"),
    "asking": ("◆", "!"),
    "finished": ("✦", "F"),
    "limited": ("◔", "L"),
    "paused": ("▯", "="),
    "standby": ("◐", "z"),
    "unsure": ("?", "?"),
    "lost": ("◇", "#"),
    "ended": ("✓", "+"),
    "crashed": ("✕", "x"),
}
"""State -> its glyph, and its glyph where the output is not UTF-8."""


def compact(count: int) -> str:
    """Return a count in at most six characters: 950, 5.2k, 3.1M."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


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
