"""What the dashboard has done on the files of a session of another machine, on two real kasmons joined by a link."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from kasmon.errors import PushedCommitsError, RefusedError, StaleRequestError
from kasmon.model.permission import SessionId
from kasmon.model.review.file_changes import split
from kasmon.model.review.hunks import ShownHunk
from kasmon.supervisor.finish.finish_plan import FinishRequest
from kasmon.tui.gateway.live.gateway import LiveGateway
from tests.support.bus.two_command_lines import MACHINE, TwoCommandLines
from tests.support.cli.fork_server import ForkServer
from tests.support.git_repo import Repo

Mark = TypeVar("Mark")


@pytest.fixture(scope="module")
def joined(fork_server: ForkServer) -> Iterator[TwoCommandLines]:
    joined = TwoCommandLines(fork_server)
    (joined.there.home / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
    yield joined
    joined.close()


class Worktree:
    """A session there, in a worktree of a repository of its own."""

    def __init__(self, joined: TwoCommandLines, name: str) -> None:
        self.repo = Repo(joined.there.home / name)
        self.session = SessionId(joined.new(name, "say hi", "--dir", str(self.repo.folder), "--worktree"))
        self.tree = Path(joined.there.json("show", self.session)["session"]["worktree"]["path"])


@asynccontextmanager
async def gateway_of(joined: TwoCommandLines) -> AsyncIterator[LiveGateway]:
    gateway = await asyncio.to_thread(LiveGateway, joined.here.paths)
    await asyncio.to_thread(gateway.first)
    yield gateway
    await asyncio.to_thread(gateway.close)


async def test_a_branch_is_finished_there_as_it_was_planned(joined: TwoCommandLines) -> None:
    work, said = await asyncio.to_thread(Worktree, joined, "fix"), list[str]()
    (work.tree / "new.txt").write_text("one\n")
    async with gateway_of(joined) as gateway:
        operations = await gateway.operations()
        left = await gateway.plan_finish(work.session, FinishRequest())
        request = FinishRequest(commits=True, message="-add\nwith a body", merge="merge")
        stale = await gateway.plan_finish(work.session, request)
        (work.tree / "more.txt").write_text("two\n")
        with pytest.raises(StaleRequestError):
            await operations.finish(work.session, stale, said.append)
        plan = await gateway.plan_finish(work.session, request)
        assert await operations.finish(work.session, plan, said.append) == ""
        with pytest.raises(RefusedError, match=f"{MACHINE}: the branch has no commit"):
            await gateway.plan_finish(work.session, FinishRequest(merge="squash"))

    assert [(step.action, step.text) for step in left.steps] == [("commit", "1 change, not committed")]
    assert (plan.tree.path, plan.state.uncommitted) == (f"{MACHINE}:{work.tree}", 2)
    assert [text.partition(" ")[0] for text in said] == ["committed", "merged"]
    assert work.repo.git("log", "-1", "--format=%an %B", "main^2").split("\n") == ["Ann -add", "with a body"]


async def test_an_update_leaves_conflicts_on_the_machine_and_a_discard_removes_the_worktree_there(
    joined: TwoCommandLines,
) -> None:
    work, said = await asyncio.to_thread(Worktree, joined, "docs"), list[str]()
    work.repo.commit("file0.txt", "here\n", at=work.tree)
    work.repo.commit("file0.txt", "base\n")
    async with gateway_of(joined) as gateway:
        operations = await gateway.operations()
        plan = await gateway.plan_finish(work.session, FinishRequest(update="merge", conflicts="keep"))
        conflicts = await operations.finish(work.session, plan, said.append)
        work.repo.git("merge", "--abort", at=work.tree)
        await asyncio.to_thread(joined.there, "stop", work.session)
        discard = await gateway.plan_finish(work.session, FinishRequest(discards=True))
        await operations.finish(work.session, discard, said.append)
        with pytest.raises(RefusedError, match="is gone"):
            await gateway.plan_finish(work.session, FinishRequest())

    assert conflicts == f"Conflicts in 'file0.txt': resolve them in '{MACHINE}:{work.tree}'."
    assert not work.tree.exists()


async def test_commits_that_are_pushed_there_are_replaced_only_on_request(joined: TwoCommandLines) -> None:
    work = await asyncio.to_thread(Worktree, joined, "pushed")
    remote = Repo(joined.there.home / "remote")
    work.repo.git("remote", "add", "origin", str(remote.folder))
    work.repo.commit("new.txt", at=work.tree)
    work.repo.git("push", "--quiet", "--set-upstream", "origin", "HEAD", at=work.tree)
    work.repo.commit("base.txt")
    async with gateway_of(joined) as gateway:
        with pytest.raises(PushedCommitsError, match="is pushed to origin/"):
            await gateway.plan_finish(work.session, FinishRequest(update="rebase"))
        plan = await gateway.plan_finish(work.session, FinishRequest(update="rebase", rewrites=True))
        with pytest.raises(RefusedError, match="no open pull request"):
            await (await gateway.operations()).send_feedback(work.session)

    assert plan.steps[0].action == "update"


async def test_hunks_are_reverted_staged_and_undone_on_the_machine_only_as_they_were_shown(
    joined: TwoCommandLines,
) -> None:
    work = await asyncio.to_thread(Worktree, joined, "hunks")
    name = "-ü x\u200b.txt"
    work.repo.commit(name, "one\ntwo\n", at=work.tree)
    (work.tree / name).write_text("one\nthree\x1b[m\n")
    async with gateway_of(joined) as gateway:
        operations = await gateway.operations()
        [change] = split((await gateway.changes_of(work.session)).diff)
        hunk = ShownHunk(name=change.name, head=change.head, lines=change.lines)
        staged = await operations.stage_hunk(work.session, hunk)
        index = work.repo.git("diff", "--cached", at=work.tree)
        await operations.undo_hunk(work.session)
        reverted = await operations.revert_hunk(work.session, hunk)
        is_reverted = not (work.tree / name).exists()
        undone = await operations.undo_hunk(work.session)
        (work.tree / name).write_text("one\nfour\n")
        for change_hunk in (operations.stage_hunk, operations.revert_hunk):
            with pytest.raises(StaleRequestError):
                await change_hunk(work.session, hunk)

    assert [text.rpartition(" ")[2] for text in (staged, reverted, undone)] == ["staged.", "reverted.", "undone."]
    assert ("+three" in index, is_reverted) == (True, True)
    assert (work.tree / name).read_text() == "one\nfour\n"
    assert work.repo.git("diff", "--cached", at=work.tree) == ""


async def test_files_on_the_machine_are_listed_for_completion_and_unusual_names_are_not(
    joined: TwoCommandLines,
) -> None:
    work = await asyncio.to_thread(Worktree, joined, "files")
    work.repo.commit("src/deep/main.py", at=work.tree)
    (work.tree / "x\x1b[31m\u202e.txt").write_text("")
    (work.tree / "[bold]y[").write_text("")
    async with gateway_of(joined) as gateway:
        files = await gateway.files(work.session)
        listed = await asyncio.to_thread(joined.here, "show", f"{MACHINE}:files", "--files")

    assert sorted(files) == ["[bold]y[", "file0.txt", "src/", "src/deep/", "src/deep/main.py"]
    assert sorted(listed.out.split()) == sorted(files)


async def test_the_marks_of_branches_and_of_files_that_two_sessions_change_are_read_there(
    joined: TwoCommandLines,
) -> None:
    repo = Repo(joined.there.home / "marked")

    def work_on(name: str) -> tuple[SessionId, Path]:
        session = SessionId(joined.new(name, "say hi", "--dir", str(repo.folder), "--worktree"))
        return session, Path(joined.there.json("show", session)["session"]["worktree"]["path"])

    one, tree = await asyncio.to_thread(work_on, "one")
    other, second = await asyncio.to_thread(work_on, "other")
    for each in (tree, second):
        (each / "file0.txt").write_text(f"{each}\n")
        repo.git("commit", "--quiet", "--all", "--message", "change it", at=each)
    (tree / "new.txt").write_text("one\n")
    async with gateway_of(joined) as gateway:
        following = asyncio.create_task(gateway.follow_fleet(lambda _: None))
        async with asyncio.timeout(60):
            branches = await _wait_for(gateway.branches(lambda: True), one, other)
            collisions = await _wait_for(gateway.collisions(), one, other)
        following.cancel()

    assert (branches[one].state.ahead, branches[one].state.untracked, branches[other].state.untracked) == (1, 1, 0)
    assert collisions[one].text == f"{MACHINE}:other changes the same lines of file0.txt too"
    assert (collisions[one].others, collisions[other].others) == ((other,), (one,))


async def _wait_for(updates: AsyncIterator[Mapping[SessionId, Mark]], *sessions: SessionId) -> Mapping[SessionId, Mark]:
    """Return the first of *updates* that has a mark of each of *sessions*."""
    async for marks in updates:
        if set(sessions) <= marks.keys():
            return marks
    raise AssertionError("the updates ended")
