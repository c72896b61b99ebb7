"""Running hosts of other versions of kasmon: find them, and replace each by one of this version."""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kasmon import __version__
from kasmon.errors import HostUnreachableError, KasmonError, RefusedError, TimedOutError, end_old_host
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.control import HAND_OVER_S, ControlKind, HostStatus, request
from kasmon.host.rpc.frames import VERSION
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.handover import LOOK_S, hand_over

TURN_S = 5.0
"""How long a turn may take to end while several hosts are replaced in sequence, in seconds."""


class OtherHost(msgspec.Struct, frozen=True):
    """A running host of another version."""

    name: str
    """The session's name, or `tmux` for the shared host."""
    pid: int
    status: HostStatus | None
    """None for a host that is older than control requests, and cannot hand over."""
    session: Session | None = None
    """None for the shared tmux host."""

    @property
    def text(self) -> str:
        version = f"kasmon {self.status.kasmon}, protocol {self.status.protocol}" if self.status else "an older kasmon"
        what = "the tmux host" if self.session is None else f"the host of {self.name}"
        return f"{what} (pid {self.pid}, {version})"

    @property
    def end(self) -> str:
        """How the user can end it."""
        return end_old_host("tmux" if self.session is None else self.session.id, self.pid)


def find_other_hosts(paths: Paths, sessions: Iterable[Session]) -> list[OtherHost]:
    """Return the running hosts whose release or protocol differs from ours, the tmux host first. Blocks."""
    own = [each for each in sessions if each.mode is not Mode.TMUX and not each.via]
    alone = [each for each in own if each.host is not None and each.host.alive]
    hosts: list[tuple[Session | None, Path, Path]] = [(None, paths.tmux_host_lock, paths.tmux_host_socket)]
    hosts += [(each, paths.host_lock(each.id), paths.socket(each.id)) for each in alone]
    found = []
    for session, lock, socket in hosts:
        if (pid := lock_holder(lock)) is None:
            continue
        try:
            status = request(socket, ControlKind.STATUS)
        except KasmonError:
            continue  # it is starting or ending
        if status is None or (status.protocol, status.kasmon) != (VERSION, __version__):
            found.append(OtherHost(session.name if session else "tmux", pid, status, session))
    return found


async def replace(paths: Paths, other: OtherHost) -> None:
    """Have *other* hand over, and start a host of this version in its place; agents in tmux continue.

    Raises:
        RefusedError: if it cannot hand over, or its session belongs to a running plan.
        TimedOutError: if it did not exit in time; it exits when its current work is finished.
        KasmonError: as `session_operations.restart` and `client.link` raise.
    """
    if other.status is None:
        raise RefusedError(f"{other.text} cannot hand over.", hint=other.end)
    session = other.session
    if session is None:
        await _leave(paths.tmux_host_socket, paths.tmux_host_lock, other)
        await _start(paths, SessionId("tmux"), Mode.TMUX)
    elif session.mode is Mode.INTERPRETER:
        await _leave(paths.socket(session.id), paths.host_lock(session.id), other)
        await _start(paths, session.id, session.mode)
    else:
        plan = session.plan
        if plan and await asyncio.to_thread(lock_holder, PlanLog(paths, plan).lock) is not None:
            raise RefusedError(
                f"{other.text} cannot hand over before plan {plan!r} ends: the plan's runner would count the "
                "task as failed."
            )
        await hand_over(paths, session, TURN_S)
        now = (await asyncio.to_thread(read_fleet, paths)).get(session.id)
        if now is not None:
            await session_operations.restart(paths, now)


async def _leave(socket: Path, lock: Path, other: OtherHost) -> None:
    with contextlib.suppress(HostUnreachableError):  # as in `connect`
        await asyncio.to_thread(request, socket, ControlKind.HAND_OVER, pid=other.pid)
    deadline = time.monotonic() + HAND_OVER_S
    while await asyncio.to_thread(lock_holder, lock) == other.pid:
        if time.monotonic() > deadline:
            raise TimedOutError(f"{other.text} did not exit within {HAND_OVER_S:g} s.")
        await asyncio.sleep(LOOK_S)


async def _start(paths: Paths, session: SessionId, mode: Mode) -> None:
    async with contextlib.aclosing(await open_link(paths, session, mode)):
        pass
