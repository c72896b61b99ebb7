"""The lines of the agent's stdout, the names of the protocol's messages, and those that kasmon ignores."""

import json
from typing import Final, NamedTuple

from kasmon.backends.common.json_access import Table, text
from kasmon.backends.common.unknown_messages import RAW_CHARACTERS

SILENT: Final = frozenset(
    {
        "attachment",
        "auth_status",
        "control_response",
        "keep_alive",
        "prompt_suggestion",
        "streamlined_text",
        "streamlined_tool_use_summary",
        "system/api_error",
        "system/away_summary",
        "system/background_tasks_changed",
        "system/bridge_state",
        "system/control_request_progress",
        "system/elicitation_complete",
        "system/feedback_draft_queued",
        "system/file_snapshot",
        "system/files_persisted",
        "system/hook_progress",
        "system/hook_response",
        "system/hook_started",
        "system/instruction_size_warning",
        "system/memory_recall",
        "system/memory_saved",
        "system/per_turn_effort_changed",
        "system/permission_check_status",
        "system/permission_retry",
        "system/plugin_install",
        "system/post_turn_summary",
        "system/session_metadata",
        "system/session_title_changed",
        "system/shell_cwd",
        "system/stop_hook_summary",
        "system/task_summary",
        "system/thinking",
        "system/thinking_tokens",
        "system/turn_duration",
        "system/turn_handoff_available",
        "system/turn_preempted",
        "system/vcs_state_changed",
        "tombstone",
        "tool_progress",
        "tool_use_summary",
        "transcript_mirror",
    }
)
"""Progress, bookkeeping and what only other frontends show, by type and subtype (Claude Code 2.1.330)."""


class UnparsedLine(NamedTuple):
    """A line that is not a message: no JSON, incomplete, or too long to be read whole."""

    raw: str
    """Its beginning."""


def read(line: bytes) -> Table | UnparsedLine | None:
    """Return the message in *line*; None if it is blank. Never raises."""
    if not line.strip():
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict):
        return message
    return UnparsedLine(line[: 4 * RAW_CHARACTERS].decode("utf-8", "replace")[:RAW_CHARACTERS])


def name_of(message: Table) -> str:
    """Return the kind of *message*: `assistant`, `system/init`, `control_request/can_use_tool`, ..."""
    kind = text(message, "type") or "no type"
    if kind == "system":
        return f"system/{text(message, 'subtype')}"
    if kind == "control_request":
        request = message.get("request")
        return f"control_request/{text(request, 'subtype') if isinstance(request, dict) else ''}"
    return kind
