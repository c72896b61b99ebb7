"""What the world of a real kasmon does with sandboxes; loaded by the first who wants something of one."""

import asyncio
from typing import Literal, cast

from kasmon.config import Config, ProfileOffer, offers, resolve
from kasmon.model.commands import Checkpoint, Mode, Run, SandboxWish
from kasmon.model.sandbox.policy import SIZES, Tier
from kasmon.model.sandbox.snapshot import origin_words
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sanitize import clean_block
from kasmon.supervisor.fleet.snapshot import look_once
from kasmon.supervisor.sandboxes import availability, operations
from kasmon.supervisor.sandboxes.agent_policy import is_agreed, told
from kasmon.supervisor.sandboxes.create import CALLED, NewSandbox
from kasmon.supervisor.sandboxes.history import past
from kasmon.supervisor.sandboxes.replay import replayed
from kasmon.supervisor.sessions.folder_config import for_session, in_folder
from kasmon.tui.gateway.protocol import (
    CreateSession,
    ForkSandbox,
    ReplaySandbox,
    SandboxChoices,
    SandboxPreview,
    TierOffer,
)

__all__ = ["carried_out", "confined", "create", "forget", "fork", "past", "replay", "turn_diff"]

forget = operations.remove


async def carried_out(places: Paths, session: Session, wish: SandboxWish) -> str:
    """Carry *wish* to the session's sandbox; a sentence for the person. What a run printed its transcript tells."""
    if isinstance(wish, Run):
        await operations.run(places, session, wish.interpreter, wish.code)
        return ""
    told = await operations.keep(places, session, wish)
    if isinstance(wish, Checkpoint):
        return (
            f"{session.name}: checkpoint {told} created" if told else f"{session.name}: no checkpoint could be created"
        )
    return f"{session.name}: {told}" if told else ""


def offered(places: Paths, config: Config, folder: str) -> tuple[ProfileOffer, ...]:
    """What a new session in *folder* can be: the profiles, and interpreters in a sandbox of the config's tier."""
    found = offers(in_folder(places, config, folder).config if folder else config)
    tier = config.sandbox.tier
    interpreters = ProfileOffer(name=CALLED, modes=(Mode.INTERPRETER,), confines=(Mode.INTERPRETER,), sandbox=tier)
    can = sum(not offer.problem for offer in found)
    return (*found[:can], interpreters, *found[can:])


def may_be(places: Paths, config: Config) -> SandboxChoices:
    """What a new session may be confined by, as far as that is seen without trying it; blocks."""
    tiers = tuple(
        TierOffer(
            tier=each.tier,
            why_not=f"A {each.tier} sandbox is unavailable: {each.why_not}.\n{each.hint}".strip()
            if each.why_not
            else "",
            has_agents=each.has_agents,
        )
        for each in availability.offered(places)
    )
    usual = config.sandbox
    return SandboxChoices(tiers=tiers, sizes=tuple(SIZES), size=usual.size, hosts=usual.network, project=usual.project)


def confined(places: Paths, config: Config, agent: str, mode: Mode | None, workdir: str, tier: str) -> SandboxPreview:
    """What the sandbox of *agent* would get in *workdir*, one of *tier*; blocks.

    Raises:
        KasmonError: if it can have none.
    """
    resolved = resolve(for_session(places, config, workdir, agent).config, agent, mode, sandbox=tier)
    availability.must_carry(places, resolved, workdir)
    return SandboxPreview(lines=told(resolved, workdir), is_agreed=is_agreed(places, resolved))


async def create(places: Paths, config: Config, wanted: CreateSession) -> None:
    """Make a sandbox of interpreters; its first prompt, if there is one, is run by bash."""
    new = NewSandbox(
        name=wanted.name,
        tier=cast("Tier", wanted.sandbox) if wanted.sandbox else None,
        size=cast("Literal['default', 'build', 'max'] | None", wanted.size),
        folder=wanted.workdir,
        hosts=wanted.hosts,
    )
    made = await operations.create(places, config, new)
    session = (await asyncio.to_thread(look_once, places)).get(made)
    if wanted.prompt and session is not None:
        await operations.run(places, session, "bash", wanted.prompt)


async def fork(places: Paths, session: Session, wanted: ForkSandbox) -> str:
    """Make a sandbox that begins where that of *session* is, or was; how much of that it has."""
    made = await operations.fork(places, session, wanted.name, wanted.checkpoint)
    said = f"Created {wanted.name} from {session.name}, {origin_words(made.origin)}."
    return f"{said} {session.name} lost: {made.lost}" if made.lost else said


async def replay(places: Paths, session: Session, wanted: ReplaySandbox) -> str:
    """Run in a new sandbox what ran in that of *session*; what came of it."""
    return await replayed(places, session, wanted.name, wanted.checkpoint)


async def turn_diff(places: Paths, session: Session, turn: int | None = None) -> str:
    """What *turn*, by default the last that is over, changed in its files; cleaned."""
    return clean_block(await asyncio.to_thread(operations.diff, places, session, turn))
