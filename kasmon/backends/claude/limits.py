"""Rate and usage limits: reached, near, lifted; and retried requests to the provider."""

from typing import Final

from kasmon.backends.common.json_access import Table, amount, count, table, text
from kasmon.model.events import Event, LimitLifted, LimitReached, NoticeRaised

NAMES: Final = {
    "five_hour": "five-hour limit",
    "seven_day": "weekly limit",
    "seven_day_opus": "weekly limit of Opus",
    "seven_day_sonnet": "weekly limit of Sonnet",
    "overage": "limit of extra usage",
}


class LimitTracker:
    """Whether the agent waits for its provider, and until when."""

    def __init__(self) -> None:
        self.is_reached = False
        self.until: float | None = None
        """When the provider lifts it, in seconds since the epoch; None if unknown."""
        self._warned = ""

    def apply_event(self, info: Table, at: float) -> tuple[Event, ...]:
        """Apply a `rate_limit_event`."""
        name = NAMES.get(text(info, "rateLimitType"), "usage limit")
        status = text(info, "status")
        if status == "rejected" and info.get("isUsingOverage") is not True:
            return self._reach(amount(info, "resetsAt"), f"The {name} is reached.", at)
        lifted = self.end(at)
        used = amount(info, "utilization")
        warning = f"{used:.0%} of the {name} is used." if used is not None else f"Approaching the {name}."
        if status != "allowed_warning" or name == self._warned:
            return lifted
        self._warned = name
        return (*lifted, NoticeRaised(at=at, text=warning, level="warning"))

    def record_refusal(self, message: Table, said: str, at: float) -> tuple[Event, ...]:
        """Record that the provider refused a request because of a limit; *said* is the agent's message."""
        info = table(table(message, "api_error_params"), "rate_limit_info")
        return () if self.is_reached else self._reach(amount(info, "resetsAt"), said, at)

    def end(self, at: float) -> tuple[Event, ...]:
        if not self.is_reached:
            return ()
        self.is_reached, self.until = False, None
        return (LimitLifted(at=at),)

    def end_if_passed(self, at: float) -> tuple[Event, ...]:
        return self.end(at) if self.until is not None and self.until <= at else ()

    def _reach(self, until: float | None, said: str, at: float) -> tuple[Event, ...]:
        self.is_reached, self.until = True, until
        return (LimitReached(at=at, until=until, text=said),)


def retried(message: Table, at: float) -> NoticeRaised:
    """Return the notice for an `api_retry`: the agent retries by itself and continues."""
    status = count(message, "error_status")
    what = " ".join(text(message, "error").split("_")) if text(message, "error") != "unknown" else ""
    how = " ".join(word for word in (str(status) if status else "", f"({what})" if what else "") if word)
    answer = f"The provider returned {how}" if how else "The provider did not respond"
    delay_s = count(message, "retry_delay_ms") / 1000
    tries = f"{count(message, 'attempt')} of {count(message, 'max_retries')}"
    return NoticeRaised(at=at, text=f"{answer}; trying again in {delay_s:.1f} s, {tries}.", level="warning")
