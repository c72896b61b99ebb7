"""The age of events by a monotonic clock, independent of changes to the system clock."""

import time


class MonotonicAge:
    """Remembers for each named event when it happened by the monotonic clock."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, float]] = {}
        """For each event, its recorded time and its time by the monotonic clock."""

    def at(self, what: str, noted_at: float, now: float) -> float:
        """Return when *what*, recorded at *noted_at*, happened by the clock of *now*; all in epoch seconds."""
        if what not in self._since or self._since[what][0] != noted_at:
            self._since[what] = (noted_at, _steady() - max(now - noted_at, 0.0))
        return now - (_steady() - self._since[what][1])


def _steady() -> float:
    """Return the monotonic clock, which also counts while the machine sleeps, in seconds."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
