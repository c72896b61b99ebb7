"""A session's place in a plan: its task, its wave, its peers, the variables that tell them to its agent, and what
the agent declares about its task.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kasmon.model.commands import Launch
from kasmon.model.events import ContextReported
from kasmon.sanitize import clean_line

LONGEST: Final = 200
"""Characters of a reason, or of a word on what is done."""


def declared(waiting: str | None, done: str | None, at: float) -> ContextReported:
    """The fact that it waits for something, or is done; None leaves the one as it was."""
    return ContextReported(at=at, waiting=_cut(waiting), done=_cut(done))


def _cut(text: str | None) -> str | None:
    return None if text is None else clean_line(text).strip()[:LONGEST]


OWN_PREFIXES = ("KASMON_", "KASMOS_")
"""Variables that kasmon alone sets; nobody passes them to an agent by hand."""


class TaskGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session stands among those that run beside it."""

    task: int | None = None
    wave: int | None = None
    size: int | None = None
    """The size of the wave, this session counted."""
    plan: str | None = None


def peers(launch: Launch) -> TaskGroup:
    """The place that *launch* gives its session."""
    return TaskGroup(task=launch.task, wave=launch.wave, size=launch.peers, plan=launch.plan)


def environment(launch: Launch) -> dict[str, str]:
    """kasmon's own variables for the agent of *launch*.

    Each comes twice, as `KASMON_X` and, for tools written for the ancestor, as `KASMOS_X`. A session without a task,
    wave or plan has no variable for it.
    """
    place = peers(launch)
    told: Mapping[str, object] = {
        "SESSION": launch.session,
        "TASK": place.task,
        "WAVE": place.wave,
        "PEERS": place.size,
        "PLAN": place.plan,
    }
    return {
        f"{prefix}{name}": str(value) for prefix in OWN_PREFIXES for name, value in told.items() if value is not None
    }
