"""The time source of the dashboard, injected so that tests can control it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time for ages, delays and quiet periods."""

    def now(self) -> float:
        """Seconds since the epoch, for showing how long a state has lasted."""

    def ticking(self) -> float:
        """Monotonic seconds, for how long to wait."""


class RealClock:
    """The system's time; shown ages do not jump by small adjustments of the system clock while the dashboard runs."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        real = time.time() - time.monotonic()
        if abs(real - self._offset) > 5.0:
            self._offset = real
        return time.monotonic() + self._offset

    def ticking(self) -> float:
        return time.monotonic()
