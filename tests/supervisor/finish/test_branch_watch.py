"""The branches of sessions, watched on a real repository."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from kasmon.config.schema import WorktreeConfig
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.branch import BranchSummary
from kasmon.supervisor.finish.branch_watch import watch_branches
from kasmon.supervisor.worktrees.collision_watch import sweeps
from kasmon.supervisor.worktrees.folder_watch import FolderWatch
from kasmon.supervisor.worktrees.session_worktree import WorktreeRequest, new_worktree
from tests.supervisor.finish.test_pull_requests import Program
from tests.support.forge_client import GITHUB
from tests.support.git_repo import Repo

pytestmark = pytest.mark.usefixtures("no_git_config")
LIMIT_S = 100.0


def session(repo: Repo, name: str) -> Session:
    with new_worktree(WorktreeConfig(), WorktreeRequest(), repo.folder, name) as (tree, workdir):
        return Session(id=SessionId(name), name=name, workdir=workdir, worktree=tree)


def path_of(each: Session) -> Path:
    assert each.worktree is not None
    return Path(each.worktree.path)


async def until(seen: AsyncIterator[Mapping[SessionId, BranchSummary]], is_met: Callable[[str], bool]) -> str:
    """Wait until what is left to do of `fix` is met, and return it."""
    async with asyncio.timeout(LIMIT_S):
        async for branches in seen:
            if "fix" in branches and is_met(words := branches[SessionId("fix")].words):
                return words
    raise AssertionError


async def test_a_commit_a_change_and_a_moved_base_are_noticed(repo: Repo, paths: Paths) -> None:
    fix = await asyncio.to_thread(session, repo, "fix")
    seen = watch_branches(paths, lambda: (fix,), FolderWatch(), lambda: False)
    assert "no changes" in (await anext(seen))[SessionId("fix")].words

    (path_of(fix) / "new.txt").write_text("new\n")
    await until(seen, lambda words: "1 change" in words)
    await asyncio.to_thread(repo.commit, "new.txt", at=path_of(fix))
    await until(seen, lambda words: words.endswith("1 ahead"))
    await asyncio.to_thread(repo.commit, "theirs.txt")
    await until(seen, lambda words: words.endswith("1 ahead, 1 behind"))


async def test_a_new_session_is_covered_and_one_without_a_worktree_is_not(repo: Repo, paths: Paths) -> None:
    known: tuple[Session, ...] = (Session(id=SessionId("plain"), workdir=str(repo.folder)),)
    seen = watch_branches(paths, lambda: known, FolderWatch(), lambda: False)
    assert {} == await anext(seen)
    known = (*known, await asyncio.to_thread(session, repo, "fix"))

    await until(seen, lambda words: "no changes" in words)


async def test_pull_requests_are_read_only_if_allowed(
    repo: Repo, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr("kasmon.supervisor.finish.branch_watch.LOOK_S", 0.01)
    gh = Program(tmp_path / "bin", "gh")
    gh.says(json.dumps(GITHUB))
    await asyncio.to_thread(repo.git, "remote", "add", "origin", "https://github.com/Me/shop.git")
    fix = await asyncio.to_thread(session, repo, "fix")
    allowed = list[bool]()
    asked = list[bool]()

    def may_ask() -> bool:
        asked.append(bool(allowed))
        return bool(allowed)

    seen = watch_branches(paths, lambda: (fix,), FolderWatch(), may_ask)
    await anext(seen)
    while len(asked) < 3:  # noqa: ASYNC110 - the check itself is what is awaited
        await asyncio.sleep(0)
    assert [] == gh.calls
    allowed.append(True)

    assert (await until(seen, lambda words: "#7" in words)).endswith("#7 open, checks failed, changes requested")
    await asyncio.to_thread(repo.commit, "new.txt", at=path_of(fix))
    await until(seen, lambda words: "1 ahead" in words)
    assert 1 == len(gh.calls)


@pytest.mark.skipif(sys.platform != "linux", reason="counts the watches in /proc")
async def test_branches_and_collisions_share_one_watch_of_the_file_system(repo: Repo, paths: Paths) -> None:
    def count() -> int:
        files = Path("/proc/self/fd").iterdir()
        return sum(1 for file in files if file.is_symlink() and "inotify" in str(file.readlink()))

    fix, docs = [await asyncio.to_thread(session, repo, name) for name in ("fix", "docs")]
    watch, before = FolderWatch(), await asyncio.to_thread(count)
    branches = watch_branches(paths, lambda: (fix, docs), watch, lambda: False)
    collisions = sweeps(lambda: (fix, docs), watch)
    async with asyncio.timeout(LIMIT_S):
        await anext(branches)
        for _ in range(2):  # the second comes once the watch has begun
            await anext(collisions)
        (path_of(fix) / "new.txt").write_text("new\n")

        await until(branches, lambda words: "1 change" in words)
        while not (await anext(collisions)).files[fix.id]:
            pass
        assert before + 1 == await asyncio.to_thread(count)
