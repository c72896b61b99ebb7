"""The acts on sandboxes of interpreters that the command line, MCP and the dashboard share.

Reaching one starts its host where that is gone; a host finds the sandbox again that the one before it left.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator

import msgspec

from kasmon.config import Config
from kasmon.errors import (
    KasmonError,
    SandboxError,
    SessionEndedError,
    SessionNotFoundError,
)
from kasmon.host.alive import lock_holder
from kasmon.model.command import Fork, Wake
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Interpreter
from kasmon.model.session import Session
from kasmon.model.snapshot import Origin
from kasmon.model.state import SessionState
from kasmon.paths import Places
from kasmon.sandbox import tiers
from kasmon.sandbox.base import Reachable
from kasmon.sandbox.box import FILES_KEPT, MEMORY_LOST
from kasmon.sandbox.checkpoint.checkpoint import Checkpoints
from kasmon.sandbox.checkpoint.replay import replay
from kasmon.sandbox.network.forwarding import Forward
from kasmon.sandbox.origin import origin_of
from kasmon.store.log import EventLog
from kasmon.supervisor import verb
from kasmon.supervisor.begin import begin
from kasmon.supervisor.housing import NewSandbox, made_known, policy_of_session, prepared, taken_back
from kasmon.supervisor.look import look_once
from kasmon.supervisor.names import next_name, proper
from kasmon.supervisor.sandbox_use import interrupt, keep, must_be_sandbox, new_run, run, take_up

__all__ = [
    "Forked",
    "NewSandbox",
    "create",
    "diff",
    "ephemeral",
    "fork",
    "forwarded",
    "get_or_create",
    "history",
    "interrupt",
    "keep",
    "must_be_sandbox",
    "new_run",
    "remove",
    "run",
    "take_up",
]


class Forked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a fork."""

    session: SessionId
    """The new one."""
    origin: Origin
    """What that has of its source."""
    lost: str = ""
    """What the source lost by it; empty where nothing."""


async def create(places: Places, config: Config, wanted: NewSandbox) -> SessionId:
    """Make the sandbox that is *wanted* and return its session's id; it runs then.

    Raises:
        UsageError: if a name, a folder or a credential makes no sense as written.
        NameTakenError: if another session that is not forgotten has the name.
        UnableError: if there is no such tier.
        KasmonError: if it could not be made; its session has ended then.
    """
    launch = await asyncio.to_thread(prepared, places, config, wanted, time.time())
    await begin(places, launch)
    return launch.session


async def get_or_create(places: Places, config: Config, wanted: NewSandbox) -> tuple[SessionId, str]:
    """The session called as *wanted* says, woken and looked at; what was lost by that, empty where nothing was.

    It is made where it is not there, and begun anew over the same files where it has ended.

    Raises:
        KasmonError: as `create` does.
        UnableError: if a session of another kind has the name.
    """
    fleet = await asyncio.to_thread(look_once, places)
    known = next((session for session in fleet.sessions if session.name == wanted.name), None)
    if known is None:
        return await create(places, config, wanted), ""
    must_be_sandbox(known)
    if known.state is SessionState.ENDED:
        await verb.restart(places, known)
        return known.id, f"it had ended ({known.end_why or 'nobody knows why'}): {MEMORY_LOST}; {FILES_KEPT}"
    return known.id, await keep(places, known, Wake())


@contextlib.asynccontextmanager
async def ephemeral(places: Places, config: Config, wanted: NewSandbox) -> AsyncIterator[Session]:
    """A session like *wanted* that is there as long as the context lasts; its name has a few letters more.

    Raises:
        KasmonError: as `create` and `remove` do.
    """
    name = f"{wanted.name}-{secrets.token_hex(4)}"
    session = await create(places, config, msgspec.structs.replace(wanted, name=name))
    try:
        yield await asyncio.to_thread(_seen, places, session)
    finally:
        await remove(places, await asyncio.to_thread(_seen, places, session))


def history(places: Places, session: Session, until: str = "") -> tuple[tuple[Interpreter, str], ...]:
    """The codes that *session* ran until the checkpoint *until* (empty: until now), each with its interpreter.

    Raises:
        NotFoundError: if there is no such checkpoint.
        UnableError: if the session is no sandbox of interpreters.
    """
    must_be_sandbox(session)
    facts = (event for event, _ in EventLog(places.log(session.id)).read())
    return replay(facts, lambda digest: (places.blobs(session.id) / digest).read_text("utf-8"), until)


async def fork(places: Places, session: Session, name: str = "", checkpoint: str = "") -> Forked:
    """Make a session called *name* that begins where *session* is, or was at *checkpoint*; both go on.

    It has all memory too where the tier can copy that and no checkpoint is named; the origin says so, or why not. An
    empty name is the source's own with a number behind it.

    Raises:
        NotFoundError: if there is no such checkpoint.
        SandboxError: if it sleeps in a memory that may not be gone on from, or its tier is not there.
        KasmonError: as `create` and `keep` do; there is no new session then.
    """
    must_be_sandbox(session)
    known = await asyncio.to_thread(policy_of_session, places, session.id)
    policy = msgspec.structs.replace(known, workspace="")
    origin = Origin(source=session.id, name=session.name, at=time.time())
    name = proper(name) if name else await asyncio.to_thread(next_name, places, session.name)
    launch = await asyncio.to_thread(made_known, places, name, policy, origin.at, origin)
    furnished = msgspec.structs.replace(policy, session=launch.session)
    memory = str(places.inherited(launch.session))
    wish = Fork(checkpoint=checkpoint, folder=launch.workdir, memory=memory, session=launch.session)
    try:
        await asyncio.to_thread(lambda: tiers.furnish(tiers.load(policy.tier), furnished))
        lost = await keep(places, session, wish)
    except BaseException:
        await asyncio.to_thread(taken_back, places, launch.session)
        raise
    await begin(places, launch)
    got = await asyncio.to_thread(origin_of, places, launch.session)
    return Forked(session=launch.session, origin=got or origin, lost=lost)


async def forwarded(places: Places, session: Session, port: int, here: int = 0) -> Forward:
    """A listener at port *here* of this machine's loopback, 0 being any free one, that leads to *port* inside.

    Raises:
        SandboxError: if the sandbox's network cannot be reached.
        RefusedError: if *here* is taken.
        KasmonError: as `keep` does: it is woken for this.
    """
    await keep(places, session, Wake())
    now = (await asyncio.to_thread(look_once, places)).get(session.id)
    runtime = now.housing.runtime if now is not None and now.housing is not None else None
    policy = await asyncio.to_thread(policy_of_session, places, session.id)
    tier = tiers.load(policy.tier, places)
    if runtime is None or not isinstance(tier, Reachable):
        raise SandboxError(f"no port of {session.name!r} can be reached", f"a {policy.tier} has no way to one")

    def opened() -> Forward:
        way = tier.ports(policy, runtime)
        return Forward(lambda: way.connect(port), here)

    return await asyncio.to_thread(opened)


def diff(places: Places, session: Session, turn: int | None = None) -> str:
    """What *turn*, by default the last that is over, changed in the files, as a unified diff; its text is foreign.

    Raises:
        NotFoundError: if no checkpoint tells.
        UnableError: if the session is no sandbox of interpreters.
    """
    must_be_sandbox(session)
    points = Checkpoints(places.checkpoints(session.id))
    last = max((point.turn for point in points.all() if point.when == "after"), default=0)
    return points.diff(last if turn is None else turn)


async def remove(places: Places, session: Session) -> str:
    """End the session's sandbox if it is there, and forget the session: no process, socket or folder of it is left.

    Where it worked on a copy of the folder that it was given, and not all in it is as it is there, the copy stays: its
    path, else "".

    Raises:
        UnableError: if the session is no sandbox of interpreters.
        KasmonError: if something of it is left.
    """
    must_be_sandbox(session)
    if session.state not in (SessionState.ENDED, SessionState.LOST):
        try:
            await take_up(places, session)
            await verb.stop(places, msgspec.structs.replace(session, state=SessionState.IDLE))
        except SessionEndedError:
            pass
        except KasmonError:
            if await asyncio.to_thread(lock_holder, places.host_lock(session.id)) is not None:
                raise  # it may be at work on the sandbox; where there is no host, what is left goes below
        session = msgspec.structs.replace(session, state=SessionState.ENDED)
    return await verb.forget(places, session)


def _seen(places: Places, session: SessionId) -> Session:
    now = look_once(places).get(session)
    if now is None:
        raise SessionNotFoundError(session)
    return now
