"""A session's place in a larger work: its task, its wave, its peers, and the variables that tell its agent so."""

from collections.abc import Mapping

import msgspec

from kasmon.model.command import Launch

OWN_PREFIXES = ("KASMON_", "KASMOS_")
"""Variables that kasmon alone sets; nobody passes them to an agent by hand."""


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session stands among those that run beside it."""

    task: int | None = None
    wave: int | None = None
    size: int | None = None
    """The size of the wave, this session counted."""
    plan: str | None = None


def peers(launch: Launch) -> Peers:
    """The place that *launch* gives its session."""
    return Peers(task=launch.task, wave=launch.wave, size=launch.peers, plan=launch.plan)


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
