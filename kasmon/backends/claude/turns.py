"""Turns: when the agent began one and with which prompt, and how it ended, as the agent reports it.

| the agent's message | a turn |
|---|---|
| `command_lifecycle` started | of that prompt begins; within a turn, the prompt was added to it |
| `system/init` | begins by itself if none runs: a background task is done |
| `result` | has its outcome, but is not over: sub-agents may still run, another prompt may follow |
| `session_state_changed` idle | is over |

Results are not counted: one turn can include several prompts, and be followed by turns of the agent's own.
"""

from typing import Final

from kasmon.backends.common.json_access import Table, count, text, texts
from kasmon.model.commands import Prompt
from kasmon.model.events import Event, TurnEnded, TurnStarted

ABORTED: Final = "aborted"
"""Prefix of the `terminal_reason` of an interrupted turn."""
RATE_LIMITED: Final = 429
KEPT: Final = 1000
"""How many unconfirmed prompts are remembered."""


class ClaudeTurns:
    """The running turn, and the prompts sent for coming ones."""

    def __init__(self) -> None:
        self.is_running = False
        self.is_limited = False
        """In this turn the provider refused a request because of a limit."""
        self.failure = ""
        """Why the last result is a failure; empty if it is none."""
        self._prompts: dict[str, Prompt] = {}
        self._result: Table | None = None
        self._has_lifecycle = self._has_states = False

    def record_prompt(self, name: str, prompt: Prompt) -> None:
        """Record that *prompt* was sent to the agent under the id *name*."""
        self._prompts[name] = prompt
        for forgotten in list(self._prompts)[:-KEPT]:
            del self._prompts[forgotten]

    def apply_lifecycle(self, message: Table, at: float) -> tuple[Event, ...]:
        """Apply a `command_lifecycle` message: a prompt was queued, started, completed or cancelled."""
        self._has_lifecycle = True
        name, state = text(message, "command_uuid"), text(message, "state")
        if state == "started":
            prompt = self._prompts.get(name)
            return (*self._end_if_done(at), *self._begin(prompt, at)) if prompt else ()
        if state in ("completed", "cancelled"):
            self._prompts.pop(name, None)
        return ()

    def record_activity(self, at: float) -> tuple[Event, ...]:
        """Record activity of the agent itself, not of its sub-agents."""
        over = self._end_if_done(at)
        if self.is_running:
            return ()
        oldest = None if self._has_lifecycle else next(iter(self._prompts), None)
        return (*over, *self._begin(self._prompts.pop(oldest) if oldest else None, at))

    def result(self, message: Table, at: float) -> tuple[Event, ...]:
        self._result = message
        self.failure = _failure(message)
        return () if self._has_states else self._end_if_done(at)

    def state(self, state: str, at: float) -> tuple[Event, ...]:
        """Apply a `session_state_changed` message."""
        self._has_states = True
        return self._end(at) if state == "idle" and self.is_running else ()

    def _begin(self, prompt: Prompt | None, at: float) -> tuple[Event, ...]:
        self.is_running = True
        if prompt is None:
            return (TurnStarted(at=at, by="agent"),)
        return (TurnStarted(at=at, prompt=prompt.text, by=prompt.by),)

    def _end_if_done(self, at: float) -> tuple[Event, ...]:
        return self._end(at) if self.is_running and self._result is not None else ()

    def _end(self, at: float) -> tuple[Event, ...]:
        result, was_limited = self._result or {}, self.is_limited
        self._result, self.is_running, self.is_limited = None, False, False
        if text(result, "terminal_reason").startswith(ABORTED):
            return (TurnEnded(at=at, reason="interrupted"),)
        if failure := _failure(result):
            is_limit = was_limited or count(result, "api_error_status") == RATE_LIMITED
            return (TurnEnded(at=at, reason="limit" if is_limit else "error", error=failure),)
        return (TurnEnded(at=at),)


def _failure(result: Table) -> str:
    """Return why *result* failed; `is_error` decides, as `subtype` is "success" even if the provider failed."""
    if result.get("is_error") is not True:
        return ""
    errors = "; ".join(texts(result, "errors"))
    subtype = text(result, "subtype")
    named = subtype.replace("_", " ") if subtype != "success" else ""
    status = count(result, "api_error_status")
    return errors or text(result, "result") or named or f"the provider returned {status}"
