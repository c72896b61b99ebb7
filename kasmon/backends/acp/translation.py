"""An agent's `session/update`s as facts. Sans-IO: what is said goes in with its time, what it means comes out."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec
from acp.schema import (
    AgentMessageChunk,
    AgentPlanContentUpdate,
    AgentPlanRemovedUpdate,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    PlanEntry,
    PlanUpdateItems,
    SessionInfoUpdate,
    SessionNotification,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)
from pydantic import ValidationError

from kasmon.backends.acp.content import text_of
from kasmon.backends.acp.foreign import Foreign
from kasmon.backends.acp.history import History
from kasmon.backends.acp.known import Habit
from kasmon.backends.acp.settings import Settings, of_options
from kasmon.backends.acp.speech import Speech
from kasmon.backends.acp.tools import STATES, Tools
from kasmon.backends.acp.usage import NOTHING, Counted
from kasmon.backends.base import Chunk
from kasmon.model.command import Used
from kasmon.model.event import Event, PlanItem, PlanUpdated

Said = Sequence[Event | Chunk]
Update = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AgentPlanContentUpdate
    | AgentPlanRemovedUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)
MODE: Final = re.compile(r"\[MODE_UPDATE\] (\S{1,64})\s*")
"""gemini's message when its mode has changed."""


class Translation:
    """What one agent has said, as far as what it says next depends on it."""

    def __init__(self, workdir: str, remembers: str = "", used: Used = NOTHING) -> None:
        self.session: str | None = None
        """The agent's id of the conversation; None until it is known."""
        self.habits: frozenset[Habit] = frozenset()
        self.history: History | None = None
        """What is replayed; None where the conversation is new, and from the first prompt on."""
        self.settings = Settings()
        self.counted = Counted.after(used)
        self.speech = Speech()
        self.tools = Tools(workdir)
        self.foreign = Foreign()
        self._remembers = remembers

    def replays(self) -> History:
        """From now on until the first prompt the agent tells its history."""
        self.history = History(self._remembers)
        return self.history

    def adopts(self, habits: frozenset[Habit]) -> None:
        """From now on read what is said as an agent with *habits* means it."""
        self.habits = self.tools.habits = habits

    def heard(self, params: Any, at: float) -> Said:
        """What a `session/update` with *params* says."""
        try:
            told = SessionNotification.model_validate(params)
        except ValidationError:
            return self.foreign.seen(f"session/update {_kind(params)}", params, at)
        if self.session is not None and told.session_id != self.session:
            return self.foreign.seen("session/update of another session", params, at)
        if self.history is not None and self._is_history(told.update, self.history):
            return []
        return self._said(told.update, at)

    def begins(self, at: float) -> Said:
        """A prompt is given."""
        self.history = None
        return self.speech.ended(at)

    def ends(self, at: float, answer: Mapping[str, Any] | None = None) -> Said:
        """The turn is over, with *answer* where the agent gave one."""
        facts = [*self.speech.ended(at), *self.tools.ended(at)]
        if answer is not None:
            facts += self._counts(self.counted.answered(answer, self.habits), at)
        return facts

    def now_set(self, settings: Settings, at: float) -> list[Event]:
        """What *settings* change."""
        told = settings.told(self.settings)
        self.settings = settings
        return [msgspec.structs.replace(told, at=at)] if told is not None else []

    def _is_history(self, update: Update, history: History) -> bool:
        match update:
            case UserMessageChunk():
                history.user_said(text_of(update.content), update.message_id or "")
            case AgentMessageChunk() | AgentThoughtChunk() | ToolCallStart() | ToolCallProgress() | AgentPlanUpdate():
                history.heard()
            case _:
                return False
        return True

    def _said(self, update: Update, at: float) -> Said:
        match update:
            case AgentMessageChunk() | AgentThoughtChunk():
                return self._spoken(update, at)
            case ToolCallStart() | ToolCallProgress():
                return [*self.speech.ended(at), *self.tools.heard(update, at)]
            case AgentPlanUpdate():
                return [*self.speech.ended(at), _plan(update.entries, at)]
            case AgentPlanContentUpdate(plan=PlanUpdateItems() as plan):
                return [*self.speech.ended(at), _plan(plan.entries, at)]
            case AgentPlanRemovedUpdate():
                return [*self.speech.ended(at), PlanUpdated(at=at)]
            case CurrentModeUpdate():
                return self.now_set(self.settings.chosen("mode", update.current_mode_id), at)
            case ConfigOptionUpdate():
                now = of_options(update.config_options)
                settings = Settings(now.model or self.settings.model, now.mode or self.settings.mode)
                return self.now_set(settings, at)
            case UsageUpdate():
                return self._counts(self.counted.updated(update), at)
            case AgentPlanContentUpdate():
                return self.foreign.seen(f"plan_update {update.plan.type}", update.model_dump(mode="json"), at)
            case UserMessageChunk() | AvailableCommandsUpdate() | SessionInfoUpdate():
                return []
            case other:
                assert_never(other)

    def _spoken(self, update: AgentMessageChunk | AgentThoughtChunk, at: float) -> Said:
        text = text_of(update.content)
        is_thought = isinstance(update, AgentThoughtChunk)
        if Habit.MODE_IN_TEXT in self.habits and not is_thought and (mode := self._mode_in(text)):
            return self.now_set(self.settings.chosen("mode", mode), at)
        return self.speech.heard(text, at, thinking=is_thought, message=update.message_id or "")

    def _mode_in(self, text: str) -> str:
        match = MODE.fullmatch(text)
        return match[1] if match and self.settings.mode and match[1] in self.settings.mode.values else ""

    def _counts(self, counted: Counted, at: float) -> list[Event]:
        if counted == self.counted:
            return []
        self.counted = counted
        return [counted.told(at)]


def _plan(entries: Sequence[PlanEntry], at: float) -> PlanUpdated:
    return PlanUpdated(
        at=at,
        items=tuple(PlanItem(text=entry.content, state=STATES[entry.status]) for entry in entries),
    )


def _kind(params: Any) -> str:
    """How *params* calls itself."""
    update = params.get("update") if isinstance(params, Mapping) else None
    kind = update.get("sessionUpdate") if isinstance(update, Mapping) else None
    return kind if isinstance(kind, str) else "without a kind"
