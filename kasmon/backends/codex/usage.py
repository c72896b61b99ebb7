"""Codex's token usage in all its threads, and the limits of its account."""

from typing import Final

from kasmon.backends.codex.notices import is_caused_by
from kasmon.backends.common.json_access import Table, count, number, table, text
from kasmon.backends.common.limit_windows import LimitReports, codex_windows
from kasmon.model.commands import ContextPart, ConversationUsage
from kasmon.model.events import LimitLifted, LimitReached, LimitsReported, UsageReported

LIMITS: Final = frozenset({"usageLimitExceeded", "rateLimitExceeded"})
"""Codex's error codes for a turn that failed because of a provider's limit."""
TOO_MANY: Final = 429
"""The HTTP status for such a limit."""


class CodexUsage:
    """The figures of one session: of its main thread, and of its sub-agents'."""

    def __init__(self, used: ConversationUsage) -> None:
        """*used*: by the session before; codex itself begins each resumed thread with its old total."""
        self.is_limited = False
        self.main = ""
        """The thread that the user talks to; empty until it is known."""
        self._before = (used.input, used.output)
        self._threads: dict[str, Table] = {}
        self._began: dict[str, tuple[int, int]] = {}
        """The earlier input and output of each thread, by codex's own count."""
        self._reported: tuple[int, ...] = ()
        self._windows: dict[str, Table] = {}
        self._reports = LimitReports()

    def record_usage(self, params: Table, now: float, *, in_turn: bool) -> UsageReported | None:
        """Return the session's totals after thread/tokenUsage/updated; None if they are unchanged.

        *in_turn*: a turn of its thread runs. Otherwise codex repeats its earlier figures.
        """
        thread, usage = text(params, "threadId"), table(params, "tokenUsage")
        self._threads[thread] = usage
        total, last = _read_counts(usage, "total"), _read_counts(usage, "last") if in_turn else (0, 0)
        self._began.setdefault(thread, (total[0] - last[0], total[1] - last[1]))
        main = self._threads.get(self.main, {})
        read, written = (self._since_ever(which, before) for which, before in enumerate(self._before))
        figures = (read, written, count(main, "last", "totalTokens"), count(main, "modelContextWindow"))
        if figures == self._reported:
            return None
        self._reported = figures
        return UsageReported(
            at=now, input=read, output=written, context=figures[2], limit=figures[3], filled_by=_filled_by(main)
        )

    def _since_ever(self, which: int, before: int) -> int:
        """Return the session's total input (0) or output (1), if its log has *before*."""
        known = sum(began[which] for began in self._began.values())
        since = sum(
            _read_counts(usage, "total")[which] - self._began[name][which] for name, usage in self._threads.items()
        )
        return max(before, known) + since

    def limits(self, params: Table, now: float) -> list[LimitsReported | LimitReached | LimitLifted]:
        """Apply account/rateLimits/updated; fields that it leaves out are unchanged."""
        snapshot = table(params, "rateLimits")
        change = self._apply_limits(snapshot, now)
        return [*self._reports.update(codex_windows(snapshot), now), *([change] if change else [])]

    def _apply_limits(self, snapshot: Table, now: float) -> LimitReached | LimitLifted | None:
        fresh = {name: window for name in ("primary", "secondary") if (window := table(snapshot, name))}
        self._windows |= fresh
        if reached := text(snapshot, "rateLimitReachedType"):
            return self.begin_limit(f"Codex: {reached.replace('_', ' ')}.", now)
        return self.end_limit(now) if fresh and not self._full() else None

    def record_failure(self, error: Table, now: float) -> LimitReached | None:
        """Return the limit that a failed turn reached; None for another failure or a known limit."""
        return self.begin_limit(text(error, "message"), now) if is_limit(error) else None

    def begin_limit(self, why: str, now: float) -> LimitReached | None:
        """Return the beginning of a limit with the text *why*; None while one lasts. It ends with the last full one."""
        if self.is_limited:
            return None
        self.is_limited = True
        ends = [number(window, "resetsAt") for window in self._full()]
        until = max((float(end) for end in ends if end), default=None)
        return LimitReached(at=now, until=until if until is not None and until > now else None, text=why)

    def end_limit(self, now: float) -> LimitLifted | None:
        """Return the end of a limit; None if there was none."""
        was_limited, self.is_limited = self.is_limited, False
        return LimitLifted(at=now) if was_limited else None

    def _full(self) -> list[Table]:
        """Return the windows of the account's limits that are used up."""
        return [window for window in self._windows.values() if count(window, "usedPercent") >= 100]


def _filled_by(usage: Table) -> tuple[ContextPart, ...]:
    """Return what fills the context after the last request, as far as codex says it."""
    cached, read = count(usage, "last", "cachedInputTokens"), count(usage, "last", "inputTokens")
    parts = {"cached input": cached, "new input": read - cached, "output": count(usage, "last", "outputTokens")}
    found = [ContextPart(name=name, tokens=tokens) for name, tokens in parts.items() if tokens > 0]
    return tuple(sorted(found, key=lambda part: -part.tokens))


def _read_counts(usage: Table, which: str) -> tuple[int, int]:
    """Return the input and output in the figures called *which*."""
    return count(usage, which, "inputTokens"), count(usage, which, "outputTokens")


def is_limit(error: Table) -> bool:
    """Whether a turn's *error* is its provider's limit."""
    return is_caused_by(error, LIMITS, TOO_MANY)
