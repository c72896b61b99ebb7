"""Operations on interpreter sandboxes, shared by the command line, MCP and the dashboard.

Each starts the session's host if it is gone; a new host reconnects to the sandbox of the previous one.
"""

import asyncio
import time

import msgspec

from kasmon.config import Config
from kasmon.config.agent_address import there
from kasmon.errors import KasmonError, SandboxError, SessionEndedError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Fork, Pause, Resume
from kasmon.model.events import SandboxPhaseChanged
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
from kasmon.sandbox.managed.idle_policy import origin_of
from kasmon.sandbox.managed.sandbox import FILES_KEPT, MEMORY_LOST
from kasmon.sandbox.network.port_forward import PortForward
from kasmon.store.event_log import Cursor, EventLog
from kasmon.supervisor.fleet.lookup import check_here
from kasmon.supervisor.fleet.snapshot import read_fleet, read_session
from kasmon.supervisor.machines.delegation import run_there
from kasmon.supervisor.machines.dispatch import dispatch
from kasmon.supervisor.sandboxes.create import NewSandbox, create_session, delete_unstarted, prepare
from kasmon.supervisor.sandboxes.history import SnapshotReader
from kasmon.supervisor.sandboxes.use import execute, must_be_sandbox, run, start_host
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.names import check_name, next_name
from kasmon.supervisor.sessions.start import begin


class ForkedSession(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId
    origin: ForkOrigin
    """What the new session inherited from its source."""
    lost: str = ""
    """What the source lost by the fork; empty if nothing."""


async def create(paths: Paths, config: Config, new_sandbox: NewSandbox) -> SessionId:
    """Create the requested sandbox, start it, and return its session's id.

    Raises:
        UsageError: if a name, a folder or a credential is invalid.
        NameTakenError: if another session that is not forgotten has the name.
        UnableError: if there is no such tier.
        KasmonError: if it could not be created; its session has ended then.
    """
    launch = await asyncio.to_thread(prepare, paths, config, new_sandbox, time.time())
    await begin(paths, launch)
    return launch.session


async def get_or_create(paths: Paths, config: Config, new_sandbox: NewSandbox) -> tuple[SessionId, str]:
    """Return the session with the requested name, resumed and probed; and what was lost by that, empty if nothing.

    If it does not exist, it is created; if it has ended, it is restarted with the same files. Raises as `create`, and
    `UnableError` if a session of another kind has the name.
    """
    fleet = await asyncio.to_thread(read_fleet, paths)
    known = next((each for each in fleet.here if each.name == new_sandbox.name), None)
    if known is None:
        return await create(paths, config, new_sandbox), ""
    must_be_sandbox(known)
    if known.state is SessionState.ENDED:
        await session_operations.restart(paths, known)
        return known.id, f"it had ended ({known.end_why or 'unknown reason'}): {MEMORY_LOST}; {FILES_KEPT}"
    return known.id, await execute(paths, known, Resume())


@dispatch
async def pause(paths: Paths, session: Session, *, to_disk: bool) -> Session:
    """Pause the session's sandbox and verify that it was paused with its state; return the session after that.

    If another caller resumed it meanwhile, it was paused all the same; the returned session is running then.

    Raises:
        SandboxError: if it was not paused, its snapshot on disk is unusable, or its state was lost on the way: if
            the host is killed meanwhile, the next one creates another sandbox, which is paused as well.
        KasmonError: as `execute` raises.
    """
    log = EventLog(paths.log(session.id))
    since = Cursor(await asyncio.to_thread(log.size))
    await execute(paths, session, Pause(to_disk=to_disk))
    now = await asyncio.to_thread(read_session, paths, session.id)
    if why := await asyncio.to_thread(_not_paused, paths, now, log, since, to_disk):
        raise SandboxError(
            f"the sandbox of {session.name!r} was not paused", why, f"`kasmon sandbox show {session.id}` shows more."
        )
    return now


@pause.elsewhere
async def _pause_there(paths: Paths, session: Session, *, to_disk: bool) -> Session:
    arguments = ["sandbox", "pause", session.id, "--disk" if to_disk else "--hold"]
    await run_there(paths, session, *arguments, until=lambda now: now is None or now.state is SessionState.PAUSED)
    return await asyncio.to_thread(read_session, paths, session.id)


def _not_paused(paths: Paths, now: Session, log: EventLog, since: Cursor, to_disk: bool) -> str:
    """Return why *now* was not paused, after *since* in its *log*, with its previous state; empty if it was."""
    sandbox_state, moves = now.sandbox_state, _moves(log, since)
    slept = max((at for at, move in enumerate(moves) if _shows_sleep(move, to_disk)), default=None)
    sleeps = sandbox_state is not None and sandbox_state.phase is SandboxPhase.PAUSED
    if slept is None and (sandbox_state is None or not sleeps or (to_disk and sandbox_state.held)):
        return "it is not paused" if sandbox_state is None else f"it is {sandbox_state.phase.value}"
    if lost := [move.lost for move in moves[:slept] if move.lost]:
        return f"{lost[-1]}; the paused sandbox does not have it"
    if not sleeps or not to_disk or now.sandbox != "microvm":  # a remote service is responsible for its snapshots
        return ""
    remembered = SnapshotReader(paths).of(now, whole=True)
    if remembered.missing or not remembered.snapshots:
        why = f"its memory snapshot: {remembered.missing or 'it does not exist'}"
    else:
        why = next((f"its memory snapshot: {each.refused}" for each in remembered.snapshots if each.refused), "")
    if why and any(move.phase is SandboxPhase.RESUMING for move in _moves(log, since)[len(moves) :]):
        return ""  # another caller resumed it just now, which consumes the snapshot
    return why


def _moves(log: EventLog, since: Cursor) -> list[SandboxPhaseChanged]:
    return [event for event, _ in log.read(since) if isinstance(event, SandboxPhaseChanged)]


def _shows_sleep(move: SandboxPhaseChanged, to_disk: bool) -> bool:
    """Whether *move* shows that the sandbox was paused: it was suspended, or began to resume."""
    is_seen = move.step == "confirmed" if move.phase is SandboxPhase.PAUSED else move.phase is SandboxPhase.RESUMING
    return is_seen and not (to_disk and move.held)


def history(paths: Paths, session: Session, until: str = "") -> tuple[tuple[Interpreter, str], ...]:
    """Return the code that *session* ran until the checkpoint *until* (empty: until now), each with its interpreter.

    Raises `NotFoundError` if there is no such checkpoint; else as `must_be_sandbox` and `check_here`.
    """
    must_be_sandbox(session)
    check_here(session)
    facts = EventLog(paths.log(session.id)).events()
    return replay(facts, lambda digest: (paths.blobs(session.id) / digest).read_text("utf-8"), until)


@dispatch
async def fork(paths: Paths, session: Session, name: str = "", checkpoint: str = "") -> ForkedSession:
    """Fork *session* into a new one called *name*, from its present state or from *checkpoint*; both continue.

    The fork includes memory if the tier can copy it and no checkpoint is named; the origin records that, or why not. An
    empty name means the source's name with a number.

    Raises:
        NotFoundError: if there is no such checkpoint.
        SandboxError: if it is paused with a snapshot that may not be resumed, or its tier is unavailable.
        KasmonError: as `create` and `execute` raise; there is no new session then.
    """
    must_be_sandbox(session)
    known = await asyncio.to_thread(tiers.policy_of, paths, session.id)
    policy = msgspec.structs.replace(known, workspace="")
    origin = ForkOrigin(source=session.id, name=session.name, at=time.time())
    name = check_name(name) if name else await asyncio.to_thread(next_name, paths, session.name)
    launch = await asyncio.to_thread(create_session, paths, name, policy, origin.at, origin)
    furnished = msgspec.structs.replace(policy, session=launch.session)
    memory = str(paths.inherited(launch.session))
    command = Fork(checkpoint=checkpoint, folder=launch.workdir, memory=memory, session=launch.session)
    try:
        await asyncio.to_thread(lambda: tiers.create_workspace(tiers.load(policy.tier), furnished))
        lost = await execute(paths, session, command)
    except BaseException:
        await asyncio.to_thread(delete_unstarted, paths, launch.session)
        raise
    await begin(paths, launch)
    got = await asyncio.to_thread(origin_of, paths, launch.session)
    return ForkedSession(session=launch.session, origin=got or origin, lost=lost)


@fork.elsewhere
async def _fork_there(paths: Paths, session: Session, name: str = "", checkpoint: str = "") -> ForkedSession:
    from kasmon.supervisor.machines import sandboxes  # only for sessions of other machines

    must_be_sandbox(session)
    return await sandboxes.fork(paths, session, name, checkpoint)


async def forward_port(paths: Paths, session: Session, port: int, local_port: int = 0) -> PortForward:
    """Forward port *local_port* of this machine's loopback (0 for any free one) to *port* in the sandbox.

    Raises:
        SandboxError: if the sandbox's network cannot be reached.
        RefusedError: if *local_port* is taken.
        KasmonError: as `execute`, since the sandbox is resumed for this.
    """
    if session.via:
        raise SandboxError(
            f"cannot forward a port of {session.name!r}",
            f"it is on {session.via!r}",
            f"`kasmon sandbox forward` on {session.via} forwards it there, and `ssh -L` from there to here.",
        )
    await execute(paths, session, Resume())
    now = (await asyncio.to_thread(read_fleet, paths)).get(session.id)
    runtime = now.sandbox_state.runtime if now is not None and now.sandbox_state is not None else None
    policy = await asyncio.to_thread(tiers.policy_of, paths, session.id)
    tier = tiers.load(policy.tier, paths)
    if runtime is None or not isinstance(tier, PortTier):
        raise SandboxError(
            f"cannot forward a port of {session.name!r}", (f"{policy.tier} does not support port forwarding")
        )

    def open_forward() -> PortForward:
        ports = tier.ports(policy, runtime)
        return PortForward(lambda: ports.connect(port), local_port)

    return await asyncio.to_thread(open_forward)


def diff(paths: Paths, session: Session, turn: int | None = None) -> str:
    """Return the file changes of *turn* (default: the last completed one) as a unified diff; its text is untrusted.

    Raises `NotFoundError` if no checkpoint has them; else as `must_be_sandbox` and `check_here`.
    """
    must_be_sandbox(session)
    check_here(session)
    points = CheckpointStore(paths.checkpoints(session.id))
    last = max((point.turn for point in points.all() if point.when == "after"), default=0)
    return points.diff(last if turn is None else turn)


@dispatch
async def remove(paths: Paths, session: Session) -> str:
    """End the session's sandbox if it exists, and forget the session, including its processes, sockets and folders.

    If it worked on a copy of its folder, and the copy differs from the folder, the copy stays. Its path is returned,
    else "". Raises `KasmonError` if not everything could be removed.
    """
    must_be_sandbox(session)
    if session.state not in (SessionState.ENDED, SessionState.LOST):
        try:
            await start_host(paths, session)
            await session_operations.stop(paths, msgspec.structs.replace(session, state=SessionState.IDLE))
        except SessionEndedError:
            pass
        except KasmonError:
            if await asyncio.to_thread(lock_holder, paths.host_lock(session.id)) is not None:
                raise  # its host may be using the sandbox; without a host, the rest is removed below
        session = msgspec.structs.replace(session, state=SessionState.ENDED)
    return await list_entry.forget(paths, session)


@remove.elsewhere
async def _remove_there(paths: Paths, session: Session) -> str:
    must_be_sandbox(session)
    output = await run_there(paths, session, "sandbox", "rm", session.id, until=lambda now: now is None)
    kept = msgspec.json.decode(output, type=_Removal).kept
    return there(session.via, kept[0]) if kept else ""


class _Removal(msgspec.Struct, frozen=True):
    """What `kasmon sandbox rm --json` prints."""

    kept: tuple[str, ...] = ()


async def create_like(paths: Paths, session: Session, name: str) -> Session:
    """Create and start a sandbox called *name*, like that of *session*, without its files. Raises as `create`."""
    known = await asyncio.to_thread(tiers.policy_of, paths, session.id)
    policy = msgspec.structs.replace(known, workspace="")
    launch = await asyncio.to_thread(create_session, paths, check_name(name), policy, time.time())
    await begin(paths, launch)
    return await asyncio.to_thread(read_session, paths, launch.session)


async def replay_session(paths: Paths, session: Session, name: str, until: str = "") -> str:
    """Create a sandbox called *name*, like that of *session*, and run in it what ran there until checkpoint *until*;
    return a summary. It starts without files. A run that fails does not stop the next ones.

    Raises `NotFoundError` if there is no such checkpoint; else as `create` and `run`.
    """
    must_be_sandbox(session)
    count, failed = await _replay(paths, session, name, until)
    ran = "1 run" if count == 1 else f"{count} runs"
    return f"{name}: {ran} replayed" + (f", {failed} ended with an error" if failed else "")


@dispatch
async def _replay(paths: Paths, session: Session, name: str, until: str) -> tuple[int, int]:
    """Return the number of runs, and of those that failed."""
    codes = await asyncio.to_thread(history, paths, session, until)
    new = await create_like(paths, session, name)
    failed = 0
    for interpreter, code in codes:
        failed += bool((await run(paths, new, interpreter, code)).exit_code)
    return len(codes), failed


@_replay.elsewhere
async def _replay_there(paths: Paths, session: Session, name: str, until: str) -> tuple[int, int]:
    from kasmon.supervisor.machines import sandboxes  # only for sessions of other machines

    return await sandboxes.replay(paths, session, name, until)
