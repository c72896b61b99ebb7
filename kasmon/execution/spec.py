"""The description of a session before its start, the result of a poll, and checks of arguments."""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, get_args

import msgspec

from kasmon.errors import UsageError
from kasmon.model.commands import Mode
from kasmon.model.rule import Scope
from kasmon.sanitize import clean_line

WHOLE: Final = ("", "-")
"""The buffer's beginning as a start, its end as an end."""
NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
LARGEST: Final = 1000
"""The maximum of columns, and of rows."""
HERE_ONLY: Final = {"plan": None, "title": "", "seed": 0, "speed": 1.0}
"""The fields that no other machine is told, each with its default."""


def lines(start: str | int, end: str | int) -> tuple[int, int | None]:
    """Return the range as numbers, 0 for an open start in both modes. Raises `UsageError` for anything else."""
    first, last = _parse_bound(str(start), "start"), _parse_bound(str(end), "end")
    return (0 if first is None else first), last


def check_size(columns: int, rows: int) -> None:
    """Raise `UsageError` if the terminal size is invalid."""
    if not (1 <= columns <= LARGEST and 1 <= rows <= LARGEST):
        raise UsageError(
            f"invalid terminal size '{columns}x{rows}'.", hint=f"Columns and rows must be from 1 to {LARGEST}."
        )


def check_text(keys: str) -> None:
    """Raise `UsageError` if *keys* are not valid Unicode; bytes escaped by `os.fsdecode` are accepted."""
    try:
        keys.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"cannot type {keys[error.start : error.end]!r}: it is not valid Unicode text.") from error


def check_scope(scope: str) -> None:
    """Raise `UsageError` if *scope* is no scope of a rule."""
    if scope not in get_args(Scope):
        raise UsageError(f"unknown scope {scope!r}.", hint=f"Scopes: {', '.join(get_args(Scope))}.")


def _parse_bound(text: str, which: str) -> int | None:
    if text in WHOLE:
        return None
    if not NUMBER.fullmatch(text):
        raise UsageError(f"a range cannot {which} at {text!r}.", hint='A range starts and ends at "", "-", n or -n.')
    return int(text)


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The values of kasmos's setters, before a session starts."""

    name: str
    """Unique among the listed sessions of its machine."""
    machine: str = ""
    """The registered machine that it starts on, by the config and the folders there; empty for this one."""
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
    waiting: bool
    """It waits for a person: idle, or with an open request."""
    content: str
    captured: bool
    """False if the content is unavailable; it is the last known one then. Always true in sdk mode."""


def check(spec: LaunchSpec) -> None:
    """Raise `UsageError` if a variable's name or a number is invalid, or another machine does not get a field."""
    for name in spec.environment:
        if "=" in name:
            raise UsageError(f"{name!r} is not a valid variable name: it contains '='.")
    for field in ("task", "wave", "peers"):
        number = getattr(spec, field)
        if number is not None and number < 0:
            raise UsageError(f"{field} cannot be {number}: it counts from 0.")
    for field, default in HERE_ONLY.items():
        if spec.machine and getattr(spec, field) != default:
            raise UsageError(
                f"cannot start {spec.name!r} on {spec.machine!r}: {field!r} is for sessions of this machine only.",
                hint=f"Leave {field!r} out.",
            )


def window(spec: LaunchSpec) -> str:
    """Return its tmux window's title: the agent's type and its own title."""
    title = spec.title() if callable(spec.title) else spec.title
    return clean_line(": ".join(part for part in (spec.agent, title or spec.name) if part))
