"""Notices from codex's side messages: warnings, and messages that this version of kasmon does not know."""

import re
from collections.abc import Collection
from typing import Final

from kasmon.backends.common.json_access import Table, number, table, text, unwrap_error
from kasmon.backends.common.unknown_messages import UnknownMessages
from kasmon.model.events import Event, NoticeRaised

LOG_IN: Final = "Check the provider's key, or log in with `codex login`."
MISSING_VARIABLE: Final = re.compile(r"Missing environment variable:? `?([A-Za-z_][A-Za-z0-9_]*)")
"""Codex's error if a provider's `env_key` names a variable that is not set."""
GIVE: Final = "Pass a provider's own variable by name: start a session with `--env {name}`."
UNAUTHORIZED: Final = 401
QUIET_AREAS: Final = (
    "account/",
    "app/",
    "command/exec/",
    "externalAgentConfig/",
    "fs/",
    "fuzzyFileSearch/",
    "hook/",
    "process/",
    "project/",
    "rawResponse",
    "remoteControl/",
    "skills/",
    "thread/attachment/",
    "thread/environment/",
    "thread/goal/",
    "thread/realtime/",
    "thread/search/",
    "windows",
)
"""Prefixes of methods that do not affect what a session shows."""
QUIET: Final = frozenset(
    {
        "autoApprovalReview/strictReviewRequired",
        "item/autoApprovalReview/started",
        "item/fileChange/outputDelta",
        "item/mcpToolCall/progress",
        "mcpServer/event/stream/notification",
        "mcpServer/oauthLogin/completed",
        "model/safetyBuffering/updated",
        "model/verification",
        "modelProvider/authRecoveryCompleted",
        "thread/archived",
        "thread/compacted",
        "thread/name/updated",
        "thread/prediction/updated",
        "thread/project/updated",
        "thread/queue/changed",
        "thread/readState/changed",
        "thread/reverted",
        "thread/section/changed",
        "thread/started",
        "thread/unarchived",
        "turn/diff/updated",
        "turn/moderationMetadata",
    }
)
"""Methods without content, or whose content other messages repeat."""


class CodexNotices:
    """Reports each notice and each unknown kind once."""

    def __init__(self) -> None:
        self._reported: set[str] = set()
        self.unknown = UnknownMessages()

    def once(self, message: str, now: float) -> list[NoticeRaised]:
        """Return the notice *message*, unless it was reported before."""
        if not message or message in self._reported:
            return []
        self._reported.add(message)
        return [NoticeRaised(at=now, text=message, level="warning")]

    def reset(self) -> None:
        """Allow earlier notices again, for a new turn."""
        self._reported.clear()

    def message(self, method: str, params: Table, now: float) -> list[Event]:
        """Return the notice in a message that is not part of codex's work."""
        message_text = _notice_text(method, params)
        if message_text is not None:
            return [*self.once(message_text, now)]
        if method in QUIET or method.startswith(QUIET_AREAS):
            return []
        return self.unknown.report(method, params, now)


def failure(error: Table) -> str:
    """Return why a turn failed, in codex's text and with a known fix."""
    message = unwrap_error(text(error, "message")) or "codex gave no reason"
    is_key_wrong = is_caused_by(error, {"unauthorized"}, UNAUTHORIZED)
    more, fix = text(error, "additionalDetails"), missing(message) or (LOG_IN if is_key_wrong else "")
    return " ".join(part for part in (message, f"({more})" if more else "", fix) if part)


def missing(message: str) -> str:
    """Return how to set the variable that is missing according to *message*; empty if none is."""
    found = MISSING_VARIABLE.search(message)
    return GIVE.format(name=found[1]) if found else ""


def _notice_text(method: str, params: Table) -> str | None:
    """Return the notice text of *method*; None for another kind of message, empty if there is nothing to report."""
    match method:
        case "warning" | "guardianWarning" | "modelProvider/authRecoveryStarted":
            return text(params, "message")
        case "configWarning" | "deprecationNotice":
            parts = (text(params, "summary"), text(params, "details"))
            return " ".join(part for part in parts if part)
        case "model/rerouted":
            return f"Codex uses {text(params, 'toModel')} instead of {text(params, 'fromModel')} for this turn."
        case "mcpServer/startupStatus/updated":
            failed = text(params, "status") == "failed"
            return f"The MCP server {text(params, 'name')!r} did not start: {text(params, 'error')}" if failed else ""
        case "item/autoApprovalReview/completed":
            status, why = text(params, "review", "status"), text(params, "review", "rationale")
            return f"Codex's own reviewer decided: {status}. {why}".strip()
        case "thread/closed" | "thread/deleted":
            return "Codex has closed the conversation."
    return None


def is_caused_by(error: Table, codes: Collection[str], status: int) -> bool:
    """Whether codex gives one of its *codes* as the cause of *error*, or the HTTP *status* of its provider."""
    details = table(error, "codexErrorInfo").values()
    return text(error, "codexErrorInfo") in codes or any(number(one, "httpStatusCode") == status for one in details)
