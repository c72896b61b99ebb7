"""When something happened, however the clock on the wall was set since it was noted."""

import time


class MonotonicAge:
    """Keeps, of each thing that it is asked for, when that was by a clock that nobody sets."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, float]] = {}
        """What happened when: by the facts, and by the clock that nobody sets."""

    def at(self, what: str, noted_at: float, now: float) -> float:
        """When *what*, noted at *noted_at*, happened by the clock of *now*; all in seconds since the epoch."""
        if what not in self._since or self._since[what][0] != noted_at:
            self._since[what] = (noted_at, _steady() - max(now - noted_at, 0.0))
        return now - (_steady() - self._since[what][1])


def _steady() -> float:
    """A clock that nobody sets, which goes on while the machine sleeps, in seconds."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
