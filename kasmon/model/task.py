"""A session's place in a plan: its task, its wave, its peers, the variables that pass them to its agent, and what
the agent reports about its task."""

from collections.abc import Mapping
from typing import Final

import msgspec

from kasmon.model.commands import Launch
from kasmon.model.events import ContextReported
from kasmon.sanitize import clean_line

LONGEST: Final = 200
"""The maximum length of a reason or a remark, in characters."""


def build_report(waiting: str | None, done: str | None, at: float) -> ContextReported:
    """Return the event that it waits for something, or is done; None is unchanged."""
    return ContextReported(at=at, waiting=_cut(waiting), done=_cut(done))


def _cut(text: str | None) -> str | None:
    return None if text is None else clean_line(text).strip()[:LONGEST]


OWN_PREFIXES = ("KASMON_", "KASMOS_")
"""Variables that only kasmon sets; users cannot pass them to an agent."""


class TaskGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A session's place among the sessions that run beside it."""

    task: int | None = None
    wave: int | None = None
    size: int | None = None
    """The size of the wave, including this session."""
    plan: str | None = None


def peers(launch: Launch) -> TaskGroup:
    """Return the place that *launch* gives its session."""
    return TaskGroup(task=launch.task, wave=launch.wave, size=launch.peers, plan=launch.plan)


def environment(launch: Launch) -> dict[str, str]:
    """Return kasmon's own variables for the agent of *launch*.

    Each is set twice, as `KASMON_X` and, for tools written for kasmos, as `KASMOS_X`. A session without a task, wave or
    plan has no variable for it.
    """
    place = peers(launch)
    values: Mapping[str, object] = {
        "SESSION": launch.session,
        "TASK": place.task,
        "WAVE": place.wave,
        "PEERS": place.size,
        "PLAN": place.plan,
    }
    return {
        f"{prefix}{name}": str(value) for prefix in OWN_PREFIXES for name, value in values.items() if value is not None
    }
