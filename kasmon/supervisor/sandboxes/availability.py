"""Which sandbox tiers are available here, and for which agents: checked before anything is created.

Nothing is run for that, unlike in `kasmon doctor`: each tier reports its missing requirements.
"""

import os

import msgspec

from kasmon.config import ResolvedProfile
from kasmon.errors import NoSandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import LoggedTier, SandboxPolicy, Tier
from kasmon.paths import Paths
from kasmon.sandbox import tiers
from kasmon.sandbox.remote_guest.launch_spec import has_agents, load_agent_tier
from kasmon.sandbox.remote_guest.scripted_agent import adapted


class TierAvailability(msgspec.Struct, frozen=True, kw_only=True):
    tier: Tier
    why_not: str = ""
    """Why it is unavailable; empty if nothing known prevents it."""
    hint: str = ""
    has_agents: bool = True
    """Whether agents run in it; interpreters run in every tier."""


def list_tiers(paths: Paths) -> tuple[TierAvailability, ...]:
    """Return every tier, in the order of the config."""
    found = []
    for tier in tiers.TIERS:
        why_not, hint = tiers.load(tier, paths).missing() or ("", "")
        found.append(TierAvailability(tier=tier, why_not=why_not, hint=hint, has_agents=has_agents(tier, paths)))
    return tuple(found)


def must_be_there(paths: Paths, tier: LoggedTier) -> None:
    """Raise `NoSandboxError` if the requirements of *tier* are missing, `UnableError` if there is no such tier."""
    if (missing := tiers.load(tier, paths).missing()) is not None:
        raise NoSandboxError(tier, *missing)


def must_confine(paths: Paths, resolved: ResolvedProfile, workdir: str) -> None:
    """Raise unless the agent of *resolved* can start in its sandbox, working in *workdir*.

    Raises:
        UnableError: if no agent runs in one, or not this one.
        NotFoundError: if its program does not exist.
        NoSandboxError: as `must_be_there`.
    """
    tier = resolved.sandbox
    if tier is None:
        return
    policy = SandboxPolicy(session=SessionId(""), tier=tier)
    agent_tier = None if tier == "jail" else load_agent_tier(paths, policy)
    must_be_there(paths, tier)
    if agent_tier is not None and resolved.argv:
        arguments, guest_variables = adapted(resolved.argv, dict(os.environ))
        agent_tier.prepare_program(policy, tuple(arguments), workdir, guest_variables)
