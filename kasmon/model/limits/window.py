"""One limit of an account, as an agent reported it, and what follows from that at a later time."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

HOUR_S: Final = 3600.0
LENGTHS_S: Final = {"five_hour": 5 * HOUR_S, "weekly": 168 * HOUR_S}
"""How long windows last, in seconds, by their names; one of a model, as `weekly_opus`, as long as `weekly`."""
LEAST_SHARE: Final = 0.1
"""A forecast needs a window of which this share of the time has passed; before that it would be a guess."""
LEAST_USED: Final = 0.05


class LimitWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One of the limits of an account, as its agent reported it."""

    name: str
    """`five_hour`, `weekly`, `weekly_MODEL`, `extra`; another one as the agent names it."""
    used: float | None = None
    """The used share, 1.0 for all of it; None if it was not reported."""
    resets_at: float | None = None
    """When its use begins at 0 again, in seconds since the epoch; None if it was not reported."""
    is_reached: bool = False
    """Whether the agent reported that it is used up."""
    at: float = 0.0
    """When this was reported, in seconds since the epoch."""

    def current(self, now: float) -> "LimitWindow":
        """Return what is known of it at *now*: after its reset nothing is known but its name."""
        if self.resets_at is None or self.resets_at > now:
            return self
        return LimitWindow(name=self.name, at=self.at)


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a limit would be reached, and what that is computed from."""

    full_at: float
    basis: str


def merge_windows(before: Sequence[LimitWindow], reported: Iterable[LimitWindow]) -> tuple[LimitWindow, ...]:
    """Return *before* with the *reported* windows; of two with one name the later report counts."""
    merged = {window.name: window for window in before}
    for window in reported:
        if (earlier := merged.get(window.name)) is None or earlier.at <= window.at:
            merged[window.name] = window
    return tuple(merged.values())


def length_s(name: str) -> float | None:
    """Return how long the window *name* lasts, in seconds; None if that is unknown."""
    return next(
        (length for window, length in LENGTHS_S.items() if name == window or name.startswith(f"{window}_")), None
    )


def forecast(window: LimitWindow) -> Forecast | None:
    """Return when *window* would be used up if its use continues as on average since it began.

    None if it would not be before its reset, or its report does not allow a forecast.
    """
    length = length_s(window.name)
    if length is None or window.resets_at is None or window.used is None or not LEAST_USED <= window.used < 1:
        return None
    passed_s = window.at - (window.resets_at - length)
    if not LEAST_SHARE * length <= passed_s <= length:
        return None
    full_at = window.at + passed_s * (1 - window.used) / window.used
    if full_at >= window.resets_at:
        return None
    hours = f"{passed_s / HOUR_S:.1f}".removesuffix(".0")
    return Forecast(full_at=full_at, basis=f"{window.used:.0%} in the first {hours} h of this window")
