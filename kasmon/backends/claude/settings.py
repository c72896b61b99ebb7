"""The agent's settings: its model, its permission mode, the available ones, and its conversation."""

from collections.abc import Iterator, Sequence
from typing import Final

from kasmon.backends.common.json_access import Table, rows, text
from kasmon.backends.common.slash_commands import build_announcement
from kasmon.model.events import CommandsAnnounced, Event, NoticeRaised, SettingsChanged

MODES: Final = ("default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions")
"""The permission modes of Claude Code 2.1.330."""
BYPASSING: Final = "bypassPermissions"
AUTO: Final = "auto"
ELSEWHERE: Final = "claude continued in another conversation, {now}, instead of {before}."


def parse_commands(message: Table, at: float) -> CommandsAnnounced:
    """Return the slash commands in *message*: the reply to `initialize`, or `system/commands_changed`."""
    commands = rows(message, "commands")
    return build_announcement(
        ((text(each, "name"), text(each, "description"), text(each, "argumentHint")) for each in commands), at
    )


class ClaudeSettings:
    """The current settings; each change is reported as an event once."""

    def __init__(self, conversation: str, *, may_bypass: bool) -> None:
        """*conversation*: the agent's id of it, empty if unknown; *may_bypass*: whether the user allowed bypassing."""
        self.conversation = conversation
        self.model = self.mode = ""
        self._may_bypass = may_bypass
        self._resolved: dict[str, str] = {}
        self._is_cleared = False

    def apply_initialize(self, answer: Table, asked: str, at: float) -> SettingsChanged:
        """Return the settings in *answer*, the reply to `initialize`; *asked*: the model that the agent was given."""
        models = rows(answer, "models")
        self._resolved = {text(model, "value"): text(model, "resolvedModel") for model in models}
        self.model = self.resolved(asked)
        self.mode = text(answer, "current_permission_mode")
        return SettingsChanged(
            at=at,
            model=self.model,
            models=tuple(text(model, "value") for model in models),
            permission_mode=self.mode,
            permission_modes=self._modes(models),
        )

    def resolved(self, model: str) -> str:
        """Return the full name of *model*, if the agent reported it."""
        return self._resolved.get(model) or model

    def apply_init(self, message: Table, at: float) -> Iterator[Event]:
        """Apply a `system/init` message, which comes with each turn."""
        yield from self._conversation_is(text(message, "session_id"), at)
        yield from self.change_model(text(message, "model"), at)
        yield from self.change_mode(text(message, "permissionMode"), at)

    def change_model(self, model: str, at: float) -> Iterator[Event]:
        """Yield an event if *model* is a change; an empty one is ignored."""
        if model and model != self.model:
            self.model = model
            yield SettingsChanged(at=at, model=model)

    def change_mode(self, mode: str, at: float) -> Iterator[Event]:
        """Yield an event if the permission mode *mode* is a change; an empty one is ignored."""
        if mode and mode != self.mode:
            self.mode = mode
            yield SettingsChanged(at=at, permission_mode=mode)

    def expect_new_conversation(self) -> None:
        """Expect a new conversation; its id is that of the next `system/init`."""
        self._is_cleared = True

    def _conversation_is(self, conversation: str, at: float) -> Iterator[Event]:
        before, was_cleared = self.conversation, self._is_cleared
        if not conversation or conversation == before:
            return
        self.conversation, self._is_cleared = conversation, False
        yield SettingsChanged(at=at, resume_id=conversation)
        if before and not was_cleared:
            yield NoticeRaised(at=at, text=ELSEWHERE.format(now=conversation, before=before), level="error")

    def _modes(self, models: Sequence[Table]) -> tuple[str, ...]:
        judges = any(model.get("supportsAutoMode") is True for model in models)
        return tuple(mode for mode in MODES if (mode != BYPASSING or self._may_bypass) and (mode != AUTO or judges))
