"""The choice of a machine for a task, among what the machines offer. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from kasmon.model.formatting import count_text
from kasmon.model.permission import SessionId
from kasmon.model.plan.placement import MachineRequirement

REPOSITORY_WEIGHT: Final = 0.3
"""What it counts that a machine has the repository, compared with all its slots being free."""
LOAD_WEIGHT: Final = 0.5
"""What a load of 1 per processor counts against it; more load counts as 1."""
MEMORY_WEIGHT: Final = 0.5
"""What it counts against it to have no memory left; `ENOUGH_MB` counts nothing."""
ENOUGH_MB: Final = 2048


class AgentOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A profile on a machine."""

    name: str
    problem: str = ""
    """Why it cannot be started; empty if it can."""
    login: bool | None = None
    """Whether it has a log-in there; None if that is unknown, or it needs none."""


class MachineOffer(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine offers to tasks of plans, as `kasmon task offer` reports it there."""

    machine: str = ""
    """Its name here; `LOCAL` for this one."""
    problem: str = ""
    """Why nothing can be placed there: it did not answer, for example. The other fields are unknown then."""
    is_too_old: bool = False
    """Whether that is because its kasmon runs no tasks of other machines' plans. Known here, not reported there."""
    kasmon: str = ""
    labels: tuple[str, ...] = ()
    slots: int = 0
    """How many tasks of plans may run there at once."""
    tasks: tuple[SessionId, ...] = ()
    """The sessions of tasks that work there, of any plan."""
    sessions: int = 0
    load: float = 0.0
    """The load of the last minute for each processor."""
    memory_mb: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] | None = None
    """How much memory is available; None if unknown."""
    agents: tuple[AgentOffer, ...] = ()
    has_repository: bool | None = None
    """None if that is unknown."""


class MachineUse(NamedTuple):
    """How many tasks work on a machine, or are placed there: of this plan, and in all."""

    of_plan: int = 0
    total: int = 0


class MachineChoice(NamedTuple):
    machine: str
    """Empty if none can be chosen."""
    why: str
    """Why this one; else why not, for each machine."""


def choose(
    wanted: MachineRequirement,
    agent: str,
    offers: Sequence[MachineOffer],
    uses: Mapping[str, MachineUse],
    per_machine: int,
) -> MachineChoice:
    """Choose a machine for the next attempt of a task; the same one in whatever order the *offers* are.

    Args:
        wanted: the machines that it may run on.
        agent: the profile that it runs.
        offers: one for each machine.
        uses: machine -> the tasks there, including those that were placed there since it made its offer.
        per_machine: how many tasks of the plan may run on one machine at once.
    """
    named = sorted(
        (offer for offer in offers if wanted.machine in ("", offer.machine)), key=lambda offer: offer.machine
    )
    if not named:
        what = f"no machine {wanted.machine!r} is registered" if wanted.machine else "no machine is registered"
        return MachineChoice("", f"{what} (`kasmon machines`)")
    rejections = {
        offer.machine: _find_rejection(wanted, agent, offer, uses.get(offer.machine, MachineUse()), per_machine)
        for offer in named
    }
    eligible = [offer for offer in named if not rejections[offer.machine]]
    if not eligible:
        return MachineChoice("", "; ".join(f"{machine}: {why}" for machine, why in rejections.items()))
    best = max(eligible, key=lambda offer: _score(offer, uses.get(offer.machine, MachineUse())))
    return MachineChoice(best.machine, _describe(best, uses.get(best.machine, MachineUse())))


def _find_rejection(
    wanted: MachineRequirement, agent: str, offer: MachineOffer, use: MachineUse, per_machine: int
) -> str:
    """Return why *offer* cannot be chosen; empty if it can."""
    if offer.problem:
        return offer.problem
    if missing := [label for label in wanted.labels if label not in offer.labels]:
        return f"it has no label {', '.join(map(repr, missing))}"
    profile = next((each for each in offer.agents if each.name == agent), None)
    if profile is None:
        return f"it has no agent {agent!r}"
    if profile.problem:
        return profile.problem.rstrip(".")
    if profile.login is False:
        return f"its agent {agent!r} is not logged in"
    if use.of_plan >= per_machine:
        return f"{count_text(use.of_plan, 'task')} of this plan run there"
    if use.total >= offer.slots:
        return f"its {count_text(offer.slots, 'slot')} {'is' if offer.slots == 1 else 'are'} taken"
    return ""


def _score(offer: MachineOffer, use: MachineUse) -> float:
    """Return how well a machine suits; *offer* has a free slot."""
    free = (offer.slots - use.total) / offer.slots
    memory = 1.0 if offer.memory_mb is None else min(offer.memory_mb / ENOUGH_MB, 1.0)
    return (
        free
        + REPOSITORY_WEIGHT * (offer.has_repository is True)
        - LOAD_WEIGHT * min(max(offer.load, 0.0), 1.0)
        - MEMORY_WEIGHT * (1.0 - memory)
    )


def _describe(offer: MachineOffer, use: MachineUse) -> str:
    facts = [f"{offer.slots - use.total} of {count_text(offer.slots, 'slot')} free"]
    facts += ["has the repository"] if offer.has_repository else []
    facts += [f"load {offer.load:.1f}"]
    facts += [f"{offer.memory_mb / 1024:.1f} GB of memory free"] if offer.memory_mb is not None else []
    return ", ".join(facts)
