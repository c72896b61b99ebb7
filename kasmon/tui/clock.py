"""The time as the screen sees it: injected, so that tests hold it still."""

import time
from typing import Protocol


class Clock(Protocol):
    """One source of time for ages, deaf periods and quiet spells."""

    def now(self) -> float:
        """Seconds since the epoch, for how long something has been so."""
        ...

    def ticking(self) -> float:
        """Seconds that only ever grow, for how long to wait."""
        ...


class RealClock:
    """The system's time; what is shown does not jump when somebody sets the system's clock while the screen is up."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        real = time.time() - time.monotonic()
        if abs(real - self._offset) > 5.0:
            self._offset = real
        return time.monotonic() + self._offset

    def ticking(self) -> float:
        return time.monotonic()
