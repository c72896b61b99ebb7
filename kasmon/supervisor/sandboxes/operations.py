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
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Fork, Pause, Resume
from kasmon.model.events import SandboxMoved
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Interpreter, SandboxPhase
from kasmon.model.sandbox.snapshot import ForkOrigin
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.sandbox import tiers
from kasmon.sandbox.base import PortTier
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.checkpoint.replay import replay
from kasmon.sandbox.managed.origin import origin_of
from kasmon.sandbox.managed.sandbox import FILES_KEPT, MEMORY_LOST
from kasmon.sandbox.network.port_forward import PortForward
from kasmon.store.event_log import Cursor, EventLog
from kasmon.supervisor.fleet.snapshot import look_once
from kasmon.supervisor.sandboxes.create import NewSandbox, made_known, policy_of_session, prepared, taken_back
from kasmon.supervisor.sandboxes.snapshots import SnapshotReader
from kasmon.supervisor.sandboxes.use import interrupt, keep, must_be_sandbox, new_run, run, take_up
from kasmon.supervisor.sessions import operations
from kasmon.supervisor.sessions.names import next_name, proper
from kasmon.supervisor.sessions.start import begin

__all__ = [
    "ForkedSession",
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
    "pause",
    "remove",
    "run",
    "take_up",
]


class ForkedSession(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a fork."""

    session: SessionId
    """The new one."""
    origin: ForkOrigin
    """What that has of its source."""
    lost: str = ""
    """What the source lost by it; empty where nothing."""


async def create(places: Paths, config: Config, wanted: NewSandbox) -> SessionId:
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


async def get_or_create(places: Paths, config: Config, wanted: NewSandbox) -> tuple[SessionId, str]:
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
        await operations.restart(places, known)
        return known.id, f"it had ended ({known.end_why or 'unknown reason'}): {MEMORY_LOST}; {FILES_KEPT}"
    return known.id, await keep(places, known, Resume())


@contextlib.asynccontextmanager
async def ephemeral(places: Paths, config: Config, wanted: NewSandbox) -> AsyncIterator[Session]:
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


async def pause(places: Paths, session: Session, *, to_disk: bool) -> Session:
    """Put the session's sandbox to sleep, and read back that it slept with what it held; the session after that.

    Another caller may have woken it again by then: it slept all the same, and the session says that it runs.

    Raises:
        SandboxError: if it did not sleep, its memory on disk cannot be used, or what it held was lost on the way: a
            host that was killed meanwhile is replaced by one that makes another sandbox, which sleeps as well.
        KasmonError: as `keep` does.
    """
    log = EventLog(places.log(session.id))
    since = Cursor(await asyncio.to_thread(log.size))
    await keep(places, session, Pause(to_disk=to_disk))
    now = await asyncio.to_thread(_seen, places, session.id)
    if why := await asyncio.to_thread(_not_paused, places, now, log, since, to_disk):
        raise SandboxError(
            f"the sandbox of {session.name!r} was not paused", why, f"`kasmon sandbox show {session.id}` shows more."
        )
    return now


def _not_paused(places: Paths, now: Session, log: EventLog, since: Cursor, to_disk: bool) -> str:
    """Why *now* did not sleep, after *since* in its *log*, with what it held before; empty where it did."""
    housing, moves = now.housing, _moves(log, since)
    slept = max((at for at, move in enumerate(moves) if _shows_sleep(move, to_disk)), default=None)
    sleeps = housing is not None and housing.phase is SandboxPhase.PAUSED
    if slept is None and (housing is None or not sleeps or (to_disk and housing.held)):
        return "it is not paused" if housing is None else f"it is {housing.phase.value}"
    if lost := [move.lost for move in moves[:slept] if move.lost]:
        return f"{lost[-1]}; the paused sandbox does not have it"
    if not sleeps or not to_disk or now.sandbox != "microvm":  # who keeps a memory at a service answers for it
        return ""
    remembered = SnapshotReader(places).of(now, whole=True)
    if remembered.missing or not remembered.snapshots:
        why = f"its memory snapshot: {remembered.missing or 'it does not exist'}"
    else:
        why = next((f"its memory snapshot: {each.refused}" for each in remembered.snapshots if each.refused), "")
    if why and any(move.phase is SandboxPhase.RESUMING for move in _moves(log, since)[len(moves) :]):
        return ""  # another caller woke it in this moment, which uses its memory up
    return why


def _moves(log: EventLog, since: Cursor) -> list[SandboxMoved]:
    return [event for event, _ in log.read(since) if isinstance(event, SandboxMoved)]


def _shows_sleep(move: SandboxMoved, to_disk: bool) -> bool:
    """Whether the sandbox slept at *move*: it went to sleep, or began to wake."""
    is_seen = move.step == "confirmed" if move.phase is SandboxPhase.PAUSED else move.phase is SandboxPhase.RESUMING
    return is_seen and not (to_disk and move.held)


def history(places: Paths, session: Session, until: str = "") -> tuple[tuple[Interpreter, str], ...]:
    """The codes that *session* ran until the checkpoint *until* (empty: until now), each with its interpreter.

    Raises:
        NotFoundError: if there is no such checkpoint.
        UnableError: if the session is no sandbox of interpreters.
    """
    must_be_sandbox(session)
    facts = (event for event, _ in EventLog(places.log(session.id)).read())
    return replay(facts, lambda digest: (places.blobs(session.id) / digest).read_text("utf-8"), until)


async def fork(places: Paths, session: Session, name: str = "", checkpoint: str = "") -> ForkedSession:
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
    origin = ForkOrigin(source=session.id, name=session.name, at=time.time())
    name = proper(name) if name else await asyncio.to_thread(next_name, places, session.name)
    launch = await asyncio.to_thread(made_known, places, name, policy, origin.at, origin)
    furnished = msgspec.structs.replace(policy, session=launch.session)
    memory = str(places.inherited(launch.session))
    wish = Fork(checkpoint=checkpoint, folder=launch.workdir, memory=memory, session=launch.session)
    try:
        await asyncio.to_thread(lambda: tiers.create_workspace(tiers.load(policy.tier), furnished))
        lost = await keep(places, session, wish)
    except BaseException:
        await asyncio.to_thread(taken_back, places, launch.session)
        raise
    await begin(places, launch)
    got = await asyncio.to_thread(origin_of, places, launch.session)
    return ForkedSession(session=launch.session, origin=got or origin, lost=lost)


async def forwarded(places: Paths, session: Session, port: int, here: int = 0) -> PortForward:
    """A listener at port *here* of this machine's loopback, 0 being any free one, that leads to *port* inside.

    Raises:
        SandboxError: if the sandbox's network cannot be reached.
        RefusedError: if *here* is taken.
        KasmonError: as `keep` does: it is woken for this.
    """
    await keep(places, session, Resume())
    now = (await asyncio.to_thread(look_once, places)).get(session.id)
    runtime = now.housing.runtime if now is not None and now.housing is not None else None
    policy = await asyncio.to_thread(policy_of_session, places, session.id)
    tier = tiers.load(policy.tier, places)
    if runtime is None or not isinstance(tier, PortTier):
        raise SandboxError(
            f"cannot forward a port of {session.name!r}", (f"{policy.tier} does not support port forwarding")
        )

    def opened() -> PortForward:
        way = tier.ports(policy, runtime)
        return PortForward(lambda: way.connect(port), here)

    return await asyncio.to_thread(opened)


def diff(places: Paths, session: Session, turn: int | None = None) -> str:
    """What *turn*, by default the last that is over, changed in the files, as a unified diff; its text is foreign.

    Raises:
        NotFoundError: if no checkpoint tells.
        UnableError: if the session is no sandbox of interpreters.
    """
    must_be_sandbox(session)
    points = CheckpointStore(places.checkpoints(session.id))
    last = max((point.turn for point in points.all() if point.when == "after"), default=0)
    return points.diff(last if turn is None else turn)


async def remove(places: Paths, session: Session) -> str:
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
            await operations.stop(places, msgspec.structs.replace(session, state=SessionState.IDLE))
        except SessionEndedError:
            pass
        except KasmonError:
            if await asyncio.to_thread(lock_holder, places.host_lock(session.id)) is not None:
                raise  # it may be at work on the sandbox; where there is no host, what is left goes below
        session = msgspec.structs.replace(session, state=SessionState.ENDED)
    return await operations.forget(places, session)


def _seen(places: Paths, session: SessionId) -> Session:
    now = look_once(places).get(session)
    if now is None:
        raise SessionNotFoundError(session)
    return now
