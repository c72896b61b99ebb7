"""Reports of an agent on its account's limits: each is logged once, until a figure changes."""

import math
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kasmon.backends.common.json_access import Table, amount, number, table, text
from kasmon.model.events import LimitsReported
from kasmon.model.limits.window import LimitWindow
from kasmon.sanitize import clean_line

MOST: Final = 16
"""How many limits of one agent are logged; no agent has that many."""
NAME_LENGTH: Final = 40
CODEX_NAMES: Final = {300: "five_hour", 10080: "weekly"}
"""The names of codex's windows by their length in minutes."""
CODEX_OWN: Final = "codex"
"""Codex's id of the limits that hold for all its models."""
LATEST_AT: Final = 1e11
"""A reset after this time, in seconds since the epoch, is no time."""


class LimitReports:
    """The latest windows that one agent reported."""

    def __init__(self) -> None:
        self._windows: dict[str, LimitWindow] = {}

    def update(self, windows: Iterable[LimitWindow], at: float) -> Iterator[LimitsReported]:
        """Yield the event with those of *windows* that are new or changed; nothing if none is."""
        changed = []
        for window in windows:
            if window.name in self._windows and _figures(self._windows[window.name]) == _figures(window):
                continue
            if window.name in self._windows or len(self._windows) < MOST:
                self._windows[window.name] = window
                changed.append(msgspec.structs.replace(window, at=at))
        if changed:
            yield LimitsReported(at=at, windows=tuple(changed))


def build_window(name: str, used: float | None, resets_at: float | None, *, is_reached: bool = False) -> LimitWindow:
    """Return the window with these reported values; a value that is no share, or no time, is unknown."""
    if used is not None and not (math.isfinite(used) and used >= 0):
        used = None
    if resets_at is not None and not 0 < resets_at < LATEST_AT:
        resets_at = None
    return LimitWindow(
        name=clean_line(name)[:NAME_LENGTH] or "usage",
        used=None if used is None else min(round(used, 4), 1.0),
        resets_at=resets_at,
        is_reached=is_reached or (used is not None and used >= 1),
    )


def codex_windows(snapshot: Table) -> Iterator[LimitWindow]:
    """Yield the limits in codex's rate limit *snapshot*: of its app server, or of a rollout file with other names."""
    limited = text(snapshot, "limitId") or text(snapshot, "limit_id")
    for place in ("primary", "secondary"):
        window = table(snapshot, place)
        used = amount(window, "usedPercent") if "usedPercent" in window else amount(window, "used_percent")
        if used is None:
            continue
        minutes = number(window, "windowDurationMins") or number(window, "window_minutes") or 0
        name = CODEX_NAMES.get(minutes, f"{minutes} min" if minutes else place)
        resets_at = amount(window, "resetsAt") or amount(window, "resets_at")
        yield build_window(name if limited in ("", CODEX_OWN) else f"{name}_{limited}", used / 100, resets_at)


def _figures(window: LimitWindow) -> tuple[float | None, float | None, bool]:
    return window.used, window.resets_at, window.is_reached
