"""Watch for collisions: a sweep after each change in a live session's worktree, and none without a change."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import PurePath
from typing import Final

import watchfiles

from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.supervisor.worktrees.collisions import CollisionDetector, CollisionSweep

SETTLE_MS: Final = 200
"""How long changes are gathered before a sweep, in ms."""
LOOK_MS: Final = 500
"""How often the list of sessions is checked, in ms."""
ALL_S: Final = 60.0
"""How often everything is swept if the system reports changes: it may drop reports."""
POLL_S: Final = 2.0
"""How often everything is swept if the system does not report changes."""

log = logging.getLogger(__name__)


async def sweeps(live: Callable[[], tuple[Session, ...]], *, alone: bool = False) -> AsyncIterator[CollisionSweep]:
    """Yield a sweep now, and another after each change; never ends by itself.

    Args:
        live: returns the sessions to cover; returning the same tuple again costs nothing.
        alone: also cover worktrees that have no other one to collide with.
    """
    radar = CollisionDetector(alone=alone)
    while True:
        folders = _SessionFolders(live)
        sessions = {session.id: session for session in folders.sessions}
        yield await asyncio.to_thread(radar.sweep, sessions.values())
        tops = sorted(radar.tops(session.workdir for session in sessions.values()))
        try:
            async for stale in changed_folders(tops, folders.differ, _is_relevant):
                yield await asyncio.to_thread(radar.sweep, sessions.values(), stale)
        except (OSError, RuntimeError) as error:
            log.info("worktrees are not watched but polled: %s", error)
            await asyncio.sleep(POLL_S)


async def changed_folders(
    folders: list[str],
    is_over: Callable[[], bool],
    is_relevant: Callable[[watchfiles.Change, str], bool],
) -> AsyncIterator[frozenset[str]]:
    """Yield those of *folders* in which something changed, and now and then all, until *is_over*.

    Raises:
        OSError, RuntimeError: if the system does not report changes.
    """
    if not folders:
        while not is_over():  # noqa: ASYNC110  # new sessions are not signalled here
            await asyncio.sleep(LOOK_MS / 1000)
        return
    looked_at = -math.inf  # the first sweep finds what changed before the watch began
    async for changes in watchfiles.awatch(
        *folders,
        watch_filter=is_relevant,
        step=SETTLE_MS,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    ):
        if is_over():
            return
        if time.monotonic() > looked_at + ALL_S:
            looked_at = time.monotonic()
            yield frozenset(folders)
        elif stale := frozenset(top for top in folders for _, path in changes if PurePath(path).is_relative_to(top)):
            yield stale


def _is_relevant(_: watchfiles.Change, path: str) -> bool:
    """Whether a change at *path* may concern a tracked file or the worktree's HEAD."""
    parts = PurePath(path).parts
    return ".kasmon" not in parts and (".git" not in parts or parts[-1] in ("HEAD", "index"))


class _SessionFolders:
    """The folders where the sessions work, and whether these have changed."""

    def __init__(self, live: Callable[[], tuple[Session, ...]]) -> None:
        self._live = live
        self.sessions = live()
        self._known = _folders(self.sessions)

    def differ(self) -> bool:
        before, self.sessions = self.sessions, self._live()
        return self.sessions is not before and _folders(self.sessions) != self._known


def _folders(sessions: Iterable[Session]) -> frozenset[tuple[SessionId, str]]:
    return frozenset((session.id, session.workdir) for session in sessions)
