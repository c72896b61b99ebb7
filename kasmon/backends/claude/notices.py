"""Side messages of the agent: limits, retries, sub-agents, background tasks, its own refusals, model changes."""

from typing import Final, Literal

import msgspec

from kasmon.backends.common.json_access import Table, amount, count, table, text
from kasmon.backends.common.limit_windows import LimitReports, build_window
from kasmon.model.events import Event, LimitLifted, LimitReached, MessageWritten, NoticeRaised, SubtaskChanged
from kasmon.model.formatting import compact
from kasmon.model.limits.window import LimitWindow

NoticeLevel = Literal["info", "warning", "error"]

LOUD: Final = frozenset({"high", "immediate"})
"""Priorities at which a `notification` is shown."""
INFORMED: Final[dict[str, NoticeLevel]] = {"notice": "info", "suggestion": "info", "warning": "warning"}
"""Levels at which an `informational` message is shown, and the notice's level."""
NO_LOGIN: Final = "authentication_failed"
LOG_IN: Final = "Log in by /login in `claude` on a terminal, or give the session ANTHROPIC_API_KEY by --env."


NAMES: Final = {
    "five_hour": "five-hour limit",
    "seven_day": "weekly limit",
    "seven_day_opus": "weekly limit of Opus",
    "seven_day_sonnet": "weekly limit of Sonnet",
    "overage": "limit of extra usage",
}


class LimitTracker:
    """Whether the agent waits for its provider."""

    def __init__(self) -> None:
        self.is_reached = False
        self._warned = ""
        self._reports = LimitReports()

    def apply_event(self, info: Table, at: float) -> tuple[Event, ...]:
        return (*self._reports.update(_windows(info), at), *self._apply_status(info, at))

    def _apply_status(self, info: Table, at: float) -> tuple[Event, ...]:
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

    def record_refusal(self, message: Table, refusal: str, at: float) -> tuple[Event, ...]:
        """Record that the provider refused a request because of a limit; *refusal* is the agent's message."""
        info = table(table(message, "api_error_params"), "rate_limit_info")
        return () if self.is_reached else self._reach(amount(info, "resetsAt"), refusal, at)

    def end(self, at: float) -> tuple[Event, ...]:
        if not self.is_reached:
            return ()
        self.is_reached = False
        return (LimitLifted(at=at),)

    def _reach(self, until: float | None, refusal: str, at: float) -> tuple[Event, ...]:
        self.is_reached = True
        return (LimitReached(at=at, until=until, text=refusal),)


def _windows(info: Table) -> list[LimitWindow]:
    """Return the limits in a `rate_limit_event`: the one that it is about, and all that it lists."""
    windows = {
        kind: build_window(_window_name(kind), amount(listed, "utilization"), amount(listed, "resetsAt"))
        for kind, listed in table(info, "unifiedWindows").items()
    }
    if kind := text(info, "rateLimitType"):
        about = table(info, "unifiedWindows", kind)
        used = amount(info, "utilization")
        windows[kind] = build_window(
            _window_name(kind),
            amount(about, "utilization") if used is None else used,
            amount(info, "resetsAt"),
            is_reached=text(info, "status") == "rejected",
        )
    return list(windows.values())


def _window_name(kind: str) -> str:
    if kind == "overage":
        return "extra"
    return f"weekly{kind.removeprefix('seven_day')}" if kind.startswith("seven_day") else kind


def retried(message: Table, at: float) -> NoticeRaised:
    """Return the notice for an `api_retry`: the agent retries by itself and continues."""
    status = count(message, "error_status")
    what = " ".join(text(message, "error").split("_")) if text(message, "error") != "unknown" else ""
    how = " ".join(word for word in (str(status) if status else "", f"({what})" if what else "") if word)
    answer = f"The provider returned {how}" if how else "The provider did not respond"
    delay_s = count(message, "retry_delay_ms") / 1000
    tries = f"{count(message, 'attempt')} of {count(message, 'max_retries')}"
    return NoticeRaised(at=at, text=f"{answer}; trying again in {delay_s:.1f} s, {tries}.", level="warning")


class ClaudeNotices:
    """Turns messages into notices; remembers the descriptions of background tasks."""

    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}

    def apply_system(self, message: Table, at: float) -> NoticeRaised | MessageWritten | None:
        """Return the notice in a `system` message; None if it holds none."""
        subtype = text(message, "subtype")
        if subtype == "task_started":
            self._tasks[text(message, "task_id")] = text(message, "description")
            return None
        if subtype == "local_command_output":
            return MessageWritten(at=at, text=text(message, "content"))
        notice = self._notice_of(subtype, message)
        return NoticeRaised(at=at, text=notice[0], level=notice[1]) if notice and notice[0].strip() else None

    def _notice_of(self, subtype: str, message: Table) -> tuple[str, NoticeLevel] | None:
        match subtype:
            case "task_notification":
                status = text(message, "status") or "over"
                about = self._tasks.pop(text(message, "task_id"), "") or text(message, "summary") or "a task"
                return f"In the background: {about}: {status}.", "warning" if status == "failed" else "info"
            case "permission_denied":
                why = text(message, "decision_reason") or text(message, "message")
                return f"claude itself refused {text(message, 'tool_name')}: {why}", "warning"
            case "informational" if (level := INFORMED.get(text(message, "level"))) is not None:
                return text(message, "content"), level
            case "notification" if text(message, "priority") in LOUD:
                return text(message, "text"), "info"
            case "model_fallback" | "model_refusal_fallback" | "model_refusal_no_fallback" | "model_consent_fallback":
                return text(message, "content") or "claude switched to another model.", "warning"
            case "compact_boundary":
                sizes = table(message, "compact_metadata")
                before, after = (compact(count(sizes, name)) for name in ("pre_tokens", "post_tokens"))
                return f"The conversation was compacted: {before} → {after} tokens.", "info"
            case "status" if message.get("compact_result") == "failed":
                return f"The conversation could not be compacted. {text(message, 'compact_error')}".strip(), "warning"
            case "worker_shutting_down":
                return f"claude shuts down: {text(message, 'reason')}", "warning"
        return None


SubtaskState = Literal["running", "done", "failed", "stopped"]
SUBTASK_STATES: Final[dict[str, SubtaskState]] = {
    "completed": "done",
    "failed": "failed",
    "stopped": "stopped",
    "killed": "stopped",
}
NAMED: Final = frozenset({"task_started", "task_progress", "task_updated", "task_notification"})


class ClaudeSubtasks:
    """The tasks that run, by claude's own ids."""

    def __init__(self) -> None:
        self._running: dict[str, SubtaskChanged] = {}

    def apply(self, message: Table, at: float, printed: str = "") -> SubtaskChanged | None:
        """Return the change in a `system` message; None if it is about no task, or changes nothing.

        *printed* is the end of the output of a task that ended.
        """
        subtype, name = text(message, "subtype"), text(message, "task_id")
        if subtype not in NAMED or not name:
            return None
        before = self._running.get(name) or SubtaskChanged(at=at, id=name)
        used, patch = table(message, "usage"), table(message, "patch")
        doing = text(message, "description") if subtype == "task_progress" else before.text
        changed = msgspec.structs.replace(
            before,
            at=at,
            call=text(message, "tool_use_id") or before.call,
            title=text(message, "description") if subtype == "task_started" else before.title,
            job="agent" if text(message, "task_type") == "local_agent" else before.job,
            in_background=(patch or message).get("is_backgrounded") is True or before.in_background,
            text=text(message, "summary") or doing,
            tokens=count(used, "total_tokens") or before.tokens,
            tools=count(used, "tool_uses") or before.tools,
            duration_s=count(used, "duration_ms") / 1000 or before.duration_s,
        )
        if subtype == "task_notification":
            self._running.pop(name, None)
            state = SUBTASK_STATES.get(text(message, "status"), "stopped")
            return msgspec.structs.replace(changed, state=state, output=printed)
        self._running[name] = changed
        return None if msgspec.structs.replace(changed, at=before.at) == before else changed
