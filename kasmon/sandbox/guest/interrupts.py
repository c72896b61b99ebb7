"""Those who asked for an interrupt: each hears once what came of it, or that nothing did within its time."""

from collections.abc import Callable

from kasmon.sandbox.guest.event_loop import EventLoop, Timer

GRACE_S = 2.0
"""How long an interpreter may take to react to an interrupt."""

Answer = Callable[[dict[str, object]], None]


class InterruptAttempt:
    """They ask for one interpreter."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._all: list[tuple[Timer, Answer]] = []

    def add(self, answer: Answer, still_runs: Callable[[], bool]) -> None:
        """Call *answer* with what came of it; with `no reaction` where what they mean *still_runs* at the end."""
        self._all.append((self._loop.after(GRACE_S, lambda: self._over(still_runs)), answer))

    def _over(self, still_runs: Callable[[], bool]) -> None:
        if still_runs():
            self.tell("no reaction")

    def tell(self, state: str) -> None:
        """That is what came of it."""
        everybody, self._all = self._all, []
        for timer, answer in everybody:
            self._loop.cancel(timer)
            answer({"state": state})
