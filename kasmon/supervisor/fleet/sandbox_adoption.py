"""Adopt sandboxes that outlived their host by starting another host; end those that were never completed."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from kasmon.asyncio_tasks import TaskSet
from kasmon.errors import KasmonError, SandboxError
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.supervisor.fleet.lookup import check_here

log = logging.getLogger(__name__)


def find_orphans(sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions whose sandbox runs and whose host does not."""
    return [
        each
        for each in sessions
        if each.mode is Mode.INTERPRETER and each.state is SessionState.UNSURE and not each.via
    ]


def find_unfinished(paths: Paths, sessions: Iterable[Session]) -> list[Session]:
    """Return sessions whose killed host left processes of a sandbox that no other host will use. Blocks.

    The host was creating or ending the sandbox, or an agent's front process ended with it and left a microVM.
    """
    from kasmon.sandbox.shared.host_folders import HostFolders  # only imported if there is a sandbox
    from kasmon.sandbox.shared.processes import holder

    found = [each for each in sessions if _may_be_unfinished(each)]
    if not found:
        return []
    host_folders = HostFolders(paths)
    return [
        each
        for each in found
        if holder(host_folders.of(each.id) / "lock") is not None
        and lock_holder(_host_lock(paths, each)) is None
        and not (each.mode is not Mode.INTERPRETER and _has_use(paths, each, host_folders.of(each.id)))
    ]


def _has_use(paths: Paths, session: Session, folder: Path) -> bool:
    """Whether the machine of an agent is of use: its front process lives, or its memory snapshot can be resumed."""
    from kasmon.sandbox import tiers  # rarely needed: imports all tiers
    from kasmon.sandbox.base import RecordTier
    from kasmon.sandbox.remote_guest.launch_spec import is_front, load_status

    status = load_status(folder)
    if status is not None and is_front(status.front):
        return True
    policy = tiers.policy_of(paths, session.id)
    tier = tiers.load(policy.tier, paths)
    return isinstance(tier, RecordTier) and tier.kept(policy) is not None


def _host_lock(paths: Paths, session: Session) -> Path:
    return paths.tmux_host_lock if session.mode is Mode.TMUX else paths.host_lock(session.id)


def end_unfinished(paths: Paths, session: Session) -> None:
    """End the processes of the *unfinished* sandbox of *session*; its files stay. Blocks.

    Does nothing if a host holds the session meanwhile. Raises `KasmonError` if not everything could be ended.
    """
    check_here(session)
    from kasmon.sandbox import tiers  # rarely needed

    lock = HostLock(_host_lock(paths, session))
    try:
        if not lock.acquire():
            return
        policy = tiers.policy_of(paths, session.id)
        tiers.load(policy.tier, paths).destroy(policy, None)
    except OSError as error:
        raise SandboxError(f"the sandbox of {session.name!r} was not ended", error.strerror or str(error)) from error
    finally:
        lock.let_go()


def _may_be_unfinished(session: Session) -> bool:
    """Whether its sandbox's processes may be abandoned: it never ran, was being created, or the session has ended.

    A jail ends with its agent's front process, and a microVM does not.
    """
    if session.via:
        return False
    if session.mode is not Mode.INTERPRETER:
        return session.sandbox == "microvm" and session.state in (SessionState.ENDED, SessionState.LOST)
    sandbox_state = session.sandbox_state
    return session.state is SessionState.ENDED or sandbox_state is None or sandbox_state.phase is SandboxPhase.CREATING


class SandboxAdopter:
    """Adopts each orphan once; a failure is logged, and the orphan is left to `kasmon recover`."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._tried: set[tuple[SessionId, float]] = set()
        self._checked: set[tuple[SessionId, float]] = set()
        """Sessions already checked for an unfinished sandbox."""
        self._tasks = TaskSet()

    def adopt_orphans(self, sessions: Iterable[Session]) -> None:
        """Start to adopt the orphans not tried yet. Needs a running loop."""
        for session in find_orphans(sessions):
            if (key := (session.id, session.since)) not in self._tried:
                self._tried.add(key)
                self._tasks.start(self._adopt(session))
        silent = [each for each in sessions if each.host is not None and not each.host.alive]
        begun = {(each.id, each.since): each for each in silent if _may_be_unfinished(each)}
        if new := begun.keys() - self._checked:
            self._checked |= new
            self._tasks.start(self._end_unfinished([begun[key] for key in new]))

    async def _end_unfinished(self, sessions: list[Session]) -> None:
        for session in await asyncio.to_thread(find_unfinished, self._paths, sessions):
            try:
                await asyncio.to_thread(end_unfinished, self._paths, session)
            except KasmonError as error:
                log.warning("the unfinished sandbox of %s was not removed: %s", session.id, error)

    async def _adopt(self, session: Session) -> None:
        from kasmon.supervisor.sandboxes.use import start_host  # rarely needed

        try:
            await start_host(self._paths, session)
        except KasmonError as error:
            log.warning("the sandbox of %s could not be taken up: %s", session.id, error)
