"""How far another machine's clock is ahead of this one, measured by the times that it sends. Pure."""

import math
from collections import deque
from typing import Final

STEP_S: Final = 0.5
"""Smaller changes are not reported: the time that an update takes to arrive varies."""
MOST_S: Final = 366 * 86400.0
"""A machine is not believed that its clock is wrong by more."""
SAMPLES: Final = 5
"""Of so many latest updates, the one that took the shortest time counts."""
APART_S: Final = 0.5
"""Updates that are received in a shorter time count as one of them."""


class ClockOffset:
    """Measures one machine; times are seconds since the epoch."""

    def __init__(self) -> None:
        self.value_s = 0.0
        """How far the clock there is ahead; 0 if it is not known."""
        self._latency_s = 0.0
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._sampled_at = -math.inf
        """When the last of them was received."""

    def begin(self, asked_at: float, there_at: float, received_at: float) -> None:
        """Note that an answer to a request made at *asked_at* was received at *received_at*, sent at *there_at* there.

        The clock there was at *there_at* in the middle of both times. 0: the answer does not say when it was sent.
        """
        self._latency_s = max(0.0, received_at - asked_at) / 2 if there_at > 0 else 0.0
        self._samples.clear()
        self._sampled_at = -math.inf
        if _is_time(there_at):
            self._samples.extend([there_at - received_at + self._latency_s] * SAMPLES)
            self._measure()

    def add(self, there_at: float, received_at: float) -> None:
        """Note an update that was sent at *there_at* there (0: it does not say when) and received at *received_at*."""
        if not _is_time(there_at):
            return
        sample = there_at - received_at + self._latency_s
        if received_at < self._sampled_at + APART_S and self._samples:  # they come in bursts after a cut
            self._samples[-1] = max(sample, self._samples[-1])
        else:
            self._samples.append(sample)
            self._sampled_at = received_at
        self._measure()

    def _measure(self) -> None:
        newest = min(max(max(self._samples), -MOST_S), MOST_S)
        if newest < self.value_s and len(self._samples) < SAMPLES:
            return  # these updates may only be late
        if abs(newest - self.value_s) >= STEP_S:
            self.value_s = newest


def _is_time(at: float) -> bool:
    return math.isfinite(at) and at > 0
