"""What codex has used and what it may use: tokens of all its threads, and the limits of its account."""

from typing import Final

from kasmon.backends.common.json_access import Table, at, number, table, text
from kasmon.model.commands import ConversationUsage
from kasmon.model.events import LimitLifted, LimitReached, UsageReported

NOTHING: Final = ConversationUsage()
LIMITS: Final = frozenset({"usageLimitExceeded", "rateLimitExceeded"})
"""Codex's words for a turn that failed because its provider wants it to wait."""
TOO_MANY: Final = 429
"""The HTTP status that says so."""


class CodexUsage:
    """The figures of one session: of the thread that a person talks to, and of its sub-agents'."""

    def __init__(self, used: ConversationUsage = NOTHING) -> None:
        """*used*: by the session before; codex itself begins each thread of before with its own old total."""
        self.is_limited = False
        self.main = ""
        """The thread that a person talks to; empty until it is known."""
        self._before = (used.input, used.output)
        self._threads: dict[str, Table] = {}
        self._began: dict[str, tuple[int, int]] = {}
        """What each thread had used before, by codex's own count: what came in, and what out."""
        self._told: tuple[int, ...] = ()
        self._windows: dict[str, Table] = {}

    def used(self, params: Table, now: float, *, in_turn: bool) -> UsageReported | None:
        """The session's totals after thread/tokenUsage/updated; None if they are as before.

        *in_turn*: a turn of its thread runs. Where none does, codex repeats what it knows of before.
        """
        thread, usage = text(params, "threadId"), table(params, "tokenUsage")
        self._threads[thread] = usage
        total, last = _counted(usage, "total"), _counted(usage, "last") if in_turn else (0, 0)
        self._began.setdefault(thread, (total[0] - last[0], total[1] - last[1]))
        main = self._threads.get(self.main, {})
        read, written = (self._since_ever(which, before) for which, before in enumerate(self._before))
        figures = (read, written, number(main, "last", "totalTokens") or 0, number(main, "modelContextWindow") or 0)
        if figures == self._told:
            return None
        self._told = figures
        return UsageReported(at=now, input=read, output=written, context=figures[2], limit=figures[3])

    def _since_ever(self, which: int, before: int) -> int:
        """What came in (0) or went out (1), where the session's log has *before*."""
        known = sum(began[which] for began in self._began.values())
        since = sum(_counted(usage, "total")[which] - self._began[name][which] for name, usage in self._threads.items())
        return max(before, known) + since

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
        """The beginning of a limit, *why* in its words; None while one lasts. It ends with the last full window."""
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


def _counted(usage: Table, which: str) -> tuple[int, int]:
    """What came in and what went out, of the figures called *which*."""
    return number(usage, which, "inputTokens") or 0, number(usage, which, "outputTokens") or 0


def is_limit(error: Table) -> bool:
    """Whether a turn's *error* is its provider's limit."""
    info = at(error, "codexErrorInfo")
    if isinstance(info, str):
        return info in LIMITS
    return any(number(detail, "httpStatusCode") == TOO_MANY for detail in table(error, "codexErrorInfo").values())
