"""What a caller says of a session before it starts, and what a poll tells of it afterwards."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from kasmon.errors import UsageError
from kasmon.model.commands import Mode
from kasmon.sanitize import clean_line


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the seed's setters set, before a session starts."""

    name: str
    """Unique among the sessions that are not forgotten."""
    agent: str = ""
    """The profile's name; the seed's agent type."""
    mode: Mode | str | None = None
    """`tmux`, `sdk`, or what the profile says; anything else is an error."""
    argv: tuple[str, ...] = ()
    """Any program to run in tmux, instead of the profile's."""
    prompt: str = ""
    title: str | Callable[[], str] = ""
    """tmux: what its window is called, behind the agent's type. A callable is called once, when a session starts in
    tmux, and never for a structured one, which has no window."""
    task: int | None = None
    wave: int | None = None
    peers: int | None = None
    """The size of the wave, this session counted."""
    plan: str | None = None
    environment: Mapping[str, str] = {}
    seed: int = 0
    speed: float = 1.0


class Poll(NamedTuple):
    """What is new since the last poll."""

    updated: bool
    """The content is another."""
    waiting: bool
    """It waits for a person: idle, or asking something."""
    content: str
    captured: bool
    """False where the content could not be had; it is the last known one then. Always true in sdk mode."""


def check(spec: LaunchSpec) -> None:
    """Refuse what no session could be.

    Raises:
        UsageError: if a variable's name or a number of *spec* is none.
    """
    for name in spec.environment:
        if "=" in name:
            raise UsageError(f"{name!r} is not a valid variable name: it contains '='.")
    for field in ("task", "wave", "peers"):
        number = getattr(spec, field)
        if number is not None and number < 0:
            raise UsageError(f"{field} cannot be {number}: it counts from 0.")


def window(spec: LaunchSpec) -> str:
    """What its tmux window is called: its title behind its agent's type."""
    title = spec.title() if callable(spec.title) else spec.title
    return clean_line(": ".join(part for part in (spec.agent, title or spec.name) if part))
