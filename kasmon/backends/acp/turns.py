"""How a turn ended, from the agent's answer to the prompt or its error. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from acp import RequestError

from kasmon.backends.acp import errors
from kasmon.model.events import Event, LimitReached, TurnEnded

Reason = Literal["done", "interrupted", "limit", "error"]
REASONS: Final[dict[str, tuple[Reason, str]]] = {
    "end_turn": ("done", ""),
    "cancelled": ("interrupted", ""),
    "max_tokens": ("error", "The model's context or output limit is reached."),
    "max_turn_requests": ("limit", "The limit of model calls per turn is reached."),
    "refusal": ("error", "The model refused to continue."),
}
"""The protocol's `stopReason` -> kasmon's reason, and the text for the user."""


def ended(answer: Mapping[str, Any], at: float) -> TurnEnded | None:
    """Return the end that *answer* reports; None for an unknown reason."""
    stop = answer.get("stopReason")
    if not isinstance(stop, str) or stop not in REASONS:
        return None
    reason, error = REASONS[stop]
    return TurnEnded(at=at, reason=reason, error=error)


def failed(error: RequestError, secrets: Sequence[str], log_in: str, at: float) -> list[Event]:
    """Return the events for a prompt answered with *error*; *log_in* describes how to log in."""
    said = errors.words(error, secrets)
    if errors.is_limit(error):
        return [LimitReached(at=at, text=said), TurnEnded(at=at, reason="limit", error=said)]
    if errors.needs_log_in(error):
        said = f"{said} {log_in}"
    return [TurnEnded(at=at, reason="error", error=said)]
