"""The radar over real worktrees of a real repository."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.supervisor.worktrees.collision_watch import sweeps
from kasmon.supervisor.worktrees.collisions import CollisionDetector, CollisionSweep
from kasmon.supervisor.worktrees.folder_watch import FolderWatch

LIMIT_S = 100.0
"""A net under a watch that never tells, no expectation."""


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def write(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one file of ten lines, and two worktrees beside it."""
    made = tmp_path / "repo"
    made.mkdir()
    git(made, "init", "-q")
    write(made / "a.txt", *"abcdefghij")
    git(made, "add", ".")
    git(made, "commit", "-qm", "begin")
    for name in ("one", "two"):
        git(made, "worktree", "add", "-q", "-b", name, str(tmp_path / name))
    return made


def session(name: str, folder: Path) -> Session:
    return Session(id=SessionId(name), name=name, workdir=str(folder))


def both(repo: Path) -> list[Session]:
    return [session(name, repo.parent / name) for name in ("one", "two")]


def change(repo: Path, name: str, line: int) -> None:
    letters = list("abcdefghij")
    letters[line] = letters[line].upper()
    write(repo.parent / name / "a.txt", *letters)


def test_two_worktrees_that_change_one_file_are_marked_on_both(repo: Path) -> None:
    change(repo, "one", 1)
    change(repo, "two", 8)

    sweep = CollisionDetector(alone=True).sweep(both(repo))

    assert [("two", "a.txt", False)] == [(other, hit.file, hit.lines) for other, hit in sweep.hits[SessionId("one")]]
    assert [("one", "a.txt", False)] == [(other, hit.file, hit.lines) for other, hit in sweep.hits[SessionId("two")]]


def test_equal_lines_are_reported_also_once_they_are_committed(repo: Path) -> None:
    change(repo, "one", 4)
    git(repo.parent / "one", "commit", "-qam", "changed")
    change(repo, "two", 4)

    assert [True] == [hit.lines for _, hit in CollisionDetector(alone=True).sweep(both(repo)).hits[SessionId("one")]]


def test_new_files_of_one_name_collide(repo: Path) -> None:
    for name in ("one", "two"):
        write(repo.parent / name / "new.txt", name)

    sweep = CollisionDetector(alone=True).sweep(both(repo))

    assert ["new.txt"] == [hit.file for _, hit in sweep.hits[SessionId("one")]]
    assert ("new.txt",) == sweep.files[SessionId("one")]


def test_two_sessions_in_one_worktree_share_it_on_purpose(repo: Path) -> None:
    change(repo, "one", 4)

    assert (
        {}
        == CollisionDetector(alone=True)
        .sweep([session("a", repo.parent / "one"), session("b", repo.parent / "one")])
        .hits
    )


def test_a_folder_outside_of_a_repository_is_left_out(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()

    assert (
        {}
        == CollisionDetector(alone=True)
        .sweep([session("a", tmp_path / "plain"), session("b", tmp_path / "gone")])
        .files
    )


def test_only_changed_files_are_read_again(repo: Path) -> None:
    radar = CollisionDetector(alone=True)
    radar.sweep(both(repo))
    change(repo, "one", 4)
    change(repo, "two", 4)

    sweep = radar.sweep(both(repo), [str(repo.parent / "one")])

    assert (("a.txt",), ()) == (sweep.files[SessionId("one")], sweep.files[SessionId("two")])


async def until(seen: AsyncIterator[CollisionSweep], name: str, *files: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        async for sweep in seen:
            if sweep.files.get(SessionId(name)) == files:
                return


async def test_a_change_is_reported_when_it_happens(repo: Path) -> None:
    seen = sweeps(lambda: tuple(both(repo)), FolderWatch(), alone=True)
    await until(seen, "one")
    change(repo, "one", 4)

    await until(seen, "one", "a.txt")


async def test_a_new_session_is_included(repo: Path) -> None:
    live: list[Session] = []
    seen = sweeps(lambda: tuple(live), FolderWatch(), alone=True)
    assert {} == (await anext(seen)).files
    live += both(repo)

    await until(seen, "two")


def test_a_single_worktree_is_not_read(repo: Path, tmp_path: Path) -> None:
    change(repo, "one", 4)
    radar = CollisionDetector()

    assert {} == radar.sweep([session("one", tmp_path / "one")]).files
    assert frozenset() == radar.tops([str(tmp_path / "one")])
    assert {"one", "two"} == set(radar.sweep(both(repo)).files)
