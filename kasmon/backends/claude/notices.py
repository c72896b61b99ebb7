"""Notices from the agent's side messages: background tasks, its own refusals, model changes."""

from typing import Final, Literal

from kasmon.backends.common.json_access import Table, count, table, text
from kasmon.model.events import MessageWritten, NoticeRaised
from kasmon.model.formatting import compact

Level = Literal["info", "warning", "error"]

LOUD: Final = frozenset({"high", "immediate"})
"""Priorities at which a `notification` is shown."""
INFORMED: Final[dict[str, Level]] = {"notice": "info", "suggestion": "info", "warning": "warning"}
"""Levels at which an `informational` message is shown, and the notice's level."""
NO_LOGIN: Final = "authentication_failed"
LOG_IN: Final = "Log in by /login in `claude` on a terminal, or give the session ANTHROPIC_API_KEY by --env."


class ClaudeNotices:
    """Turns messages into notices; remembers the descriptions of background tasks."""

    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}

    def of_system(self, message: Table, at: float) -> NoticeRaised | MessageWritten | None:
        """Return the notice in a `system` message; None if it holds none."""
        subtype = text(message, "subtype")
        if subtype == "task_started":
            self._tasks[text(message, "task_id")] = text(message, "description")
            return None
        if subtype == "local_command_output":
            return MessageWritten(at=at, text=text(message, "content"))
        told = self._notice_of(subtype, message)
        return NoticeRaised(at=at, text=told[0], level=told[1]) if told and told[0].strip() else None

    def _notice_of(self, subtype: str, message: Table) -> tuple[str, Level] | None:
        match subtype:
            case "task_notification":
                return self._task_notice(message)
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

    def _task_notice(self, message: Table) -> tuple[str, Level]:
        status = text(message, "status") or "over"
        about = self._tasks.pop(text(message, "task_id"), "") or text(message, "summary") or "a task"
        return f"In the background: {about}: {status}.", "warning" if status == "failed" else "info"
