"""Translate an agent's `session/update` messages to events. Sans-IO: the time is an argument."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, assert_never

from acp import RequestError, schema
from pydantic import ValidationError

from kasmon.agents.profile import Quirk
from kasmon.backends.acp import errors
from kasmon.backends.acp.content import text_of
from kasmon.backends.acp.imported_history import ImportedHistory
from kasmon.backends.acp.replay import ReplayedHistory
from kasmon.backends.acp.settings import AcpSettings, of_options
from kasmon.backends.acp.streamed_message import StreamedMessage
from kasmon.backends.acp.tool_calls import STATES, AcpToolCalls
from kasmon.backends.acp.usage import NOTHING, UsageTotals
from kasmon.backends.base import AgentOutput
from kasmon.backends.common.json_access import text
from kasmon.backends.common.slash_commands import build_announcement
from kasmon.backends.common.unknown_messages import UnknownMessages
from kasmon.model import events
from kasmon.model.commands import ConversationUsage, TerminalLogIn

TurnEndReason = Literal["done", "interrupted", "limit", "error"]
REASONS: Final[dict[str, tuple[TurnEndReason, str]]] = {
    "end_turn": ("done", ""),
    "cancelled": ("interrupted", ""),
    "max_tokens": ("error", "The model's context or output limit is reached."),
    "max_turn_requests": ("limit", "The limit of model calls per turn is reached."),
    "refusal": ("error", "The model refused to continue."),
}
"""The protocol's `stopReason` -> kasmon's reason, and the text for the user."""


AgentOutputs: TypeAlias = Sequence[AgentOutput]
AgentUpdate = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.ToolCallStart
    | schema.ToolCallProgress
    | schema.AgentPlanUpdate
    | schema.AgentPlanContentUpdate
    | schema.AgentPlanRemovedUpdate
    | schema.AvailableCommandsUpdate
    | schema.CurrentModeUpdate
    | schema.ConfigOptionUpdate
    | schema.SessionInfoUpdate
    | schema.UsageUpdate
)
MODE: Final = re.compile(r"\[MODE_UPDATE\] (\S{1,64})\s*")
"""gemini's message when its mode has changed."""


class AcpTranslator:
    """Translates one agent's messages, with the state that this needs."""

    def __init__(self, workdir: str, remembers: str = "", used: ConversationUsage = NOTHING) -> None:
        self.session: str | None = None
        """The agent's id of the conversation; None until it is known."""
        self.history: ReplayedHistory | None = None
        """The replay; None for a new conversation, and from the first prompt on."""
        self.imported: ImportedHistory | None = None
        """Collects the replay of a conversation that kasmon has no log of; None for others."""
        self.settings = AcpSettings()
        self.counted = UsageTotals.after(used)
        self.speech = StreamedMessage()
        self.tools = AcpToolCalls(workdir)
        self.unknown = UnknownMessages()
        self._remembers = remembers

    def replays(self) -> ReplayedHistory:
        """Treat what the agent sends until the first prompt as replayed history."""
        self.history = ReplayedHistory(self._remembers)
        return self.history

    def translate(self, params: Any, at: float) -> AgentOutputs:
        """Return the events of a `session/update` with *params*."""
        try:
            notification = schema.SessionNotification.model_validate(params)
        except ValidationError:
            return self.unknown.report(
                f"session/update {text(params, 'update', 'sessionUpdate') or 'without a kind'}", params, at
            )
        if self.session is not None and notification.session_id != self.session:
            return self.unknown.report("session/update of another session", params, at)
        if self.history is not None and self._is_history(notification.update, self.history):
            if self.imported is not None:
                self.imported.add(notification.update)
            return []
        return self._said(notification.update, at)

    def begins(self, at: float) -> AgentOutputs:
        """End the replay and any open message, for a new prompt."""
        self.history = None
        return self.speech.finish(at)

    def ends(self, at: float, answer: Mapping[str, Any] | None = None) -> AgentOutputs:
        """End the turn, with the agent's *answer* if there is one."""
        facts = [*self.speech.finish(at), *self.tools.end_all(at)]
        if answer is not None:
            facts += self._counts(self.counted.answered(answer, self.tools.habits), at)
        return facts

    def now_set(self, settings: AcpSettings, at: float) -> list[events.Event]:
        """Apply *settings*; return the events of the change."""
        changes = settings.diff_from(self.settings, at)
        self.settings = settings
        return [changes] if changes is not None else []

    def _is_history(self, update: AgentUpdate, history: ReplayedHistory) -> bool:
        match update:
            case schema.UserMessageChunk():
                history.record_user_text(text_of(update.content), update.message_id or "")
            case (
                schema.AgentMessageChunk()
                | schema.AgentThoughtChunk()
                | schema.ToolCallStart()
                | schema.ToolCallProgress()
                | schema.AgentPlanUpdate()
            ):
                history.record_item()
            case _:
                return False
        return True

    def _said(self, update: AgentUpdate, at: float) -> AgentOutputs:
        match update:
            case schema.AgentMessageChunk() | schema.AgentThoughtChunk():
                return self._add_chunk(update, at)
            case schema.ToolCallStart() | schema.ToolCallProgress():
                return [*self.speech.finish(at), *self.tools.apply(update, at)]
            case schema.AgentPlanUpdate():
                return [*self.speech.finish(at), _plan(update.entries, at)]
            case schema.AgentPlanContentUpdate(plan=schema.PlanUpdateItems() as plan):
                return [*self.speech.finish(at), _plan(plan.entries, at)]
            case schema.AgentPlanRemovedUpdate():
                return [*self.speech.finish(at), events.PlanUpdated(at=at)]
            case schema.CurrentModeUpdate():
                return self.now_set(self.settings.chosen("mode", update.current_mode_id), at)
            case schema.ConfigOptionUpdate():
                now = of_options(update.config_options)
                settings = now._replace(model=now.model or self.settings.model, mode=now.mode or self.settings.mode)
                return self.now_set(settings, at)
            case schema.UsageUpdate():
                return self._counts(self.counted.updated(update), at)
            case schema.AgentPlanContentUpdate():
                return self.unknown.report(f"plan_update {update.plan.type}", update.model_dump(mode="json"), at)
            case schema.AvailableCommandsUpdate():
                return [build_announcement(map(_command, update.available_commands), at)]
            case schema.UserMessageChunk() | schema.SessionInfoUpdate():
                return []
            case other:
                assert_never(other)

    def _add_chunk(self, update: schema.AgentMessageChunk | schema.AgentThoughtChunk, at: float) -> AgentOutputs:
        text = text_of(update.content)
        is_thought = isinstance(update, schema.AgentThoughtChunk)
        mode = self.settings.mode if Quirk.MODE_IN_TEXT in self.tools.habits and not is_thought else None
        if mode is not None and (match := MODE.fullmatch(text)) and match[1] in mode.values:
            return self.now_set(self.settings.chosen("mode", match[1]), at)
        return self.speech.add(text, at, thinking=is_thought, message=update.message_id or "")

    def _counts(self, counted: UsageTotals, at: float) -> list[events.Event]:
        if counted == self.counted:
            return []
        self.counted = counted
        return [counted.to_event(at)]


def _command(command: schema.AvailableCommand) -> tuple[str, str, str]:
    return command.name, command.description, command.input.root.hint if command.input is not None else ""


def _plan(entries: Sequence[schema.PlanEntry], at: float) -> events.PlanUpdated:
    return events.PlanUpdated(
        at=at, items=tuple(events.PlanItem(text=entry.content, state=STATES[entry.status]) for entry in entries)
    )


def build_turn_end(answer: Mapping[str, Any], at: float) -> events.TurnEnded | None:
    """Return the end that *answer* reports; None for an unknown reason."""
    stop = answer.get("stopReason")
    if not isinstance(stop, str) or stop not in REASONS:
        return None
    reason, error = REASONS[stop]
    return events.TurnEnded(at=at, reason=reason, error=error)


def build_failure(
    error: RequestError, secrets: Sequence[str], how: str, at: float, log_in: TerminalLogIn | None = None
) -> list[events.Event]:
    """Return the events for a prompt answered with *error*; *how* describes how to log in, *log_in* in a terminal."""
    message = errors.words(error, secrets)
    if errors.is_limit(error):
        return [events.LimitReached(at=at, text=message), events.TurnEnded(at=at, reason="limit", error=message)]
    if errors.needs_log_in(error):
        ended = events.TurnEnded(at=at, reason="error", error=f"{message} {how}")
        return [*([events.LogInRequired(at=at, log_in=log_in)] if log_in is not None else []), ended]
    return [events.TurnEnded(at=at, reason="error", error=message)]
