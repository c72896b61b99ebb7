"""Where tasks work, and what they leave for each other."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from kasmon.errors import RefusedError, UsageError
from kasmon.model.plan.run import PlanRun
from kasmon.model.plan.spec import Plan
from kasmon.paths import places
from kasmon.supervisor.plans.place import LONGEST_RESULT, Grounds, lay_out, own_name, result
from tests.model.plan.plans import began, plan, run, task
from tests.supervisor.repo import Repo

PLAN = plan(task("a"), task("b"), task("c", inherits="a"), task("d", worktree="own"), task("e", worktree="folder"))

pytestmark = pytest.mark.usefixtures("no_git_config")


class Land:
    """A repository, and the folders of two runs of a plan."""

    def __init__(self, folder: Path) -> None:
        self.places = places()
        self.places.make()
        self.places.plans.mkdir()
        for id_ in ("tidy", "tidy-2"):
            self.places.plan(id_).mkdir(0o700)
        self.trees = self.places.plan("tidy") / "trees"
        self.repo = Repo(folder)
        self.folder = folder

    def grounds(self, folder: Path | None = None, id_: str = "tidy") -> Grounds:
        return Grounds(self.places, id_, folder or self.folder)

    async def where(self, id_: str, of: Plan = PLAN, at: PlanRun | None = None, **more: Any) -> tuple[str, str]:
        """Folder and branch of the task *id_*."""
        tree = await self.grounds(**more).of(of, of.task(id_), at or run())
        return tree.path, tree.branch


@pytest.fixture
def land(tmp_path: Path) -> Land:
    return Land(tmp_path / "repo")


async def test_in_a_repository_the_tasks_share_one_worktree(land: Land) -> None:
    shared = str(land.trees / "shared")

    assert (shared, "plan/tidy") == await land.where("a")
    assert (shared, "plan/tidy") == await land.where("b")


async def test_outside_of_one_they_work_in_the_plans_folder(land: Land, tmp_path: Path) -> None:
    assert (str(tmp_path), "") == await land.where("a", folder=tmp_path)


async def test_a_task_may_have_its_own_or_work_in_the_folder_itself(land: Land) -> None:
    assert (str(land.trees / "tidy.4-d"), "plan/tidy.4-d") == await land.where("d")
    assert (str(land.folder), "") == await land.where("e")


async def test_a_plan_in_a_folder_of_the_repository_works_in_the_same_one_of_the_worktree(land: Land) -> None:
    land.repo.commit("docs/x.md")

    assert (str(land.trees / "shared" / "docs"), "plan/tidy") == await land.where("a", folder=land.folder / "docs")


@pytest.mark.parametrize("wanted", ["own", "shared"])
async def test_a_worktree_without_a_repository_is_refused_with_what_to_do(
    land: Land, tmp_path: Path, wanted: str
) -> None:
    with pytest.raises(UsageError, match=r"task 'a' wants a worktree, and .* is in no git repository") as told:
        await land.where("a", plan(task("a", worktree=wanted)), folder=tmp_path)

    assert "git init" in told.value.hint


async def test_an_attempt_goes_on_where_the_last_one_was(land: Land, tmp_path: Path) -> None:
    before = run(began("a", workdir=str(tmp_path), branch="theirs", base="abc"))
    gone = run(began("a", workdir=str(tmp_path / "gone")))

    assert (str(tmp_path), "theirs") == await land.where("a", at=before)
    assert "plan/tidy" == (await land.where("a", at=gone))[1]


async def test_who_goes_on_from_another_works_where_that_one_did(land: Land, tmp_path: Path) -> None:
    before = run(began("a", workdir=str(tmp_path), branch="theirs"))

    assert (str(tmp_path), "theirs") == await land.where("c", at=before)


async def test_no_two_tasks_of_no_two_runs_have_one_branch(land: Land) -> None:
    """Ids that are alike once git's letters are taken; a second run of a plan, which is called `tidy-2`."""
    of = plan(*(task(id_, worktree="own") for id_ in ("a b", "a-b", "日本", "本日", "3", "x" * 300)))
    names = [await land.where(one.id, of) for one in of.tasks]
    second = await land.grounds(id_="tidy-2").of(PLAN, PLAN.task("b"), run())
    names.append((second.path, second.branch))

    assert len(names) == len(set(names)) == len({branch for _, branch in names})


def test_a_worktree_is_called_by_number_and_name() -> None:
    assert ["2", "3-parser"] == [own_name(task("2", 2)), own_name(task("parser", 3))]


# What is left for others


def test_git_does_not_see_what_kasmon_lays_out(land: Land) -> None:
    repo = land.repo
    lay_out(repo.folder, PLAN.task("a"))
    lay_out(repo.folder, PLAN.task("b"))
    (repo.folder / ".kasmon" / "task-1" / "result.md").touch()

    assert "" == repo.git("status", "--porcelain")


def test_nothing_is_laid_out_through_a_link(land: Land, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (land.folder / ".kasmon").symlink_to(elsewhere)

    with pytest.raises(RefusedError, match="leads elsewhere"):
        lay_out(land.folder, PLAN.task("a"))

    assert [] == list(elsewhere.iterdir())


def test_a_result_is_what_the_task_wrote_in_its_own_place_or_beside_its_work(tmp_path: Path) -> None:
    one = PLAN.task("a")
    assert "" == result(tmp_path, one, 0)
    (tmp_path / "result.md").write_text("beside")
    assert "beside" == result(tmp_path, one, 0)
    lay_out(tmp_path, one)
    (tmp_path / ".kasmon" / "task-1" / "result.md").write_text("own")
    assert "own" == result(tmp_path, one, 0)


def test_a_result_of_before_is_none(tmp_path: Path) -> None:
    (tmp_path / "result.md").write_text("old")
    os.utime(tmp_path / "result.md", (100, 100))

    assert "" == result(tmp_path, PLAN.task("a"), 200.0)


async def test_a_file_of_the_repository_is_no_result(land: Land) -> None:
    land.repo.commit("result.md")
    path, _ = await land.where("a")

    assert "" == await asyncio.to_thread(result, Path(path), PLAN.task("a"), time.time())


def test_a_result_may_be_anything(tmp_path: Path) -> None:
    one = PLAN.task("a")
    (tmp_path / "result.md").write_bytes(b"\xff" * (2 * LONGEST_RESULT))
    assert LONGEST_RESULT == len(result(tmp_path, one, 0))
    (tmp_path / "result.md").unlink()
    (tmp_path / "result.md").mkdir()
    assert "" == result(tmp_path, one, 0)
    (tmp_path / "result.md").rmdir()
    os.mkfifo(tmp_path / "result.md")
    assert "" == result(tmp_path, one, 0)


def test_a_result_is_no_link_to_what_others_may_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    (tmp_path / "result.md").symlink_to(tmp_path / "secret")

    assert "" == result(tmp_path, PLAN.task("a"), 0)
