"""The next step in a sandbox's lifecycle, by its phase, its use and the time. Pure: the time is an argument.

| state | for | then |
|---|---|---|
| a turn runs | any time | nothing: a running turn is never idle |
| running, unused | `standby_after_s` | is paused, with its memory held |
| unused, paused or not | `idle_timeout_s` | is paused to disk if that is configured and its tier can; else it ends |
| an agent whose memory can only be held | `idle_timeout_s` | nothing, unless the config sets a limit (`only_held`) |
| exists | `max_lifetime_s` | ends, once its turn is over |

It is paused only while no turn runs: at most once per turn, never between the calls of one.
"""

import time
from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

from kasmon.config.schema import Lifetime
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.model.sandbox.snapshot import ForkOrigin
from kasmon.model.sandbox.state import SandboxState
from kasmon.paths import Paths, write_private


class MonotonicAge:
    """Remembers for each named event when it happened by the monotonic clock."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, float]] = {}
        """For each event, its recorded time and its time by the monotonic clock."""

    def at(self, what: str, noted_at: float, now: float) -> float:
        """Return when *what*, recorded at *noted_at*, happened by the clock of *now*; all in epoch seconds."""
        if what not in self._since or self._since[what][0] != noted_at:
            self._since[what] = (noted_at, _steady() - max(now - noted_at, 0.0))
        return now - (_steady() - self._since[what][1])


def _steady() -> float:
    """Return the monotonic clock, which also counts while the machine sleeps, in seconds."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


UNKNOWN: Final = SessionId("")


def origin_of(paths: Paths, session: str) -> ForkOrigin | None:
    """Return the origin of the sandbox of *session*; None if it is no copy. An unreadable one is incomplete."""
    try:
        return msgspec.json.decode(paths.origin(session).read_bytes(), type=ForkOrigin)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ForkOrigin(source=UNKNOWN, name="another one", at=0.0)


def store_origin(paths: Paths, session: str, origin: ForkOrigin) -> None:
    """Store *origin* as that of the sandbox of *session*. Raises `OSError` if it cannot be written."""
    write_private(paths.origin(session), msgspec.json.encode(origin))


IDLE_S = 1800.0
UNUSED = "not used for {}"
TOO_OLD = "maximum lifetime of {} reached"


class LifetimeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How long a sandbox is retained, in seconds; 0 means forever."""

    standby_after_s: float = 900.0
    idle_timeout_s: float = IDLE_S
    is_idle_limit_given: bool = False
    """Whether the user limited the idle time; else the limit only applies if memory is kept (`only_held`)."""
    max_lifetime_s: float = 86_400.0
    on_timeout: Literal["pause", "end"] = "pause"
    auto_resume: bool = True


class LifecycleStep(StrEnum):
    """An operation that is due on a sandbox."""

    STANDBY = "standby"
    PAUSE = "pause"
    END = "end"


class DueStep(msgspec.Struct, frozen=True):
    """A step, and the time from which it is due, in seconds since the epoch."""

    step: LifecycleStep
    at: float
    why: str


def terms_of(lifetime: Lifetime) -> LifetimeTerms:
    """Return the time limits in the config's *lifetime*."""
    given = lifetime.idle_timeout_seconds
    return LifetimeTerms(
        standby_after_s=lifetime.standby_after_seconds,
        idle_timeout_s=IDLE_S if given is None else given,
        is_idle_limit_given=given is not None or lifetime.on_timeout == "end",
        max_lifetime_s=lifetime.max_lifetime_seconds,
        on_timeout=lifetime.on_timeout,
        auto_resume=lifetime.auto_resume,
    )


def only_held(terms: LifetimeTerms) -> LifetimeTerms:
    """Return *terms* for an agent whose memory can only be held in RAM: without an idle limit, unless the user set one.

    Its conversation could be resumed after the sandbox ended, but not its memory and processes.
    """
    return terms if terms.is_idle_limit_given else msgspec.structs.replace(terms, idle_timeout_s=0.0)


def due(state: SandboxState, terms: LifetimeTerms, *, keeps_memory: bool, in_turn: bool) -> DueStep | None:
    """Return the next step of the sandbox of *state* if it stays unused; None if there is none.

    Args:
        terms: its time limits.
        keeps_memory: whether its tier can pause to disk.
        in_turn: whether a turn runs in it.
    """
    if in_turn or state.phase is SandboxPhase.EXPIRED:
        return None
    steps: list[DueStep] = []
    is_on_disk = state.phase is SandboxPhase.PAUSED and not state.held

    def add(step: LifecycleStep, since: float, limit_s: float, why: str) -> None:
        if limit_s:
            steps.append(DueStep(step, since + limit_s, why.format(format_duration(limit_s))))

    add(LifecycleStep.END, state.born_at, terms.max_lifetime_s, TOO_OLD)
    if not is_on_disk:
        pauses = terms.on_timeout == "pause" and keeps_memory
        add(LifecycleStep.PAUSE if pauses else LifecycleStep.END, state.used_at, terms.idle_timeout_s, UNUSED)
    if state.phase is SandboxPhase.RUNNING:
        add(LifecycleStep.STANDBY, state.used_at, terms.standby_after_s, UNUSED)
    return min(steps, key=lambda step: (step.at, step.step is LifecycleStep.STANDBY), default=None)


class Deadlines(NamedTuple):
    """When an unused sandbox changes its phase, in seconds since the epoch; None if it never does."""

    standby_at: float | None
    """It is paused, with its memory held."""
    pause_at: float | None
    """It is paused to disk. None if it ends before that."""
    expires_at: float | None
    """It ends."""


def deadlines(state: SandboxState, terms: LifetimeTerms, *, keeps_memory: bool, is_on_disk: bool = False) -> Deadlines:
    """Return the deadlines of the sandbox.

    *is_on_disk*: it is paused to disk from now on, where only its maximum lifetime ends it.
    """
    runs = msgspec.structs.replace(state, phase=SandboxPhase.PAUSED if is_on_disk else SandboxPhase.RUNNING, held=False)
    wakeful = msgspec.structs.replace(terms, standby_after_s=0.0)
    first = due(runs, wakeful, keeps_memory=keeps_memory, in_turn=False)
    pause_at = first.at if first is not None and first.step is LifecycleStep.PAUSE else None
    ends = first
    if pause_at is not None:
        paused = msgspec.structs.replace(runs, phase=SandboxPhase.PAUSED, held=False)
        ends = due(paused, wakeful, keeps_memory=keeps_memory, in_turn=False)
    standby_at = state.used_at + terms.standby_after_s if terms.standby_after_s and not is_on_disk else None
    if standby_at is not None and first is not None and standby_at >= first.at:
        standby_at = None
    return Deadlines(standby_at, pause_at, None if ends is None else ends.at)


def format_duration(seconds: float) -> str:
    """Format *seconds* for the user: `15 min`, `24 h`, `2.5 s`."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
