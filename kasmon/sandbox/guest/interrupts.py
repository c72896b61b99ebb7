"""Clients that wait for the result of an interrupt: each gets one answer, at the latest when its time is over."""

from collections.abc import Callable

from kasmon.sandbox.guest.event_loop import EventLoop, Timer

GRACE_S = 2.0
"""How long an interpreter may take to react to an interrupt."""

Answer = Callable[[dict[str, object]], None]


class InterruptAttempt:
    """The waiting clients of one interpreter."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._all: list[tuple[Timer, Answer]] = []

    def add(self, answer: Answer, still_runs: Callable[[], bool]) -> None:
        """Call *answer* with the result; with `no reaction` if *still_runs* returns True when the time is over."""
        self._all.append((self._loop.after(GRACE_S, lambda: self._report_no_reaction(still_runs)), answer))

    def _report_no_reaction(self, still_runs: Callable[[], bool]) -> None:
        if still_runs():
            self.tell("no reaction")

    def tell(self, state: str) -> None:
        """Answer all waiting clients with *state*."""
        everybody, self._all = self._all, []
        for timer, answer in everybody:
            self._loop.cancel(timer)
            answer({"state": state})
