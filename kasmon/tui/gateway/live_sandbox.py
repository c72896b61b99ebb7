"""The sandbox operations of `LiveGateway`; imported by the first command about a sandbox."""

import asyncio
from typing import Literal, cast

from kasmon.config import Config, ProfileOffer, offers, resolve
from kasmon.model.commands import Checkpoint, Mode, Run, SandboxCommand
from kasmon.model.sandbox.policy import SIZES, Tier
from kasmon.model.sandbox.snapshot import origin_words
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sanitize import clean_block
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes import availability, sandbox_operations
from kasmon.supervisor.sandboxes.agent_policy import describe_sandbox, is_agreed
from kasmon.supervisor.sandboxes.create import CALLED, NewSandbox
from kasmon.supervisor.sandboxes.history import read_history
from kasmon.supervisor.sessions.folder_config import for_session, in_folder
from kasmon.tui.gateway.protocol import (
    CreateSession,
    ForkSandbox,
    ReplaySandbox,
    SandboxChoices,
    SandboxPreview,
    TierOffer,
)

__all__ = ["confined", "create", "execute", "forget", "fork", "read_history", "replay", "turn_diff"]

forget = sandbox_operations.remove


async def execute(places: Paths, session: Session, command: SandboxCommand) -> str:
    """Execute *command* in the sandbox; return a sentence for the user. A run's output is in the transcript."""
    if isinstance(command, Run):
        await sandbox_operations.run(places, session, command.interpreter, command.code)
        return ""
    checkpoint = await sandbox_operations.keep(places, session, command)
    if isinstance(command, Checkpoint):
        return (
            f"{session.name}: checkpoint {checkpoint} created"
            if checkpoint
            else f"{session.name}: no checkpoint could be created"
        )
    return f"{session.name}: {checkpoint}" if checkpoint else ""


def offered(places: Paths, config: Config, folder: str) -> tuple[ProfileOffer, ...]:
    """Return the choices for a new session in *folder*: the profiles, and interpreters in the config's sandbox tier."""
    found = offers(in_folder(places, config, folder).config if folder else config)
    tier = config.sandbox.tier
    interpreters = ProfileOffer(name=CALLED, modes=(Mode.INTERPRETER,), confines=(Mode.INTERPRETER,), sandbox=tier)
    can = sum(not offer.problem for offer in found)
    return (*found[:can], interpreters, *found[can:])


def may_be(places: Paths, config: Config) -> SandboxChoices:
    """Return the sandboxes that a new session may use, judged without trying them; blocks."""
    tiers = tuple(
        TierOffer(
            tier=each.tier,
            why_not=f"A {each.tier} sandbox is unavailable: {each.why_not}.\n{each.hint}".strip()
            if each.why_not
            else "",
            has_agents=each.has_agents,
        )
        for each in availability.list_tiers(places)
    )
    usual = config.sandbox
    return SandboxChoices(tiers=tiers, sizes=tuple(SIZES), size=usual.size, hosts=usual.network, project=usual.project)


def confined(places: Paths, config: Config, agent: str, mode: Mode | None, workdir: str, tier: str) -> SandboxPreview:
    """Return what the sandbox of *agent* would get in *workdir*, with *tier*; blocks.

    Raises:
        KasmonError: if it cannot have one.
    """
    resolved = resolve(for_session(places, config, workdir, agent).config, agent, mode, sandbox=tier)
    availability.must_carry(places, resolved, workdir)
    return SandboxPreview(lines=describe_sandbox(resolved, workdir), is_agreed=is_agreed(places, resolved))


async def create(places: Paths, config: Config, wanted: CreateSession) -> None:
    """Create an interpreter sandbox; bash runs its first prompt, if there is one."""
    new = NewSandbox(
        name=wanted.name,
        tier=cast("Tier", wanted.sandbox) if wanted.sandbox else None,
        size=cast("Literal['default', 'build', 'max'] | None", wanted.size),
        folder=wanted.workdir,
        hosts=wanted.hosts,
    )
    made = await sandbox_operations.create(places, config, new)
    session = (await asyncio.to_thread(read_fleet, places)).get(made)
    if wanted.prompt and session is not None:
        await sandbox_operations.run(places, session, "bash", wanted.prompt)


async def fork(places: Paths, session: Session, wanted: ForkSandbox) -> str:
    """Create a sandbox from the present or a former state of *session*'s; return what was copied and what was lost."""
    made = await sandbox_operations.fork(places, session, wanted.name, wanted.checkpoint)
    said = f"Created {wanted.name} from {session.name}, {origin_words(made.origin)}."
    return f"{said} {session.name} lost: {made.lost}" if made.lost else said


async def replay(places: Paths, session: Session, wanted: ReplaySandbox) -> str:
    """Run the history of *session*'s sandbox again in a new one; return the outcome."""
    return await sandbox_operations.replay_session(places, session, wanted.name, wanted.checkpoint)


async def turn_diff(places: Paths, session: Session, turn: int | None = None) -> str:
    """Return the cleaned diff of *turn*, by default the last one that ended, in its files."""
    return clean_block(await asyncio.to_thread(sandbox_operations.diff, places, session, turn))
