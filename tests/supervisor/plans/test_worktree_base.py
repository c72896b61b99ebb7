"""What a task's own worktree begins from: the work of the tasks that it needs, or what `base` says; on real git."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kasmon.errors import MergeConflictError, RefusedError, UsageError
from kasmon.model.plan.events import PlanFact, TaskClaimed, decode
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import TaskState
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.plans.task_folder import TaskFolders
from kasmon.supervisor.plans.view import read_view
from kasmon.supervisor.plans.worktree_base import branches_of
from kasmon.supervisor.worktrees.worktree import TaskWorktree, create
from tests.supervisor.plans.test_runner import CONFIG, Site
from tests.support.git_repo import Repo
from tests.support.sample_plans import began, plan, run, steered, task
from tests.support.sample_plans import done as finished
from tests.support.supervisor.env import Env
from tests.support.wait import auntil

pytestmark = pytest.mark.usefixtures("no_git_config")
off = asyncio.to_thread
DIAMOND = plan(
    task("a"), task("b"), task("c", needs=("a", "b")), task("d", needs=("c",)), worktree="own", advance="auto"
)


def done(id_: str, tree: TaskWorktree | None = None, branch: str = "") -> tuple[PlanFact, ...]:
    where: dict[str, Any] = (
        {"workdir": tree.path, "branch": tree.branch, "base": tree.base} if tree else {"branch": branch}
    )
    return began(id_, **where), *finished(id_)[1:]


class Land:
    """A person's repository, with an uncommitted change, and a run of a plan in it."""

    def __init__(self, folder: Path) -> None:
        self.paths: Paths = user_paths()
        self.paths.make()
        self.paths.plans.mkdir()
        self.paths.plan("tidy").mkdir(0o700)
        self.repo = Repo(folder)
        (folder / "file0.txt").write_text("not committed\n")
        self.grounds = TaskFolders(self.paths, "tidy", folder)

    def checkout(self) -> tuple[str, ...]:
        """What is the person's own: the commit, the index, the files, and all refs but the tasks' branches."""
        refs = self.repo.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        own = [ref for ref in refs if not ref.startswith("refs/heads/plan/")]
        text = (self.repo.folder / "file0.txt").read_text()
        head = (self.repo.folder / ".git" / "HEAD").read_text()
        return (*own, text, head, self.repo.git("ls-files", "--stage"), self.repo.git("status", "--porcelain"))

    async def tree(self, id_: str, *facts: PlanFact, of: Plan = DIAMOND) -> TaskWorktree:
        """Where the task *id_* begins after *facts*."""
        return await self.grounds.prepare(of, of.task(id_), run(*facts))

    async def work(
        self, id_: str, file: str, text: str = "one\n", *facts: PlanFact, of: Plan = DIAMOND
    ) -> TaskWorktree:
        tree = await self.tree(id_, *facts, of=of)
        await off(self.repo.commit, file, text, Path(tree.path))
        return tree

    def at(self, tree: TaskWorktree, name: str = "HEAD") -> str:
        return self.repo.git("rev-parse", name, at=Path(tree.path))


@pytest.fixture
def land(tmp_path: Path) -> Iterator[Land]:
    land = Land(tmp_path / "repo")
    before = land.checkout()
    yield land
    assert before == land.checkout()


async def test_a_task_begins_from_the_branch_of_the_one_that_it_needs(land: Land) -> None:
    of = plan(task("a"), task("b", needs=("a",)), worktree="own")
    a = await land.work("a", "a.txt", of=of)

    b = await land.tree("b", *done("a", a), of=of)

    assert (Path(b.path) / "a.txt").exists()
    assert (land.at(a), "plan/tidy.2-b") == (b.base, b.branch)
    assert land.at(a) == land.at(b)


async def test_a_task_begins_from_a_merge_of_the_branches_of_several_on_its_own_branch(land: Land) -> None:
    a, b = await land.work("a", "a.txt"), await land.work("b", "b.txt")
    before = land.at(a), land.at(b)

    c = await land.tree("c", *done("a", a), *done("b", b))

    assert ["a.txt", "b.txt"] == sorted(path.name for path in Path(c.path).glob("?.txt"))
    assert [c.base, *before] == land.repo.git("rev-list", "--parents", "-1", "HEAD", at=Path(c.path)).split()
    assert before == (land.at(a), land.at(b))
    assert c == await land.tree("c", *done("a", a), *done("b", b))


async def test_an_interrupted_merge_is_completed(land: Land) -> None:
    """A runner was killed between the worktree and the merge in it."""
    a, b = await land.work("a", "a.txt"), await land.work("b", "b.txt")
    await off(create, land.repo.folder, land.paths.plan("tidy") / "trees" / "tidy.3-c", "plan/tidy.3-c", a.branch)

    assert (Path((await land.tree("c", *done("a", a), *done("b", b))).path) / "b.txt").exists()


async def test_a_conflict_names_the_files_and_the_user_resolves_it_in_the_tasks_worktree(land: Land) -> None:
    a, b = await land.work("a", "x.txt", "of a\n"), await land.work("b", "x.txt", "of b\n")
    facts = (*done("a", a), *done("b", b))
    path = land.paths.plan("tidy") / "trees" / "tidy.3-c"

    for _ in range(2):  # a retry before it is resolved says the same
        with pytest.raises(MergeConflictError) as told:
            await land.tree("c", *facts)
        assert (("x.txt",), str(path)) == (told.value.files, told.value.folder)
        assert "'plan/tidy.1-a' and 'plan/tidy.2-b' conflict in 'x.txt'" in told.value.message
    (path / "x.txt").write_text("of both\n")
    await off(land.repo.git, "add", "x.txt", at=path)
    with pytest.raises(RefusedError, match="is resolved but not committed"):
        await land.tree("c", *facts)
    await off(land.repo.git, "commit", "--quiet", "--no-edit", at=path)

    c = await land.tree("c", *facts)

    assert (land.at(c), "of both\n") == (c.base, (path / "x.txt").read_text())


async def test_work_of_others_after_the_start_of_an_attempt_is_not_mixed_with_its_work(land: Land) -> None:
    of = plan(task("a"), task("b", needs=("a",)), worktree="own")
    a = await land.work("a", "a.txt", of=of)
    b = await land.work("b", "b.txt", "one\n", *done("a", a), of=of)
    await off(land.repo.commit, "later.txt", at=Path(a.path))

    again = await land.tree("b", *done("a", a), began("b", workdir=b.path, branch=b.branch, base=b.base), of=of)

    assert b == again
    assert not (Path(b.path) / "later.txt").exists()


async def test_work_that_finishes_later_is_not_mixed_into_a_worktree_inherited_from_a_skipped_task(land: Land) -> None:
    of = plan(task("a"), task("b", needs=("a",)), task("c", inherits="b"), worktree="own", advance="auto")
    skipped = steered("skip", "b")
    c = await land.work("c", "c.txt", "one\n", skipped, of=of)
    began_c = began("c", workdir=c.path, branch=c.branch, base=c.base)
    a = await land.work("a", "a.txt", of=of)

    assert c == await land.tree("c", skipped, began_c, *done("a", a), of=of)
    assert not (Path(c.path) / "a.txt").exists()


def work_in(tree: TaskWorktree) -> list[str]:
    return sorted(path.stem for path in Path(tree.path).glob("?.txt"))


async def test_a_task_that_inherits_a_worktree_gets_the_work_it_needs_into_that_when_it_begins(land: Land) -> None:
    of = plan(task("a"), task("b"), task("c", inherits="a", needs=("b",)), worktree="own", advance="auto")
    a, b = await land.work("a", "a.txt", of=of), await land.work("b", "b.txt", of=of)
    facts = *done("a", a), *done("b", b)

    c = await land.tree("c", *facts, of=of)

    assert (["a", "b"], a.path, a.branch, land.at(c)) == (work_in(c), c.path, c.branch, c.base)
    await off(land.repo.commit, "d.txt", at=Path(b.path))
    again = await land.tree("c", *facts, began("c", workdir=c.path, branch=c.branch, base=c.base), of=of)
    assert (c, ["a", "b"]) == (again, work_in(again))


async def test_a_conflict_with_the_worktree_that_a_task_inherits_names_the_files(land: Land) -> None:
    of = plan(task("a"), task("b"), task("c", inherits="a", needs=("b",)), worktree="own", advance="auto")
    a, b = await land.work("a", "x.txt", "of a\n", of=of), await land.work("b", "x.txt", "of b\n", of=of)

    for _ in range(2):
        with pytest.raises(MergeConflictError, match=r"'plan/tidy\.1-a' and 'plan/tidy\.2-b' conflict in 'x\.txt'"):
            await land.tree("c", *done("a", a), *done("b", b), of=of)


async def test_a_task_that_inherits_from_a_skipped_one_gets_what_both_need(land: Land) -> None:
    of = plan(
        task("a"),
        task("b"),
        task("s", needs=("a",)),
        task("c", inherits="s", needs=("b",)),
        worktree="own",
        advance="auto",
    )
    a, b = await land.work("a", "a.txt", of=of), await land.work("b", "b.txt", of=of)

    assert ["a", "b"] == work_in(await land.tree("c", *done("a", a), *done("b", b), steered("skip", "s"), of=of))


@pytest.mark.parametrize(("base", "work"), [("", "ab"), ("needs", "ab"), ("HEAD", "a")])
async def test_the_base_of_the_plan_has_priority_also_for_a_task_that_inherits(
    land: Land, base: str, work: str
) -> None:
    of = plan(task("a"), task("b"), task("c", inherits="a", needs=("b",)), worktree="own", advance="auto", base=base)
    a, b = await land.work("a", "a.txt", of=of), await land.work("b", "b.txt", of=of)

    assert list(work) == work_in(await land.tree("c", *done("a", a), *done("b", b), of=of))


async def test_commits_of_a_task_in_the_folder_of_the_plan_are_included_in_the_work_that_another_needs(
    land: Land,
) -> None:
    of = plan(task("a", worktree="folder"), task("b"), task("c", needs=("b", "a")), worktree="own", advance="auto")
    first = land.repo.head
    b = await land.work("b", "b.txt", of=of)
    await off(land.repo.commit, "a.txt")
    try:
        c = await land.tree("c", *done("a"), *done("b", b), of=of)
    finally:
        await off(land.repo.git, "reset", "--quiet", first)
        await off((land.repo.folder / "a.txt").unlink)

    assert ["a", "b"] == work_in(c)
    assert "Merge HEAD of the plan's folder" == land.repo.git("log", "-1", "--format=%s", at=Path(c.path)).strip()


async def test_a_worktree_deleted_with_its_branch_starts_again_from_the_work_it_needs(land: Land) -> None:
    of = plan(task("a"), task("b", needs=("a",)), worktree="own")
    a = await land.work("a", "a.txt", of=of)
    b = await land.work("b", "b.txt", "one\n", *done("a", a), of=of)
    await off(land.repo.git, "worktree", "remove", "--force", b.path)
    await off(land.repo.git, "branch", "-D", b.branch)

    await land.tree("b", *done("a", a), began("b", workdir=b.path, branch=b.branch, base=b.base), of=of)

    assert (Path(b.path) / "a.txt").exists()


@pytest.mark.parametrize(
    ("of_plan", "of_task", "begins"),
    [
        ("", "", "work"),
        ("", "HEAD", "head"),
        ("", "v1", "first"),
        ("v1", "", "first"),
        ("v1", "HEAD", "head"),
        ("v1", "needs", "work"),
        ("needs", "", "work"),
    ],
)
async def test_a_base_has_priority_that_of_the_task_over_that_of_the_plan(
    land: Land, of_plan: str, of_task: str, begins: str
) -> None:
    of = plan(task("a", base="HEAD"), task("b", needs=("a",), base=of_task), worktree="own", base=of_plan)
    first = land.repo.head
    a = await land.work("a", "a.txt", of=of)
    await off(land.repo.git, "tag", "v1")
    await off(land.repo.git, "commit", "--quiet", "--allow-empty", "-m", "more")
    commits = {"first": first, "head": land.repo.head, "work": land.at(a)}
    try:
        assert commits[begins] == (await land.tree("b", *done("a", a), of=of)).base
    finally:
        await off(land.repo.git, "update-ref", "-d", "refs/tags/v1")
        await off(land.repo.git, "reset", "--quiet", "--soft", first)


async def test_a_shared_worktree_starts_at_the_base_of_the_plan(land: Land) -> None:
    await off(land.repo.git, "branch", "plan/other", "HEAD")
    of = plan(task("a"), worktree="shared", base="plan/other")

    assert land.repo.head == (await land.tree("a", of=of)).base


@pytest.mark.parametrize("base", ["none", "--help", "HEAD:file0.txt", "-", "@{upstream}", "a b\nc"])
async def test_a_base_that_names_no_commit_is_refused(land: Land, base: str) -> None:
    of = plan(task("a", worktree="own", base=base))

    with pytest.raises(UsageError, match="names no commit"):
        await land.tree("a", of=of)
    assert "" == land.repo.git("branch", "--list", "plan/*")


async def test_a_missing_needed_branch_prevents_the_start(land: Land) -> None:
    with pytest.raises(RefusedError, match="the branch 'plan/gone' with the work of task 'a' no longer exists"):
        await land.tree("c", *done("a", branch="plan/gone"), *done("b"))


async def test_no_merge_driver_of_the_repository_runs(land: Land, tmp_path: Path) -> None:
    a, b = await land.work("a", "x.txt", "of a\n"), await land.work("b", "x.txt", "of b\n")
    (land.repo.folder / ".git" / "info").mkdir(exist_ok=True)
    (land.repo.folder / ".git" / "info" / "attributes").write_text("* merge=evil\n")
    await off(land.repo.git, "config", "merge.evil.driver", f"touch {tmp_path}/ran")

    with pytest.raises(MergeConflictError):
        await land.tree("c", *done("a", a), *done("b", b))

    assert not (tmp_path / "ran").exists()


WAVES = plan(
    task("a", wave=1),
    task("b", wave=1),
    task("c", wave=2),
    task("d", wave=3),
    task("e", wave=3, needs=("a",)),
    worktree="own",
)


@pytest.mark.parametrize(
    ("of", "id_", "facts", "needed"),
    [
        (DIAMOND, "a", (), ""),
        (DIAMOND, "c", (*done("a", branch="A"), *done("b", branch="B")), "AB"),
        (DIAMOND, "c", (*done("a", branch="A"), *done("b", branch="A")), "A"),
        (DIAMOND, "d", (*done("a", branch="A"), *done("b", branch="B"), *done("c", branch="C")), "C"),
        (DIAMOND, "d", (*done("a", branch="A"), *done("b", branch="B"), steered("skip", "c")), "AB"),
        (DIAMOND, "d", (*done("a", branch="A"), began("b", branch="B"), steered("skip", "b"), *done("c")), "A"),
        (DIAMOND, "c", (*done("a"), *done("b", branch="B")), "B"),
        (WAVES, "c", (*done("a", branch="A"), *done("b", branch="B")), "AB"),
        (WAVES, "d", (*done("a", branch="A"), *done("b", branch="B"), *done("c", branch="C")), "C"),
        (WAVES, "d", (*done("a", branch="A"), steered("skip", "b"), steered("skip", "c")), "A"),
        (WAVES, "e", (*done("a", branch="A"), *done("b", branch="B"), *done("c", branch="C")), "A"),
    ],
)
def test_the_branches_that_a_task_needs(of: Plan, id_: str, facts: tuple[PlanFact, ...], needed: str) -> None:
    assert list(needed) == list(branches_of(of, of.task(id_), run(*facts)))


# With a runner


def commits(file: str, text: str = "one") -> str:
    who = "-c user.name=t -c user.email=t -c commit.gpgsign=false"
    return f"echo {text} > {file} && git add {file} && git {who} commit -qm {file}"


def tasks(*of: tuple[str, str, str]) -> str:
    """A plan of commands in worktrees of their own: id, what it needs, what it runs."""
    head = 'advance = "auto"\nworktree = "own"\nwithout_check = "advance"\n'
    return head + "".join(
        f'[[task]]\nid = "{id_}"\nneeds = {list(needs)}\nrun = "{command}"\nretries = 1\n' for id_, needs, command in of
    )


async def test_a_plan_asks_about_a_conflict_with_its_files_and_continues_once_it_is_resolved(env: Env) -> None:
    repo = await off(Repo, env.folder / "work")
    text = tasks(("a", "", commits("x.txt")), ("b", "", commits("x.txt", "two")), ("c", "ab", "grep both x.txt"))
    site = await off(Site, env, text)

    async with site.runs() as now, asyncio.timeout(60):
        await auntil(lambda: now().of("c").state is TaskState.FAILED)
        assert (("x.txt",), 1) == (now().of("c").conflicts, now().of("c").attempt)
        path = site.book.folder / "trees" / "tidy.3-c"
        asks = (await off(lambda: read_view(site.book, site.fleet(), CONFIG))).ahead.question
        assert "task c cannot start: 'plan/tidy.1-a' and 'plan/tidy.2-b' conflict in 'x.txt'" in asks
        await off((path / "x.txt").write_text, "both\n")
        await off(repo.git, "commit", "--quiet", "--all", "--no-edit", at=path)
        await off(site.book.record_decision, "retry", "c")
        await auntil(lambda: now().state == "ended")

    assert ("claimed", TaskState.DONE) == (now().outcome, now().of("c").state)
    assert [] == list(now().of("c").failures)
    assert "main" == repo.git("branch", "--show-current")


async def test_a_claim_lists_the_work_that_its_dependents_will_not_have(env: Env) -> None:
    await off(Repo, env.folder / "work")
    site = await off(Site, env, tasks(("a", "", f"{commits('x.txt')} && touch y.txt"), ("b", "a", "test -e x.txt")))

    async with site.runs() as now:
        await auntil(lambda: now().state == "ended")

    lines = (site.book.folder / "events.jsonl").read_bytes().splitlines()
    said = {fact.task: fact.text for fact in map(decode, lines) if isinstance(fact, TaskClaimed)}
    assert {
        "a": "its command ended with 0 (1 file is not committed: dependent tasks start without them)",
        "b": "its command ended with 0",
    } == said
