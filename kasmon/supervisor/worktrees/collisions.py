"""Detect collisions between the worktrees of live sessions, after changes in them; runs off the UI's loop.

Two sessions in one worktree share it on purpose; only two worktrees of one repository can collide.
"""

import concurrent.futures
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import KasmonError
from kasmon.model.collisions import FileCollision, WorktreeChanges, find_collisions
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.repository.git import where
from kasmon.supervisor.worktrees.changes import touched_since_fork

AT_ONCE: Final = 4
"""How many worktrees are read in parallel: each read waits for git."""


class WorktreeLocation(NamedTuple):
    top: str
    repository: str
    """The git folder that all worktrees of one repository share."""


class CollisionSweep(NamedTuple):
    files: Mapping[SessionId, tuple[str, ...]]
    """The files that each session's worktree changed since it diverged, if it works in one."""
    hits: Mapping[SessionId, tuple[tuple[SessionId, FileCollision], ...]]
    """Session -> the sessions of other worktrees that change the same files."""


class CollisionDetector:
    """Remembers the worktree of each folder. Its calls block and may come from any thread, one at a time."""

    def __init__(self, *, alone: bool = False) -> None:
        """*alone*: also cover worktrees that have no other one to collide with."""
        self._alone = alone
        self._locations: dict[str, WorktreeLocation | None] = {}
        self._changes: dict[str, WorktreeChanges] = {}
        self._busy = threading.Lock()

    def sweep(self, sessions: Iterable[Session], stale: Iterable[str] | None = None) -> CollisionSweep:
        """Read the worktrees of *sessions* and detect collisions.

        Args:
            stale: the tops of the changed worktrees; None for all. For the others, the last result is used.
        """
        with self._busy:
            locations = {session.id: self._place(session.workdir) for session in sessions if session.has_folder_here}
            tops = self._list_counted(locations.values())
            wanted = [top for top in tops if stale is None or top in stale or top not in self._changes]
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                self._changes |= zip(wanted, pool.map(_read_changes, wanted), strict=True)
            found: dict[str, tuple[FileCollision, ...]] = {}
            for repository in set(tops.values()):
                found |= find_collisions({top: self._changes[top] for top, of in tops.items() if of == repository})
        by_top: dict[str, list[SessionId]] = {}
        for session, place in locations.items():
            if place is not None and place.top in tops:
                by_top.setdefault(place.top, []).append(session)
        return CollisionSweep(
            files={s: tuple(sorted(self._changes[top].files)) for top, all_of in by_top.items() for s in all_of},
            hits={
                session: tuple((other, hit) for hit in of_it for other in by_top[hit.other])
                for top, of_it in found.items()
                for session in by_top[top]
            },
        )

    def tops(self, folders: Iterable[str]) -> frozenset[str]:
        """Return the worktrees that *folders* are in, which are to be watched."""
        with self._busy:
            return frozenset(self._list_counted([self._place(folder) for folder in folders]))

    def _list_counted(self, locations: Iterable[WorktreeLocation | None]) -> dict[str, str]:
        tops = {place.top: place.repository for place in locations if place is not None}
        many = Counter(tops.values())
        return {top: repository for top, repository in tops.items() if self._alone or many[repository] > 1}

    def _place(self, folder: str) -> WorktreeLocation | None:
        """Return the worktree that *folder* is in, None if in none; cached by folder."""
        if folder not in self._locations:
            self._locations[folder] = _locate(folder)
        return self._locations[folder]


def _locate(folder: str) -> WorktreeLocation | None:
    try:
        location = where(Path(folder))
    except (KasmonError, OSError):
        return None
    return WorktreeLocation(*location)


def _read_changes(top: str) -> WorktreeChanges:
    """Return what the worktree at *top* changed since it diverged; nothing if git fails."""
    try:
        return touched_since_fork(Path(top))
    except (KasmonError, OSError):
        return WorktreeChanges()
