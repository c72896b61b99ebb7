"""What codex has used and what it may use: tokens of all its threads, and the limits of its account."""

from typing import Final

from kasmon.backends.codex.shape import Table, at, number, table, text
from kasmon.model.event import LimitLifted, LimitReached, UsageReported

LIMITS: Final = frozenset({"usageLimitExceeded", "rateLimitExceeded"})
"""Codex's words for a turn that failed because its provider wants it to wait."""
TOO_MANY: Final = 429
"""The HTTP status that says so."""


class Meter:
    """The figures of one session. `main` is the thread that a person talks to; the others are its sub-agents'."""

    def __init__(self, main: str) -> None:
        self.is_limited = False
        self._main = main
        self._threads: dict[str, Table] = {}
        self._told: tuple[int, ...] = ()
        self._windows: dict[str, Table] = {}

    def used(self, params: Table, now: float) -> UsageReported | None:
        """The session's totals after thread/tokenUsage/updated; None if they are as before."""
        self._threads[text(params, "threadId")] = table(params, "tokenUsage")
        main = self._threads.get(self._main, {})
        figures = (
            sum(number(usage, "total", "inputTokens") or 0 for usage in self._threads.values()),
            sum(number(usage, "total", "outputTokens") or 0 for usage in self._threads.values()),
            number(main, "last", "totalTokens") or 0,
            number(main, "modelContextWindow") or 0,
        )
        if figures == self._told:
            return None
        self._told = figures
        read, written, context, limit = figures
        return UsageReported(at=now, input=read, output=written, context=context, limit=limit)

    def limits(self, params: Table, now: float) -> LimitReached | LimitLifted | None:
        """What account/rateLimits/updated says; what it leaves out is as before."""
        snapshot = table(params, "rateLimits")
        for window in ("primary", "secondary"):
            if table(snapshot, window):
                self._windows[window] = table(snapshot, window)
        if reached := text(snapshot, "rateLimitReachedType"):
            return self.reached(f"Codex: {reached.replace('_', ' ')}.", now)
        fresh = any(table(snapshot, window) for window in ("primary", "secondary"))
        return self.lifted(now) if fresh and not self._full() else None

    def failed(self, error: Table, now: float) -> LimitReached | None:
        """The limit that a failed turn ran into; None if it failed otherwise, or that is known already."""
        return self.reached(text(error, "message"), now) if is_limit(error) else None

    def reached(self, why: str, now: float) -> LimitReached | None:
        if self.is_limited:
            return None
        self.is_limited = True
        ends = [number(window, "resetsAt") for window in self._full()]
        until = max((float(end) for end in ends if end), default=None)
        return LimitReached(at=now, until=until if until is not None and until > now else None, text=why)

    def lifted(self, now: float) -> LimitLifted | None:
        """The end of a limit; None if there was none."""
        was_limited, self.is_limited = self.is_limited, False
        return LimitLifted(at=now) if was_limited else None

    def _full(self) -> list[Table]:
        """The windows of the account's limits that are used up."""
        return [window for window in self._windows.values() if (number(window, "usedPercent") or 0) >= 100]


def is_limit(error: Table) -> bool:
    """Whether a turn's *error* is its provider's limit."""
    info = at(error, "codexErrorInfo")
    if isinstance(info, str):
        return info in LIMITS
    return any(number(detail, "httpStatusCode") == TOO_MANY for detail in table(error, "codexErrorInfo").values())
