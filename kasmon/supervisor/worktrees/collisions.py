"""The worktrees in which live sessions work, looked at again when something in them changes; off the UI's loop.

Two sessions in one worktree share it on purpose; it is two worktrees of one repository that can collide.
"""

import concurrent.futures
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import KasmonError
from kasmon.model.collisions import FileCollision, WorktreeChanges, hits
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.supervisor.worktrees.changes import touched_since_fork
from kasmon.supervisor.worktrees.git import where

AT_ONCE: Final = 4
"""How many worktrees are looked at at once: each look waits for git."""


class WorktreeLocation(NamedTuple):
    """The worktree that a folder is in."""

    top: str
    repository: str
    """The folder that all worktrees of one repository share."""


class CollisionSweep(NamedTuple):
    """What the radar saw."""

    files: Mapping[SessionId, tuple[str, ...]]
    """What each session's worktree changed since it left the others, where it works in one."""
    hits: Mapping[SessionId, tuple[tuple[SessionId, FileCollision], ...]]
    """Session -> the sessions of other worktrees that change the same files."""


class CollisionDetector:
    """Knows worktrees by folder. Its calls block and may come from any thread, one at a time."""

    def __init__(self, *, alone: bool = False) -> None:
        """*alone*: look also at worktrees that have no other one to collide with."""
        self._alone = alone
        self._places: dict[str, WorktreeLocation | None] = {}
        self._seen: dict[str, WorktreeChanges] = {}
        self._busy = threading.Lock()

    def sweep(self, sessions: Iterable[Session], stale: Iterable[str] | None = None) -> CollisionSweep:
        """Look at the worktrees of *sessions*.

        Args:
            sessions: those that count: live ones.
            stale: the tops of the worktrees in which something changed; None is all. The others are as they were seen.
        """
        with self._busy:
            places = {session.id: self._place(session.workdir) for session in sessions}
            tops = self._counting(places.values())
            wanted = [top for top in tops if stale is None or top in stale or top not in self._seen]
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                self._seen |= zip(wanted, pool.map(_look, wanted), strict=True)
            found: dict[str, tuple[FileCollision, ...]] = {}
            for repository in set(tops.values()):
                found |= hits({top: self._seen[top] for top, of in tops.items() if of == repository})
        by_top: dict[str, list[SessionId]] = {}
        for session, place in places.items():
            if place is not None and place.top in tops:
                by_top.setdefault(place.top, []).append(session)
        return CollisionSweep(
            files={s: tuple(sorted(self._seen[top].files)) for top, all_of in by_top.items() for s in all_of},
            hits={
                session: tuple((other, hit) for hit in of_it for other in by_top[hit.other])
                for top, of_it in found.items()
                for session in by_top[top]
            },
        )

    def tops(self, folders: Iterable[str]) -> frozenset[str]:
        """The worktrees that *folders* are in: what to watch."""
        with self._busy:
            return frozenset(self._counting([self._place(folder) for folder in folders]))

    def _counting(self, places: Iterable[WorktreeLocation | None]) -> dict[str, str]:
        """Worktree -> its repository, of those that are looked at."""
        tops = {place.top: place.repository for place in places if place is not None}
        many = Counter(tops.values())
        return {top: repository for top, repository in tops.items() if self._alone or many[repository] > 1}

    def _place(self, folder: str) -> WorktreeLocation | None:
        """The worktree that *folder* is in; None where it is in none. Asked once for each folder."""
        if folder not in self._places:
            self._places[folder] = _placed(folder)
        return self._places[folder]


def _placed(folder: str) -> WorktreeLocation | None:
    try:
        said = where(Path(folder))
    except (KasmonError, OSError):
        return None
    return WorktreeLocation(*said)


def _look(top: str) -> WorktreeChanges:
    """What the worktree at *top* changed since it left the main one; nothing where nobody can tell."""
    try:
        return touched_since_fork(Path(top))
    except (KasmonError, OSError):
        return WorktreeChanges()
