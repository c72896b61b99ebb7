"""When to look at an agent's screen: after it printed, seldom where others know better, never while it is silent.

| | next look |
|---|---|
| it printed, and was still for `SETTLE_S` | at once, `EVERY_S` after the last look at the earliest |
| it goes on printing | `EVERY_S` after the first that was not seen |
| it works on, as two looks said | as above, with `CALM_S` and `STEADY_S`: a spinner turns, nothing else is new |
| likewise, and a better source decides | `SELDOM_S` after the last look |
| a better source has changed its word | as if it did not decide: there may be a menu to read |
| silent, and its screen said nothing | once more, `STILL_S` after it printed last: for the rule without words |
| a hook says something else | also `HOOK_LAG_S` after it |
| silent | never |

Pure: `now` is monotonic time in seconds.
"""

import math
from typing import Final

SETTLE_S: Final = 0.06
EVERY_S: Final = 0.4
CALM_S: Final = 0.2
"""Longer than the frames of a spinner are apart."""
STEADY_S: Final = 0.6
SELDOM_S: Final = 2.0
STILL_S: Final = 3.0


class ScreenSchedule:
    """The looks at one screen. Call `looked` when one was taken; ask `next_at` after every call."""

    def __init__(self) -> None:
        self.is_decided = False
        """A better source than the screen says what the agent does."""
        self.is_steady = False
        """The last looks said the same: that it works."""
        self.is_wordless = False
        """No rule is for this program: only a screen that stands still is looked at."""
        self._unseen_at = math.inf
        """When it printed first after the last look."""
        self._printed_at = -math.inf
        self._looked_at = -math.inf
        self._is_urgent = False
        self._wants_still = False
        self._is_off = False
        self._again_at = math.inf

    def printed(self, now: float) -> None:
        """The pane printed something."""
        self._unseen_at = min(self._unseen_at, now)
        self._printed_at = now

    def news(self, now: float) -> None:
        """A better source says something else, or somebody wants to know: look soon, whether it printed or not."""
        self._is_urgent = True
        self._unseen_at = min(self._unseen_at, now)

    def again(self, at: float) -> None:
        """Look at *at*, whatever happens, and not when that was said before: it may settle a contradiction."""
        self._again_at = at

    def flooded(self, is_off: bool, now: float) -> None:
        """Its output is not heard while *is_off*: look now and then all the same."""
        self._is_off = is_off
        self.printed(now)

    def looked(self, now: float) -> None:
        """A look was taken; what is printed from *now* on is not on it."""
        self._looked_at, self._is_urgent, self._wants_still = now, False, False
        self._unseen_at = now if self._is_off else math.inf
        if self._again_at <= now:
            self._again_at = math.inf

    def nothing_known(self) -> None:
        """The last look was at a screen that no rule knows: look once more when it has stood still for long."""
        self._wants_still = True

    @property
    def is_still(self) -> bool:
        """Whether the look that is due is the one at a screen that did not change for `STILL_S`."""
        return self._wants_still and self._unseen_at == math.inf

    def next_at(self) -> float:
        """When to look next; infinity: only if something happens."""
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
