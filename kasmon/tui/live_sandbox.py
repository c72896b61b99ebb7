"""What the world of a real kasmon does with sandboxes; loaded by the first who wants something of one."""

import asyncio
from typing import Literal, cast

from kasmon.clean import clean_block
from kasmon.config import Config, Offer, offers, resolve
from kasmon.model.command import Checkpoint, Mode, Run, SandboxWish
from kasmon.model.sandbox import SIZES, Tier
from kasmon.model.session import Session
from kasmon.model.snapshot import origin_words
from kasmon.paths import Places
from kasmon.supervisor import offering, sandboxes
from kasmon.supervisor.confining import is_agreed, told
from kasmon.supervisor.housing import CALLED, NewSandbox
from kasmon.supervisor.local_config import for_session, in_folder
from kasmon.supervisor.look import look_once
from kasmon.supervisor.replaying import replayed
from kasmon.supervisor.sandbox_past import past
from kasmon.tui.world import Confined, Create, ForkSandbox, ReplaySandbox, Sandboxes, TierOffer

__all__ = ["carried_out", "confined", "create", "forget", "fork", "past", "replay", "turn_diff"]

forget = sandboxes.remove


async def carried_out(places: Places, session: Session, wish: SandboxWish) -> str:
    """Carry *wish* to the session's sandbox; a sentence for the person. What a run printed its transcript tells."""
    if isinstance(wish, Run):
        await sandboxes.run(places, session, wish.interpreter, wish.code)
        return ""
    told = await sandboxes.keep(places, session, wish)
    if isinstance(wish, Checkpoint):
        return f"{session.name}: kept as {told}" if told else f"{session.name}: nothing could be kept"
    return f"{session.name}: {told}" if told else ""


def offered(places: Places, config: Config, folder: str) -> tuple[Offer, ...]:
    """What a new session in *folder* can be: the profiles, and interpreters in a sandbox of the config's tier."""
    found = offers(in_folder(places, config, folder).config if folder else config)
    tier = config.sandbox.tier
    interpreters = Offer(name=CALLED, modes=(Mode.INTERPRETER,), confines=(Mode.INTERPRETER,), sandbox=tier)
    can = sum(not offer.problem for offer in found)
    return (*found[:can], interpreters, *found[can:])


def may_be(places: Places, config: Config) -> Sandboxes:
    """What a new session may be confined by, as far as that is seen without trying it; blocks."""
    tiers = tuple(
        TierOffer(
            tier=each.tier,
            why_not=f"No {each.tier} can be made here: {each.why_not}.\n{each.hint}".strip() if each.why_not else "",
            has_agents=each.has_agents,
        )
        for each in offering.offered(places)
    )
    usual = config.sandbox
    return Sandboxes(tiers=tiers, sizes=tuple(SIZES), size=usual.size, hosts=usual.network, project=usual.project)


def confined(places: Places, config: Config, agent: str, mode: Mode | None, workdir: str, tier: str) -> Confined:
    """What the sandbox of *agent* would get in *workdir*, one of *tier*; blocks.

    Raises:
        KasmonError: if it can have none.
    """
    resolved = resolve(for_session(places, config, workdir, agent).config, agent, mode, sandbox=tier)
    offering.must_carry(places, resolved, workdir)
    return Confined(lines=told(resolved, workdir), is_agreed=is_agreed(places, resolved))


async def create(places: Places, config: Config, wanted: Create) -> None:
    """Make a sandbox of interpreters; its first prompt, if there is one, is run by bash."""
    new = NewSandbox(
        name=wanted.name,
        tier=cast("Tier", wanted.sandbox) if wanted.sandbox else None,
        size=cast("Literal['default', 'build', 'max'] | None", wanted.size),
        folder=wanted.workdir,
        hosts=wanted.hosts,
    )
    made = await sandboxes.create(places, config, new)
    session = (await asyncio.to_thread(look_once, places)).get(made)
    if wanted.prompt and session is not None:
        await sandboxes.run(places, session, "bash", wanted.prompt)


async def fork(places: Places, session: Session, wanted: ForkSandbox) -> str:
    """Make a sandbox that begins where that of *session* is, or was; how much of that it has."""
    made = await sandboxes.fork(places, session, wanted.name, wanted.checkpoint)
    said = f"{wanted.name} begins as {session.name}, {origin_words(made.origin)}."
    return f"{said} {session.name} lost something by that: {made.lost}" if made.lost else said


async def replay(places: Places, session: Session, wanted: ReplaySandbox) -> str:
    """Run in a new sandbox what ran in that of *session*; what came of it."""
    return await replayed(places, session, wanted.name, wanted.checkpoint)


async def turn_diff(places: Places, session: Session, turn: int | None = None) -> str:
    """What *turn*, by default the last that is over, changed in its files; cleaned."""
    return clean_block(await asyncio.to_thread(sandboxes.diff, places, session, turn))
