"""The description of a session before its start, and the result of a poll."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from kasmon.errors import UsageError
from kasmon.model.commands import Mode
from kasmon.sanitize import clean_line


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The values of kasmos's setters, before a session starts."""

    name: str
    """Unique among the listed sessions."""
    agent: str = ""
    """The profile's name; the agent type of kasmos."""
    mode: Mode | str | None = None
    """`tmux`, `sdk`, or None for the profile's; anything else is an error."""
    argv: tuple[str, ...] = ()
    """Any program to run in tmux, instead of the profile's."""
    prompt: str = ""
    title: str | Callable[[], str] = ""
    """tmux: the title of its window, behind the agent's type. A callable is called once, when a tmux session starts,
    and never for a structured one, which has no window."""
    task: int | None = None
    wave: int | None = None
    peers: int | None = None
    """The size of the wave, including this session."""
    plan: str | None = None
    environment: Mapping[str, str] = {}
    seed: int = 0
    speed: float = 1.0


class Poll(NamedTuple):
    """The changes since the last poll."""

    updated: bool
    """The content has changed."""
    waiting: bool
    """It waits for a person: idle, or with an open request."""
    content: str
    captured: bool
    """False if the content is unavailable; it is the last known one then. Always true in sdk mode."""


def check(spec: LaunchSpec) -> None:
    """Refuse an invalid *spec*.

    Raises:
        UsageError: if a variable's name or a number is invalid.
    """
    for name in spec.environment:
        if "=" in name:
            raise UsageError(f"{name!r} is not a valid variable name: it contains '='.")
    for field in ("task", "wave", "peers"):
        number = getattr(spec, field)
        if number is not None and number < 0:
            raise UsageError(f"{field} cannot be {number}: it counts from 0.")


def window(spec: LaunchSpec) -> str:
    """Return its tmux window's title: the agent's type and its own title."""
    title = spec.title() if callable(spec.title) else spec.title
    return clean_line(": ".join(part for part in (spec.agent, title or spec.name) if part))
