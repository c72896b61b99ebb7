"""What `kasmon doctor` says of agents: which can start, which get hooks, which run in another mode than was asked."""

import asyncio
import shutil
from collections.abc import Iterator, Mapping
from typing import Final

from kasmon.backends.surroundings import program_of
from kasmon.commands.check import Check
from kasmon.config import load, offers, resolve
from kasmon.errors import KasmonError
from kasmon.model.state import ALIVE
from kasmon.paths import Places
from kasmon.supervisor.look import look_once

VERSION_S: Final = 3.0
"""How long an agent may take to say its version, in seconds."""


def agents(where: Places, environment: Mapping[str, str]) -> Check:
    """Which agents can be started here."""
    try:
        offered = offers(load(where), environment)
    except KasmonError:
        return Check(id="agents", level="warn", text="not known while the config cannot be used")
    can = [offer.name for offer in offered if not offer.problem]
    return Check(id="agents", level="ok", text=f"can be started: {', '.join(can)}")


def versions(where: Places, environment: Mapping[str, str]) -> Iterator[Check]:
    """Which version of each coding agent is there, whether kasmon was tried with it, and how it can run."""
    from kasmon.backends.version import TRIED, found, numbers  # with it comes the loop that no other check needs

    try:
        config = load(where)
        offered = [offer for offer in offers(config, environment) if not offer.problem]
    except KasmonError:
        return
    agents = [(offer, program_of((config.agents[offer.name].program,))) for offer in offered]
    agents = [(offer, program) for offer, program in agents if program in TRIED]
    if not agents:
        return

    async def asked() -> list[str]:
        places = [shutil.which(config.agents[offer.name].program, path=environment.get("PATH")) for offer, _ in agents]
        return await asyncio.gather(
            *(found([place or ""], "/", environment, VERSION_S) if place else _nothing() for place in places)
        )

    told, is_older = [], False
    for (offer, program), version in zip(agents, asyncio.run(asked()), strict=True):
        modes = " and ".join(mode.value for mode in offer.modes)
        tried = TRIED[program]
        state = "tried" if version == tried else f"tried is {tried}"
        is_older |= bool(version) and numbers(version) < numbers(tried)
        told.append(f"{offer.name} {version or 'that does not say its version'} ({state}; {modes})")
    text = "; ".join(told)
    if is_older:
        yield Check(id="versions", level="warn", text=text, fix="Update the older ones: a flag may be unknown to them.")
    else:
        yield Check(id="versions", level="ok", text=text)


async def _nothing() -> str:
    return ""


def hooks(where: Places, environment: Mapping[str, str]) -> Iterator[Check]:
    """Which agents get hooks in a terminal, for the one start; and why the others get none."""
    from kasmon.backends.tmux.hooking import hookable, why_not  # with it comes the loop that no other check needs

    try:
        config = load(where)
        known = [offer.name for offer in offers(config, environment) if not offer.problem]
    except KasmonError:
        return
    told: list[str] = []
    for name in known:
        profile = config.agents[name]
        argv = (shutil.which(profile.program, path=environment.get("PATH")) or profile.program, *profile.flags)
        if (program := hookable(argv)) is not None:
            why = why_not(program, argv)
            told.append(f"{name}: none, {why}" if why else f"{name}: by an argument, for each start")
    if told:
        yield Check(id="hooks", level="ok", text="; ".join(told))


def statuses(where: Places, environment: Mapping[str, str]) -> Iterator[Check]:
    """Which agents report no status of their own in a terminal, and why: then other sources say their state."""
    from kasmon.backends.tmux.absent import STATUS  # as above
    from kasmon.backends.tmux.program import program_of as running

    try:
        config = load(where)
        known = [offer.name for offer in offers(config, environment) if not offer.problem]
    except KasmonError:
        return
    silent = [(name, running((config.agents[name].program,), name)) for name in known]
    told = [f"{name}: {STATUS[program]}" for name, program in silent if program in STATUS]
    if told:
        text = f"{'; '.join(told)}. Hooks, files, title and screen say their state in a terminal"
        yield Check(id="status", level="ok", text=text)


def fallbacks(where: Places, environment: Mapping[str, str]) -> Iterator[Check]:
    """Who was asked to run structured and runs in tmux, and why: profiles, and sessions that live."""
    try:
        config = load(where)
        startable = [offer.name for offer in offers(config, environment) if not offer.problem]
        profiles = {name: resolve(config, name, environment=environment).fallback for name in startable}
        alive = [session for session in look_once(where).sessions if session.state in ALIVE]
    except KasmonError:
        return  # other checks say why
    told = [f"{name}: {why}" for name, why in profiles.items() if why]
    told += [f"session {session.name!r}: {session.fallback}" for session in alive if session.fallback]
    if told:
        fix = 'Set the profile\'s `execution_mode` to "tmux"; or, where its program speaks ACP, its `acp` arguments.'
        text = f"in tmux, though sdk was asked for: {'; '.join(told)}"
        names = {session.name: session.id for session in alive if session.fallback}
        yield Check(id="fallback", level="warn", text=text, fix=fix, private=names)
