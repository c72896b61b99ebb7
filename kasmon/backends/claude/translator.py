"""Translate protocol messages to events: pure, in order, and robust against unknown messages.

Each message goes to the part that handles its kind; unknown messages are logged once for each kind, and counted.
"""

from collections.abc import Iterator
from typing import Final

from kasmon.backends.base import AgentOutput
from kasmon.backends.claude.content import ConversationContent
from kasmon.backends.claude.messages import SILENT, UnparsedLine, name_of
from kasmon.backends.claude.notices import LOG_IN, NO_LOGIN, ClaudeNotices, ClaudeSubtasks, LimitTracker, retried
from kasmon.backends.claude.open_requests import ELICITATION, ClaudeRequests, parse_elicitation
from kasmon.backends.claude.request_builder import RequestContext
from kasmon.backends.claude.settings import ClaudeSettings, parse_commands
from kasmon.backends.claude.turns import ClaudeTurns
from kasmon.backends.claude.usage import ClaudeUsage
from kasmon.backends.common.elicitation import Elicitations
from kasmon.backends.common.json_access import Table, count, rows, table, text
from kasmon.backends.common.unknown_messages import UnknownMessages
from kasmon.model.events import Event, NoticeRaised, TurnEnded, UnknownMessageSeen
from kasmon.model.permission import SessionId

ASK: Final = "control_request/can_use_tool"
NO_LONGER: Final = "the agent no longer waits for it"
NO_MESSAGE: Final = "no message"
SYNTHETIC: Final = "<synthetic>"
"""The model named in messages that no model wrote."""


class ClaudeTranslator:
    """Translates the messages of one agent, in the order in which they came."""

    def __init__(self, session: SessionId, settings: ClaudeSettings, usage: ClaudeUsage) -> None:
        self.requests = ClaudeRequests()
        self.elicitations = Elicitations(session)
        self.turns = ClaudeTurns()
        self.limit = LimitTracker()
        self.settings = settings
        self._session = session
        self._content = ConversationContent()
        self._notices = ClaudeNotices()
        self._subtasks = ClaudeSubtasks()
        self._usage = usage
        self._unknown = UnknownMessages()

    def translate(
        self, message: Table | UnparsedLine, at: float, before: str | None = None, printed: str = ""
    ) -> Iterator[AgentOutput]:
        """Yield the events in *message*, received *at* that time in seconds since the epoch.

        *before*: the content of the file that it asks to change; see `RequestContext`. *printed*: the end of the output
        of the background task that it reports as ended.
        """
        if isinstance(message, UnparsedLine):
            yield from self._report_unknown(NO_MESSAGE, message.raw, at)
            return
        name = name_of(message)
        if name.startswith("system/task_") and (changed := self._subtasks.apply(message, at, printed)) is not None:
            yield changed
        for item in self._translate(name, message, at, before):
            yield item
            if isinstance(item, TurnEnded):
                yield from self.requests.reopen_all(at)
                yield from self.elicitations.reopen_all(at)

    def ended(self, why: str, at: float) -> Iterator[Event]:
        """Yield the remaining events when the agent's process has ended."""
        self._unknown.log_counts()
        yield from self.requests.withdraw_all(why, at)
        yield from self.elicitations.withdraw_all(why, at)

    def _translate(self, name: str, message: Table, at: float, before: str | None) -> Iterator[AgentOutput]:
        match name:
            case "stream_event":
                yield from self._translate_stream(message, at)
            case "assistant":
                yield from self._translate_assistant(message, at)
            case "user":
                yield from self._content.translate_user(message, at)
            case "result":
                if (usage := self._usage.result(message, at)) is not None:
                    yield usage
                yield from self.turns.result(message, at)
            case "command_lifecycle":
                yield from self.turns.apply_lifecycle(message, at)
            case "rate_limit_event":
                yield from self.limit.apply_event(table(message, "rate_limit_info"), at)
            case "conversation_reset":
                self._usage.begin_conversation()
                self.settings.expect_new_conversation()
                yield from self._content.clear(at)
            case _ if name == ASK:
                context = RequestContext(session=self._session, at=at, before=before, said=self._content.said)
                yield from self.requests.open(text(message, "request_id"), table(message, "request"), context)
            case _ if name == ELICITATION:
                call, asked = text(message, "request_id"), parse_elicitation(table(message, "request"))
                yield from self.elicitations.open(call, asked, at) or self._report_unknown(name, message, at)
            case "control_cancel_request":
                for calls in (self.requests, self.elicitations):
                    yield from calls.withdraw(text(message, "request_id"), NO_LONGER, at)
            case _ if message.get("type") == "system":
                yield from self._translate_system(name, message, at)
            case _ if name not in SILENT:
                yield from self._report_unknown(name, message, at)

    def _translate_stream(self, message: Table, at: float) -> Iterator[AgentOutput]:
        event = table(message, "event")
        if text(message, "parent_tool_use_id"):
            return
        if event.get("type") == "message_start":
            yield from self.turns.record_activity(at)
            self._usage.record_input(table(event, "message"))
        elif event.get("type") == "message_delta":
            yield self._usage.record_output(event, at)
        yield from self._content.translate_stream(event)

    def _translate_assistant(self, message: Table, at: float) -> Iterator[AgentOutput]:
        if not text(message, "parent_tool_use_id"):
            yield from self.turns.record_activity(at)
        error = text(message, "error")
        if not error:
            if text(table(message, "message"), "model") != SYNTHETIC:
                yield from self.limit.end(at)
            for item in self._content.translate_assistant(message, at):
                yield from (
                    self._unknown.report(item.what, item.raw, at) if isinstance(item, UnknownMessageSeen) else (item,)
                )
            return
        why = " ".join(text(part, "text") for part in rows(table(message, "message"), "content"))
        if error == "rate_limit":
            self.turns.is_limited = True
            yield from self.limit.record_refusal(message, why, at)
        elif error == NO_LOGIN:
            yield NoticeRaised(at=at, text=f"{why.rstrip('. ')}. {LOG_IN}", level="error")

    def _translate_system(self, name: str, message: Table, at: float) -> Iterator[AgentOutput]:
        match name:
            case "system/init":
                yield from self.turns.record_activity(at)
                yield from self.settings.apply_init(message, at)
            case "system/session_state_changed":
                yield from self.turns.state(text(message, "state"), at)
            case "system/api_retry":
                yield retried(message, at)
            case "system/task_list_statuses":
                yield self._content.update_task_states(message, at)
            case "system/commands_changed":
                yield parse_commands(message, at)
            case "system/compact_boundary":
                self._usage.record_compaction(count(table(message, "compact_metadata"), "post_tokens"))
        if name == "system/status":
            yield from self.settings.change_mode(text(message, "permissionMode"), at)
        notice = self._notices.apply_system(message, at)
        if notice is not None:
            yield notice
        elif name not in SILENT and name not in HANDLED:
            yield from self._report_unknown(name, message, at)

    def _report_unknown(self, name: str, raw: object, at: float) -> list[Event]:
        notice = ""
        if name == NO_MESSAGE:
            notice = "claude printed a line that is not a protocol message. kasmon logged it."
        elif name.startswith("control_request/"):
            what = name.partition("/")[2] or "something"
            notice = f"claude asked for {what!r}, which kasmon cannot show; kasmon declined it."
        return self._unknown.report(name, raw, at, notice)


HANDLED: Final = frozenset(
    f"system/{subtype}"
    for subtype in (
        "api_retry",
        "commands_changed",
        "compact_boundary",
        "informational",
        "init",
        "notification",
        "session_state_changed",
        "status",
        "task_list_statuses",
        "task_notification",
        "task_progress",
        "task_started",
        "task_updated",
    )
)
"""System messages that are known even if they give no notice."""
