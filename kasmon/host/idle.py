"""Whether a host has been idle for so long that it can go. Pure: whoever asks says what time it is."""

from typing import Final

IDLE_S: Final = 60.0
"""How long a host that nobody needs waits for somebody who does, in seconds."""
LOOKS: Final = 4
"""How often it looks within that time."""


class Idleness:
    """Since when nobody has needed a host."""

    def __init__(self, limit_s: float, now: float) -> None:
        self._limit_s = limit_s
        self._since = now

    def used(self, now: float) -> None:
        """Somebody needed it until *now*."""
        self._since = now

    def is_over(self, is_needed: bool, now: float) -> bool:
        """Whether nobody has needed it for the limit, and nobody does now."""
        if is_needed:
            self.used(now)
        return now - self._since >= self._limit_s and not is_needed
