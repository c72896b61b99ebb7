"""Checks of agents: which can start, which get hooks, which run in another mode than requested."""

import asyncio
import shutil
from collections.abc import Iterator, Mapping
from typing import Final

from kasmon.agents.catalog import find
from kasmon.backends.common.environment import program_of
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.config import Config, ProfileOffer, load, offers, resolve
from kasmon.errors import KasmonError
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths
from kasmon.supervisor.fleet.snapshot import read_fleet

VERSION_S: Final = 3.0


def agents(where: Paths, environment: Mapping[str, str]) -> DoctorCheck:
    """Report which agents can be started."""
    try:
        offered = offers(load(where), environment)
    except KasmonError:
        return DoctorCheck("agents", "warn", "unknown: the config is not valid")
    can = [offer.name for offer in offered if not offer.problem]
    return DoctorCheck("agents", "ok", f"available: {', '.join(can)}")


def versions(where: Paths, environment: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Report the version of each coding agent, whether it was tested with kasmon, and its modes."""
    from kasmon.backends.common.agent_version import find_version, numbers  # it loads asyncio, which no other needs

    config, offered = _load_startable(where, environment)
    agents = [(offer, program_of((config.agents[offer.name].program,))) for offer in offered]
    agents = [(offer, program) for offer, program in agents if find(program).tried]
    if not agents:
        return

    async def find_versions() -> list[str]:
        paths = [shutil.which(config.agents[offer.name].program, path=environment.get("PATH")) for offer, _ in agents]
        return await asyncio.gather(
            *(find_version([place or ""], "/", environment, VERSION_S) if place else _report_none() for place in paths)
        )

    lines, is_older = [], False
    for (offer, program), version in zip(agents, asyncio.run(find_versions()), strict=True):
        modes = " and ".join(mode.value for mode in offer.modes)
        tried = find(program).tried
        state = "tried" if version == tried else f"tested with {tried}"
        is_older |= bool(version) and numbers(version) < numbers(tried)
        lines.append(f"{offer.name} {version or 'that does not report its version'} ({state}; {modes})")
    text = "; ".join(lines)
    if is_older:
        yield DoctorCheck("versions", "warn", text, fix="Update the older ones: they may not know a flag.")
    else:
        yield DoctorCheck("versions", "ok", text)


async def _report_none() -> str:
    return ""


def hooks(where: Paths, environment: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Report which terminal agents get hooks by an argument at each start, and why the others get none."""
    from kasmon.backends.tmux.evidence.hook_setup import (  # it loads asyncio, which no other check needs
        hookable,
        why_not,
    )

    config, offered = _load_startable(where, environment)
    lines: list[str] = []
    for name in (offer.name for offer in offered):
        profile = config.agents[name]
        argv = (shutil.which(profile.program, path=environment.get("PATH")) or profile.program, *profile.flags)
        if (program := hookable(argv)) is not None:
            why = why_not(program, argv)
            lines.append(f"{name}: none, {why}" if why else f"{name}: by an argument, for each start")
    if lines:
        yield DoctorCheck("hooks", "ok", "; ".join(lines))


def _load_startable(where: Paths, environment: Mapping[str, str]) -> tuple[Config, list[ProfileOffer]]:
    """Return the config, and the agents in it that can start; none if it is wrong, which another check reports."""
    try:
        config = load(where)
        return config, [offer for offer in offers(config, environment) if not offer.problem]
    except KasmonError:
        return Config(), []


def statuses(where: Paths, environment: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Report which terminal agents have no status of their own, and why: their state comes from other sources."""
    config, offered = _load_startable(where, environment)
    silent = [(each.name, program_of((config.agents[each.name].program,), each.name)) for each in offered]
    lines = [f"{name}: {why}" for name, program in silent if (why := find(program).evidence.no_status)]
    if lines:
        text = f"{'; '.join(lines)}. In a terminal, their state comes from hooks, files, title and screen"
        yield DoctorCheck("status", "ok", text)


def fallbacks(where: Paths, environment: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Report profiles and live sessions that run in tmux though structured was requested, and why."""
    config, offered = _load_startable(where, environment)
    try:
        profiles = {each.name: resolve(config, each.name, environment=environment).fallback for each in offered}
        alive = [session for session in read_fleet(where).sessions if session.state in ALIVE]
    except KasmonError:
        return  # other checks report it
    lines = [f"{name}: {why}" for name, why in profiles.items() if why]
    lines += [f"session {session.name!r}: {session.fallback}" for session in alive if session.fallback]
    if lines:
        fix = 'Set the profile\'s `execution_mode` to "tmux"; or, where its program speaks ACP, its `acp` arguments.'
        text = f"in tmux, though sdk was asked for: {'; '.join(lines)}"
        names = {session.name: session.id for session in alive if session.fallback}
        yield DoctorCheck("fallback", "warn", text, fix=fix, private=names)
