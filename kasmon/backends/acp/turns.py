"""How a turn ended, by the agent's answer to the prompt or its refusal. Pure."""

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
"""The protocol's `stopReason` -> ours, and what a person is told."""


def ended(answer: Mapping[str, Any], at: float) -> TurnEnded | None:
    """The end that *answer* tells; None if it tells a reason that nobody here knows."""
    stop = answer.get("stopReason")
    if not isinstance(stop, str) or stop not in REASONS:
        return None
    reason, error = REASONS[stop]
    return TurnEnded(at=at, reason=reason, error=error)


def failed(error: RequestError, secrets: Sequence[str], log_in: str, at: float) -> list[Event]:
    """What it means that the prompt was answered with *error*; *log_in* says how one logs in."""
    said = errors.words(error, secrets)
    if errors.is_limit(error):
        return [LimitReached(at=at, text=said), TurnEnded(at=at, reason="limit", error=said)]
    if errors.needs_log_in(error):
        said = f"{said} {log_in}"
    return [TurnEnded(at=at, reason="error", error=said)]
