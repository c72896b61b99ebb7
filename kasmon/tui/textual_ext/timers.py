"""Timers that also run late."""

from collections.abc import Callable
from typing import Protocol

from textual.timer import Timer


class TimerOwner(Protocol):
    """A widget or an app."""

    def set_timer(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


def start_timer(owner: TimerOwner, wait_s: float, callback: Callable[[], object]) -> Timer:
    """Call *callback* once, *wait_s* seconds from now or later.

    Textual never calls it if the process does not run for *wait_s* while the timer begins, as on a busy machine.
    """
    timer = owner.set_timer(wait_s, callback)
    timer._skip = False
    return timer
