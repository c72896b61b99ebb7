"""When to read an agent's screen: after it printed, rarely if better sources decide, never while it is silent.

| | next reading |
|---|---|
| it printed, and was still for `SETTLE_S` | at once, `EVERY_S` after the last reading at the earliest |
| it keeps printing | `EVERY_S` after the first unread output |
| it keeps working, by two readings | as above, with `CALM_S` and `STEADY_S`: a spinner turns, nothing else is new |
| likewise, and a better source decides | `SELDOM_S` after the last reading |
| a better source reports a change | as if it did not decide: there may be a menu to read |
| silent, and its screen matched no rule | once more, `STILL_S` after it printed last: for the wordless rule |
| a hook reports a change | also `HOOK_LAG_S` after it |
| silent | never |

Pure: `now` is monotonic time in seconds.
"""

import math
from typing import Final

SETTLE_S: Final = 0.06
EVERY_S: Final = 0.4
CALM_S: Final = 0.2
"""Longer than the interval between a spinner's frames."""
STEADY_S: Final = 0.6
SELDOM_S: Final = 2.0
STILL_S: Final = 3.0


class ScreenSchedule:
    """The readings of one screen. Call `record_reading` after each one; check `next_at` after every call."""

    def __init__(self) -> None:
        self.is_decided = False
        """Whether a source better than the screen decides the agent's state."""
        self.is_steady = False
        """Whether the last readings both showed that it works."""
        self.is_wordless = False
        """Whether no rule exists for this program: only a screen that does not change is read."""
        self._unseen_at = math.inf
        """When it first printed after the last reading."""
        self._printed_at = -math.inf
        self._looked_at = -math.inf
        self._is_urgent = False
        self._wants_still = False
        self._is_off = False
        self._again_at = math.inf

    def record_output(self, now: float) -> None:
        self._unseen_at = min(self._unseen_at, now)
        self._printed_at = now

    def request_reading(self, now: float) -> None:
        """Schedule a reading soon, printed or not: a better source reports a change, or a caller needs it."""
        self._is_urgent = True
        self._unseen_at = min(self._unseen_at, now)

    def schedule_again(self, at: float) -> None:
        """Schedule a reading *at* that time, in place of an earlier such time: it may settle a contradiction."""
        self._again_at = at

    def handle_flood(self, is_off: bool, now: float) -> None:
        """Record that its output is paused (*is_off*) or resumed; while it is paused, read the screen now and then."""
        self._is_off = is_off
        self.record_output(now)

    def record_reading(self, now: float) -> None:
        """Record a reading that includes nothing printed from *now* on."""
        self._looked_at, self._is_urgent, self._wants_still = now, False, False
        self._unseen_at = now if self._is_off else math.inf
        if self._again_at <= now:
            self._again_at = math.inf

    def request_still_reading(self) -> None:
        """Record that no rule matched the last reading: read once more when the screen was unchanged for long."""
        self._wants_still = True

    @property
    def is_still(self) -> bool:
        """Whether the due reading is the one of a screen that did not change for `STILL_S`."""
        return self._wants_still and self._unseen_at == math.inf

    def next_at(self) -> float:
        """Return when to read next; infinity if only after an event."""
        return min(self._again_at, self._next_at())

    def _next_at(self) -> float:
        if self.is_wordless and self._unseen_at < math.inf:
            return max(self._printed_at, self._unseen_at) + STILL_S if not self._is_off else math.inf
        if self._unseen_at == math.inf:
            return max(self._printed_at, self._looked_at - STILL_S) + STILL_S if self._wants_still else math.inf
        if self._is_off or (self.is_decided and not self._is_urgent):
            return max(self._looked_at + SELDOM_S, self._printed_at + SETTLE_S)
        is_calm = self.is_steady and not self._is_urgent
        settle_s, every_s = (CALM_S, STEADY_S) if is_calm else (SETTLE_S, EVERY_S)
        settled_at = min(max(self._printed_at, self._unseen_at) + settle_s, self._unseen_at + every_s)
        return max(settled_at, self._looked_at + EVERY_S)
