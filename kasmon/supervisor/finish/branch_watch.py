"""Watch the branches of sessions' worktrees: their states after each change, and their pull requests now and then."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Final

import watchfiles

from kasmon.errors import KasmonError
from kasmon.model.commands import SessionWorktree
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.branch import BranchSummary, PullRequest
from kasmon.repository.git import git, git_folders
from kasmon.supervisor.finish.branch_operations import find_remote
from kasmon.supervisor.finish.pull_requests import INTERVAL_S, find_pull_request, stored_pull_request
from kasmon.supervisor.worktrees.branch_state import BranchStates
from kasmon.supervisor.worktrees.collision_watch import POLL_S
from kasmon.supervisor.worktrees.folder_watch import FolderWatch
from kasmon.supervisor.worktrees.recognized_worktree import worktree_of

LOOK_S: Final = 2.0
"""How often it is checked whether pull requests may be read, in seconds."""

ReadSessions = Callable[[], tuple[Session, ...]]
"""Returns the sessions to cover; returning the same tuple again costs nothing."""

log = logging.getLogger(__name__)


async def watch_branches(
    paths: Paths,
    sessions: ReadSessions,
    watch: FolderWatch,
    may_ask: Callable[[], bool],
    fix_rounds: Callable[[], int] = lambda: 0,
) -> AsyncIterator[Mapping[SessionId, BranchSummary]]:
    """Yield the branches of *sessions* that have a worktree, now and after each change; never ends by itself.

    Args:
        watch: reports changed worktrees.
        may_ask: whether `gh` and `glab` may be run now.
        fix_rounds: how many times failed checks and comments are sent to an agent by itself; 0 for never.
    """
    states, before = BranchStates(), None
    changed = asyncio.Queue[frozenset[str] | None]()
    tasks = [
        asyncio.create_task(_report_changes(sessions, watch, changed)),
        asyncio.create_task(_read_pull_requests(paths, sessions, may_ask, changed)),
    ]
    try:
        while True:
            stale = await changed.get()
            while not changed.empty():
                more = changed.get_nowait()
                stale = None if stale is None or more is None else stale | more
            found = await asyncio.to_thread(_read, paths, states, sessions(), stale)
            if found != before:
                before = found
                yield found
            if most := fix_rounds():
                from kasmon.supervisor.finish.feedback import send_rounds  # rarely needed

                await send_rounds(paths, _requests(sessions(), found), most)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _read(
    paths: Paths, states: BranchStates, sessions: tuple[Session, ...], changed: Collection[str] | None
) -> dict[SessionId, BranchSummary]:
    """Return the branches of *sessions* with their pull requests, as last read; blocks. *changed* as for *states*."""
    trees = _trees(sessions)
    found = states.read(trees.values(), changed)
    summaries = {
        path: BranchSummary(state=state, pull_request=stored_pull_request(paths, Path(path), state.name))
        for path, state in found.items()
    }
    return {session: summaries[tree.path] for session, tree in trees.items() if tree.path in summaries}


def _requests(
    sessions: tuple[Session, ...], summaries: Mapping[SessionId, BranchSummary]
) -> Iterator[tuple[Session, PullRequest]]:
    for session in sessions:
        summary = summaries.get(session.id)
        if summary is not None and summary.pull_request is not None:
            yield session, summary.pull_request


def _trees(sessions: tuple[Session, ...]) -> dict[SessionId, SessionWorktree]:
    return {each.id: tree for each in sessions if (tree := worktree_of(each)) is not None}


def _key(sessions: tuple[Session, ...]) -> frozenset[tuple[object, ...]]:
    """Return what decides in which worktrees *sessions* work."""
    return frozenset((each.id, each.workdir, each.pid, each.exists, each.worktree) for each in sessions)


async def _report_changes(
    sessions: ReadSessions, watch: FolderWatch, changed: "asyncio.Queue[frozenset[str] | None]"
) -> None:
    """Put the worktrees whose files changed into *changed*; an empty set where only refs did, None for all."""
    while True:
        before = sessions()
        key = _key(before)

        def is_over(before: tuple[Session, ...] = before, key: frozenset[tuple[object, ...]] = key) -> bool:
            return (now := sessions()) is not before and _key(now) != key

        changed.put_nowait(None)
        trees = await asyncio.to_thread(_trees, before)
        tops, refs = await asyncio.to_thread(_list_watched, trees)
        folders = frozenset([*tops, *refs])
        try:
            async with contextlib.aclosing(watch.follow(folders, is_over, _is_relevant)) as reports:
                async for stale in reports:
                    changed.put_nowait(stale & tops)
                    if stale == folders and trees != await asyncio.to_thread(_trees, before):
                        break  # an agent has changed to another worktree
        except (OSError, RuntimeError) as error:
            log.info("branches are not watched but polled: %s", error)
            await asyncio.sleep(POLL_S)


def _list_watched(trees: Mapping[SessionId, SessionWorktree]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the worktrees that exist, and the folders where git stores their refs and indexes."""
    tops, refs = set[str](), set[str]()
    for path in {tree.path for tree in trees.values()}:
        with contextlib.suppress(OSError):
            shared = git_folders(Path(path))[1]
            tops.add(path)
            refs |= {str(each) for name in ("refs", "worktrees", "reftable") if (each := shared / name).is_dir()}
    return frozenset(tops), frozenset(refs)


def _is_relevant(_: watchfiles.Change, path: str) -> bool:
    parts = PurePath(path).parts
    return ".kasmon" not in parts and "logs" not in parts[-4:] and not path.endswith(".lock")


async def _read_pull_requests(
    paths: Paths, sessions: ReadSessions, may_ask: Callable[[], bool], changed: "asyncio.Queue[frozenset[str] | None]"
) -> None:
    """Read the pull requests of each repository while *may_ask*; put an empty set into *changed* after that."""
    due, due_at, known = dict[Path, float](), 0.0, frozenset[tuple[object, ...]]()
    while True:
        is_due = time.monotonic() >= due_at or _key(sessions()) != known
        if is_due and may_ask():
            known = _key(sessions())
            if await asyncio.to_thread(_ask, paths, sessions(), due):
                changed.put_nowait(frozenset())
            due_at = min(due.values(), default=time.monotonic() + INTERVAL_S)
        await asyncio.sleep(LOOK_S)


def _ask(paths: Paths, sessions: tuple[Session, ...], due: dict[Path, float]) -> bool:
    """Read the pull requests of the repositories that are *due*; return whether there was one. Blocks.

    Afterwards *due* has exactly the repositories of *sessions*.
    """
    was_due = False
    before = dict(due)
    due.clear()
    for shared, path in _repositories(_trees(sessions)):
        due[shared] = before.get(shared, 0.0)
        if time.monotonic() < due[shared]:
            continue
        due[shared] = time.monotonic() + INTERVAL_S
        was_due = True
        with contextlib.suppress(KasmonError, OSError):
            if git(path, "remote"):
                find_pull_request(paths, path, find_remote(path, ""), "", time.time())
    return was_due


def _repositories(trees: Mapping[SessionId, SessionWorktree]) -> Iterator[tuple[Path, Path]]:
    """Yield the shared git folder of each repository, and one worktree of it."""
    seen = set[Path]()
    for path in {tree.path: None for tree in trees.values()}:
        with contextlib.suppress(OSError):
            shared = git_folders(Path(path))[1]
            if shared not in seen:
                seen.add(shared)
                yield shared, Path(path)
