"""Watch for collisions: a sweep after each change in a live session's worktree, and none without a change."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import PurePath
from typing import Final

import watchfiles

from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.supervisor.worktrees.collisions import CollisionDetector, CollisionSweep
from kasmon.supervisor.worktrees.folder_watch import FolderWatch

POLL_S: Final = 2.0
"""How often everything is swept if the system does not report changes."""

log = logging.getLogger(__name__)


async def sweeps(
    live: Callable[[], tuple[Session, ...]], watch: FolderWatch, *, alone: bool = False
) -> AsyncIterator[CollisionSweep]:
    """Yield a sweep now, and another after each change; never ends by itself.

    Args:
        live: returns the sessions to cover; returning the same tuple again costs nothing.
        watch: reports changed worktrees.
        alone: also cover worktrees that have no other one to collide with.
    """
    radar = CollisionDetector(alone=alone)
    while True:
        folders = _SessionFolders(live)
        sessions = {session.id: session for session in folders.sessions}
        yield await asyncio.to_thread(radar.sweep, sessions.values())
        tops = radar.tops(session.workdir for session in sessions.values())
        try:
            async with contextlib.aclosing(watch.follow(tops, folders.differ, _is_relevant)) as changed:
                async for stale in changed:
                    yield await asyncio.to_thread(radar.sweep, sessions.values(), stale)
        except (OSError, RuntimeError) as error:
            log.info("worktrees are not watched but polled: %s", error)
            await asyncio.sleep(POLL_S)


def _is_relevant(_: watchfiles.Change, path: str) -> bool:
    """Whether a change at *path* may concern a tracked file or the worktree's HEAD."""
    parts = PurePath(path).parts
    return ".kasmon" not in parts and (".git" not in parts or parts[-1] in ("HEAD", "index"))


class _SessionFolders:
    """The folders where the sessions work, and whether these have changed."""

    def __init__(self, live: Callable[[], tuple[Session, ...]]) -> None:
        self._live = live
        self.sessions = live()
        self._watched = _folders(self.sessions)

    def differ(self) -> bool:
        before, self.sessions = self.sessions, self._live()
        return self.sessions is not before and _folders(self.sessions) != self._watched


def _folders(sessions: Iterable[Session]) -> frozenset[tuple[SessionId, str]]:
    return frozenset((session.id, session.workdir) for session in sessions)
