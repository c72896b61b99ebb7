"""Where tasks work, and what they leave for each other."""

import asyncio
import os
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon.errors import RefusedError, UsageError
from kasmon.model.plan.events import PlanFact
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import PlanRun
from kasmon.paths import user_paths
from kasmon.supervisor.plans.task_folder import LONGEST_RESULT, TaskFolders, lay_out, own_name, result
from tests.support.git_repo import Repo
from tests.support.sample_plans import began, done, failed, plan, run, steered, task

PLAN = plan(task("a"), task("b"), task("c", inherits="a"), task("d", worktree="own"), task("e", worktree="folder"))

pytestmark = pytest.mark.usefixtures("no_git_config")


class Land:
    """A repository, and the folders of two runs of a plan."""

    def __init__(self, folder: Path) -> None:
        self.paths = user_paths()
        self.paths.make()
        self.paths.plans.mkdir()
        for id_ in ("tidy", "tidy-2"):
            self.paths.plan(id_).mkdir(0o700)
        self.trees = self.paths.plan("tidy") / "trees"
        self.repo = Repo(folder)
        self.folder = folder

    def grounds(self, folder: Path | None = None, id_: str = "tidy") -> TaskFolders:
        return TaskFolders(self.paths, id_, folder or self.folder)

    async def where(self, id_: str, of: Plan = PLAN, at: PlanRun | None = None, **more: Any) -> tuple[str, str]:
        tree = await self.grounds(**more).prepare(of, of.task(id_), at or run())
        return tree.path, tree.branch


@pytest.fixture
def land(tmp_path: Path) -> Land:
    return Land(tmp_path / "repo")


async def test_in_a_repository_the_tasks_share_one_worktree(land: Land) -> None:
    shared = str(land.trees / "shared")

    assert (shared, "plan/tidy") == await land.where("a")
    assert (shared, "plan/tidy") == await land.where("b")


async def test_outside_of_one_they_work_in_the_plans_folder_or_in_their_own(land: Land, tmp_path: Path) -> None:
    assert (str(tmp_path), "") == await land.where("a", folder=tmp_path)
    assert (str(land.trees / "tidy.4-d"), "plan/tidy.4-d") == await land.where("d")
    assert (str(land.folder), "") == await land.where("e")


async def test_a_plan_in_a_folder_of_the_repository_works_in_the_same_one_of_the_worktree(land: Land) -> None:
    land.repo.commit("docs/x.md")

    assert (str(land.trees / "shared" / "docs"), "plan/tidy") == await land.where("a", folder=land.folder / "docs")


@pytest.mark.parametrize("wanted", ["own", "shared"])
async def test_a_worktree_without_a_repository_is_refused_with_a_next_step(
    land: Land, tmp_path: Path, wanted: str
) -> None:
    with pytest.raises(UsageError, match=r"task 'a' requires a worktree, but .* is not in a git repository") as told:
        await land.where("a", plan(task("a", worktree=wanted)), folder=tmp_path)

    assert "git init" in told.value.hint


async def test_every_attempt_works_in_the_same_worktree_whatever_an_earlier_one_reported(
    land: Land, tmp_path: Path
) -> None:
    own = str(land.trees / "tidy.4-d")
    before = run(began("d", workdir=str(tmp_path), branch="theirs", base="abc"))
    nowhere = run(began("d", workdir=str(land.folder)))

    for at in (run(), before, nowhere):
        assert (own, "plan/tidy.4-d") == await land.where("d", at=at)


@pytest.mark.parametrize("facts", [(), (steered("skip", "a"),), done("a"), failed("a")], ids=str)
async def test_a_task_that_continues_from_another_works_in_its_worktree_for_any_outcome(
    land: Land, facts: tuple[PlanFact, ...]
) -> None:
    of = plan(task("a", worktree="own"), task("b", inherits="a"), task("c", inherits="b"), worktree="own")

    assert (str(land.trees / "tidy.1-a"), "plan/tidy.1-a") == await land.where("c", of, run(*facts))


async def test_a_task_with_a_requested_worktree_gets_no_plans_folder_from_another(land: Land) -> None:
    of = plan(task("a", worktree="folder"), task("b", inherits="a", worktree="own"), task("c", inherits="a"))

    with pytest.raises(RefusedError, match="task 'b' requires a worktree, but continues in the plan's folder"):
        await land.where("b", of)

    assert (str(land.folder), "") == await land.where("c", of)


async def test_a_task_that_would_continue_from_another_machine_does_not_start(land: Land) -> None:
    """The plan named none; a person gave the task to an agent there."""
    again = run(began("a"), steered("replace", "a", "scripted@box"))
    skipped = run(began("a"), steered("replace", "a", "scripted@box"), steered("skip", "a"))

    with pytest.raises(RefusedError, match="continues where 'a' worked, and that was on 'box'"):
        await land.where("c", at=again)

    assert (str(land.trees / "shared"), "plan/tidy") == await land.where("c", at=skipped)


async def test_a_plan_agreed_in_a_repository_never_works_in_the_folder_without_it(land: Land) -> None:
    agreed = msgspec.structs.replace(run(), repository=str(land.folder / ".git"))
    (land.folder / ".git").rename(land.folder / "away")

    with pytest.raises(UsageError, match=r"task 'a' requires a worktree, but .* is not in a git repository"):
        await land.where("a", at=agreed)

    Repo(land.folder)
    moved = msgspec.structs.replace(run(), repository=str(land.folder / "away"))
    with pytest.raises(RefusedError, match=r"is no longer in the repository .*/away'"):
        await land.where("a", at=moved)


async def test_a_plan_agreed_outside_of_a_repository_stays_in_its_folder(land: Land) -> None:
    """Also once one of its tasks says `git init`."""
    assert (str(land.folder), "") == await land.where("a", at=msgspec.structs.replace(run(), repository=""))


def leads_elsewhere(land: Land, tree: Path) -> None:
    """What git records at the place is a link, which leads to the checkout."""
    shutil.rmtree(tree / "docs")
    (tree / "docs").symlink_to(land.folder / "docs")


def leads_there_from_above(land: Land, tree: Path) -> None:
    shutil.rmtree(tree)
    tree.symlink_to(land.folder)


def another_repository(land: Land, tree: Path) -> None:
    Repo(tree / "docs")


def of_the_checkout(land: Land, tree: Path) -> None:
    (tree / ".git").write_text(f"gitdir: {land.folder / '.git'}\n")


def of_another_repository(land: Land, tree: Path) -> None:
    shutil.rmtree(tree)
    Repo(tree.parent / "other").git("worktree", "add", "--quiet", "-b", "plan/tidy", str(tree))


def another_branch(land: Land, tree: Path) -> None:
    land.repo.git("switch", "--quiet", "-c", "mine", at=tree)


def no_branch(land: Land, tree: Path) -> None:
    land.repo.git("switch", "--quiet", "--detach", at=tree)


def a_copy(land: Land, tree: Path) -> None:
    """It says what another worktree says of itself; both would write one index."""
    other = tree.parent / "other"
    land.repo.git("worktree", "move", str(tree), str(other))
    shutil.copytree(other, tree)


def half_made(land: Land, tree: Path) -> None:
    """git writes this while it makes one, and takes it away at the end."""
    Path(land.repo.git("rev-parse", "--absolute-git-dir", at=tree), "locked").write_text("initializing\n")


def no_git_file(land: Land, tree: Path) -> None:
    (tree / ".git").unlink()


def gone(land: Land, tree: Path) -> None:
    shutil.rmtree(tree)


def forgotten(land: Land, tree: Path) -> None:
    shutil.rmtree(tree)
    land.repo.git("worktree", "prune")


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (leads_elsewhere, "resolves to '.*/repo', not to its worktree"),
        (leads_there_from_above, "is not a worktree"),
        (another_repository, "resolves to '.*/docs', not to its worktree"),
        (of_the_checkout, "is not a separate worktree"),
        (of_another_repository, "is not a worktree of '.*/repo'"),
        (another_branch, "is on 'mine', not on 'plan/tidy'"),
        (no_branch, "is on no branch, not on 'plan/tidy'"),
        (a_copy, "is a copy of a worktree, which git has at '.*/other'"),
        (half_made, "is incomplete: git is still creating it"),
        (no_git_file, "has lost its `.git` file"),
        (gone, "is gone, but its branch 'plan/tidy' still exists"),
        (forgotten, "the branch 'plan/tidy' already exists"),
    ],
)
async def test_a_folder_that_is_not_the_tasks_own_worktree_is_not_used(
    land: Land, happens: Callable[[Land, Path], None], why: str
) -> None:
    land.repo.commit("docs/x.md")
    docs = land.folder / "docs"
    tree = Path((await land.where("a", folder=docs))[0]).parent
    before = sorted(land.folder.rglob("*"))
    await asyncio.to_thread(happens, land, tree)

    with pytest.raises(RefusedError, match=why):
        await land.where("a", folder=docs)

    assert [path for path in before if ".git" not in path.parts] == [
        path for path in sorted(land.folder.rglob("*")) if ".git" not in path.parts
    ]


@pytest.mark.parametrize("happens", [no_git_file, gone], ids=lambda how: how.__name__)
async def test_the_hint_restores_a_worktree(land: Land, happens: Callable[[Land, Path], None]) -> None:
    tree = Path((await land.where("a"))[0])
    land.repo.commit("work.txt", at=tree)
    await asyncio.to_thread(happens, land, tree)

    with pytest.raises(RefusedError) as told:
        await land.where("a")

    land.repo.git(*shlex.split(told.value.hint.split("`")[1])[1:])
    assert (str(tree), "plan/tidy") == await land.where("a")
    assert (tree / "work.txt").exists()


async def test_a_continuing_task_may_be_on_no_branch_but_not_on_another_or_outside_of_its_worktree(land: Land) -> None:
    """A rebase that was cut short is on no branch."""
    tree = Path((await land.where("a"))[0])
    one, at, check = PLAN.task("a"), run(began("a", workdir=str(tree))), land.grounds().check
    await asyncio.to_thread(check, PLAN, one, at)
    await asyncio.to_thread(no_branch, land, tree)
    await asyncio.to_thread(check, PLAN, one, at)
    await asyncio.to_thread(another_branch, land, tree)
    with pytest.raises(RefusedError, match="is on 'mine', not on 'plan/tidy'"):
        await asyncio.to_thread(check, PLAN, one, at)
    await asyncio.to_thread(gone, land, tree)

    with pytest.raises(RefusedError, match="is not a worktree"):
        await asyncio.to_thread(check, PLAN, one, at)


async def test_a_terminal_may_be_in_the_worktree_or_outside_of_the_repository_only(land: Land, tmp_path: Path) -> None:
    tree, other = Path((await land.where("a"))[0]), Path((await land.where("d"))[0])
    nested = Repo(land.folder / "nested").folder
    (tree / "src").mkdir()
    c, folder, check = PLAN.task("c"), PLAN.task("e"), land.grounds().check_terminal

    for fits in (tree, tree / "src", tmp_path, Repo(tmp_path / "else").folder):
        await asyncio.to_thread(check, PLAN, c, run(), str(fits))
    for wrong in (land.folder, land.folder / ".git", nested, other):
        with pytest.raises(RefusedError, match=f"is in '{wrong}', not in its worktree '{tree}'"):
            await asyncio.to_thread(check, PLAN, c, run(), str(wrong))
    for unknown in ("", "src", f"{tree}/gone", f"{tree} (deleted)"):
        with pytest.raises(RefusedError, match="which cannot be read"):
            await asyncio.to_thread(check, PLAN, c, run(), unknown)
    await asyncio.to_thread(check, PLAN, folder, run(), str(land.folder))


@pytest.mark.parametrize("id_", ["a", "e"])
async def test_a_task_started_elsewhere_does_not_continue_there(land: Land, tmp_path: Path, id_: str) -> None:
    at = run(began(id_, workdir=str(tmp_path)))

    with pytest.raises(RefusedError, match=f"task '{id_}' was started in '{tmp_path}', but its folder is now"):
        await asyncio.to_thread(land.grounds().check, PLAN, PLAN.task(id_), at)


async def test_no_two_tasks_of_two_runs_share_one_branch(land: Land) -> None:
    """Ids that are alike once git's letters are taken; a second run of a plan, which is called `tidy-2`."""
    of = plan(*(task(id_, worktree="own") for id_ in ("a b", "a-b", "日本", "本日", "3", "x" * 300)))
    names = [await land.where(one.id, of) for one in of.tasks]
    second = await land.grounds(id_="tidy-2").prepare(PLAN, PLAN.task("b"), run())
    names.append((second.path, second.branch))

    assert len(names) == len(set(names)) == len({branch for _, branch in names})


def test_a_worktree_is_named_by_number_and_name() -> None:
    assert ["2", "3-parser"] == [own_name(task("2", 2)), own_name(task("parser", 3))]


# What is left for others


def test_git_ignores_the_files_that_kasmon_adds(land: Land) -> None:
    repo = land.repo
    lay_out(repo.folder, PLAN.task("a"))
    lay_out(repo.folder, PLAN.task("b"))
    (repo.folder / ".kasmon" / "task-1" / "result.md").touch()

    assert "" == repo.git("status", "--porcelain")


def test_no_file_is_added_through_a_link(land: Land, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (land.folder / ".kasmon").symlink_to(elsewhere)

    with pytest.raises(RefusedError, match="is a symbolic link"):
        lay_out(land.folder, PLAN.task("a"))

    assert [] == list(elsewhere.iterdir())


def test_a_result_is_the_file_in_the_tasks_own_place_or_beside_its_work(tmp_path: Path) -> None:
    one = PLAN.task("a")
    assert "" == result(tmp_path, one, 0)
    (tmp_path / "result.md").write_text("beside")
    assert "beside" == result(tmp_path, one, 0)
    lay_out(tmp_path, one)
    (tmp_path / ".kasmon" / "task-1" / "result.md").write_text("own")
    assert "own" == result(tmp_path, one, 0)


def test_an_earlier_result_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "result.md").write_text("old")
    os.utime(tmp_path / "result.md", (100, 100))

    assert "" == result(tmp_path, PLAN.task("a"), 200.0)


async def test_a_file_of_the_repository_is_no_result(land: Land) -> None:
    land.repo.commit("result.md")
    path, _ = await land.where("a")

    assert "" == await asyncio.to_thread(result, Path(path), PLAN.task("a"), time.time())


def test_a_result_may_have_any_content(tmp_path: Path) -> None:
    one = PLAN.task("a")
    (tmp_path / "result.md").write_bytes(b"\xff" * (2 * LONGEST_RESULT))
    assert LONGEST_RESULT == len(result(tmp_path, one, 0))
    (tmp_path / "result.md").unlink()
    (tmp_path / "result.md").mkdir()
    assert "" == result(tmp_path, one, 0)
    (tmp_path / "result.md").rmdir()
    os.mkfifo(tmp_path / "result.md")
    assert "" == result(tmp_path, one, 0)


def test_a_result_that_is_a_link_to_unreadable_files_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    (tmp_path / "result.md").symlink_to(tmp_path / "secret")

    assert "" == result(tmp_path, PLAN.task("a"), 0)
