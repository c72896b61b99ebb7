"""Which sandboxes can be had here, and for which agents: asked of the tiers themselves, before anything is made.

Nothing is tried for that, as `kasmon doctor` does: a tier says what it takes that is not here.
"""

import os
from collections.abc import Mapping

import msgspec

from kasmon.config import ResolvedProfile
from kasmon.errors import NoSandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import LoggedTier, SandboxPolicy, Tier
from kasmon.paths import Paths
from kasmon.sandbox import tiers
from kasmon.sandbox.remote_guest.launch_spec import has_agents, lodging
from kasmon.sandbox.remote_guest.scripted_agent import adapted


class TierAvailability(msgspec.Struct, frozen=True, kw_only=True):
    """One tier as it can be had here."""

    tier: Tier
    why_not: str = ""
    """Why none can be made; empty where nothing speaks against it."""
    hint: str = ""
    """What would help."""
    has_agents: bool = True
    """Whether agents run in it; interpreters do in each."""


def offered(places: Paths) -> tuple[TierAvailability, ...]:
    """Every tier, in the order of the config."""
    found = []
    for tier in tiers.TIERS:
        why_not, hint = tiers.load(tier, places).missing() or ("", "")
        found.append(TierAvailability(tier=tier, why_not=why_not, hint=hint, has_agents=has_agents(tier, places)))
    return tuple(found)


def must_be_there(places: Paths, tier: LoggedTier) -> None:
    """
    Raises:
        NoSandboxError: if none of *tier* can be made here.
        UnableError: if there is no such tier.
    """
    if (lack := tiers.load(tier, places).missing()) is not None:
        raise NoSandboxError(tier, *lack)


def must_carry(
    places: Paths, resolved: ResolvedProfile, workdir: str, variables: Mapping[str, str] = os.environ
) -> None:
    """Refuse what could not be started: the agent of *resolved* in its sandbox, at work in *workdir*.

    Raises:
        NoSandboxError: if no sandbox of its tier can be made here.
        UnableError: if no agent runs in one, or not this one.
        NotFoundError: if its program is not there.
    """
    tier = resolved.sandbox
    if tier is None:
        return
    policy = SandboxPolicy(session=SessionId(""), tier=tier)
    lodges = None if tier == "jail" else lodging(places, policy)
    must_be_there(places, tier)
    if lodges is not None and resolved.argv:
        words, theirs = adapted(resolved.argv, dict(variables))
        lodges.fitted(policy, tuple(words), workdir, theirs)
