"""What the world of a real kasmon does with sandboxes; loaded by the first who wants something of one."""

import asyncio

import msgspec

from kasmon.clean import clean_block
from kasmon.config import Config, Offer, offers, resolve
from kasmon.model.command import Checkpoint, Mode, Run, SandboxWish
from kasmon.model.session import Session
from kasmon.paths import Places
from kasmon.sandbox.jail.probing import lacking
from kasmon.supervisor import sandboxes
from kasmon.supervisor.confining import is_agreed, told
from kasmon.supervisor.housing import CALLED, NewSandbox
from kasmon.supervisor.look import look_once
from kasmon.supervisor.replaying import replayed
from kasmon.supervisor.sandbox_past import past
from kasmon.tui.world import Confined, Create, ForkSandbox, ReplaySandbox

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


def offered(config: Config) -> tuple[Offer, ...]:
    """What a new session can be: the profiles, and interpreters where this machine makes sandboxes."""
    found = offers(config)
    if lacking("bwrap"):
        return tuple(msgspec.structs.replace(offer, jails=()) for offer in found)
    interpreters = Offer(name=CALLED, modes=(Mode.INTERPRETER,), jails=(Mode.INTERPRETER,), sandbox="jail")
    can = sum(not offer.problem for offer in found)
    return (*found[:can], interpreters, *found[can:])


def confined(places: Places, config: Config, agent: str, mode: Mode | None, workdir: str) -> Confined:
    """What the sandbox of *agent* would get in *workdir*; blocks.

    Raises:
        KasmonError: if it can have none.
    """
    resolved = resolve(config, agent, mode, sandbox="jail")
    return Confined(lines=told(resolved, workdir), is_agreed=is_agreed(places, resolved))


async def create(places: Places, config: Config, wanted: Create) -> None:
    """Make a sandbox of interpreters; its first prompt, if there is one, is run by bash."""
    made = await sandboxes.create(places, config, NewSandbox(name=wanted.name, folder=wanted.workdir))
    session = (await asyncio.to_thread(look_once, places)).get(made)
    if wanted.prompt and session is not None:
        await sandboxes.run(places, session, "bash", wanted.prompt)


async def fork(places: Places, config: Config, session: Session, wanted: ForkSandbox) -> None:
    """Make a sandbox that begins where that of *session* is, or was."""
    await sandboxes.fork(places, config, session, wanted.name, wanted.checkpoint)


async def replay(places: Places, session: Session, wanted: ReplaySandbox) -> str:
    """Run in a new sandbox what ran in that of *session*; what came of it."""
    return await replayed(places, session, wanted.name, wanted.checkpoint)


async def turn_diff(places: Places, session: Session, turn: int | None = None) -> str:
    """What *turn*, by default the last that is over, changed in its files; cleaned."""
    return clean_block(await asyncio.to_thread(sandboxes.diff, places, session, turn))
