"""Git worktrees, on real repositories: made, and described."""

from pathlib import Path

import pytest

from kasmon.errors import GitError, RefusedError, UsageError
from kasmon.repository.git import head
from kasmon.supervisor.worktrees import worktree
from tests.support.git_repo import Repo

pytestmark = pytest.mark.usefixtures("no_git_config")


# Made


def test_a_worktree_begins_at_head_on_a_branch_of_its_own(repo: Repo, tmp_path: Path) -> None:
    tree = worktree.create(repo.folder, tmp_path / "deep" / "t", "plan/t")

    assert worktree.TaskWorktree(path=str(tmp_path / "deep" / "t"), branch="plan/t", base=repo.head) == tree
    assert "plan/t" == repo.git("branch", "--show-current", at=Path(tree.path))
    assert "main" == repo.git("branch", "--show-current")
    assert 0o700 == (tmp_path / "deep").stat().st_mode & 0o777


def test_a_repeated_call_returns_the_same_worktree_with_its_work(repo: Repo, tree: Path) -> None:
    base = repo.head
    repo.commit("more.txt", at=tree)
    repo.commit("else.txt")

    assert base == worktree.create(repo.folder, tree, "plan/t").base
    assert (tree / "more.txt").exists()


def test_an_existing_branch_is_not_used(repo: Repo, tmp_path: Path) -> None:
    repo.git("branch", "plan/t")

    with pytest.raises(RefusedError, match="the branch 'plan/t' already exists") as told:
        worktree.create(repo.folder, tmp_path / "t", "plan/t")

    assert "git branch -m plan/t" in told.value.hint
    assert not (tmp_path / "t").exists()


def test_a_worktree_whose_agent_changed_the_branch_is_not_taken_for_ours(repo: Repo, tree: Path) -> None:
    repo.git("checkout", "--quiet", "-b", "mine", at=tree)

    with pytest.raises(RefusedError, match="is on 'mine', not on 'plan/t'"):
        worktree.create(repo.folder, tree, "plan/t")


def test_a_repository_without_a_commit_gives_a_next_step(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="has no commit yet") as told:
        worktree.create(Repo(tmp_path / "r", commits=0).folder, tmp_path / "t", "plan/t")

    assert "Create a first commit" in told.value.hint


def test_a_detached_head_is_the_base(repo: Repo, tmp_path: Path) -> None:
    first = repo.head
    repo.commit("second.txt")
    repo.git("checkout", "--quiet", first)

    assert first == worktree.create(repo.folder, tmp_path / "t", "plan/t").base


def test_an_existing_file_at_the_path_of_the_worktree_is_left_alone(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "mine").touch()

    with pytest.raises(GitError, match="already exists"):
        worktree.create(repo.folder, tmp_path / "t", "plan/t")

    assert (tmp_path / "t" / "mine").exists()
    assert "" == repo.git("branch", "--list", "plan/t")


def test_no_program_of_the_repository_runs(repo: Repo, tmp_path: Path) -> None:
    hook = repo.folder / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    hook.chmod(0o755)

    worktree.create(repo.folder, tmp_path / "t", "plan/t")

    assert not (tmp_path / "ran").exists()


def test_worktrees_of_others_on_a_missing_disk_are_not_pruned(repo: Repo, tmp_path: Path) -> None:
    """`git worktree prune` would lose what was staged there."""
    theirs = tmp_path / "usb"
    repo.git("worktree", "add", "--quiet", str(theirs))
    (theirs / "staged.txt").write_text("only here\n")
    repo.git("add", "staged.txt", at=theirs)
    theirs.rename(tmp_path / "unplugged")

    worktree.create(repo.folder, tmp_path / "t", "plan/t")

    (tmp_path / "unplugged").rename(theirs)
    assert "A  staged.txt" == repo.git("status", "--porcelain", at=theirs)


# What a person should know


def test_a_clean_repository_has_no_remarks(repo: Repo) -> None:
    assert () == worktree.remarks(repo.folder)


def test_files_that_worktrees_will_not_have_are_remarked(repo: Repo, tmp_path: Path) -> None:
    inner = Repo(tmp_path / "inner")
    repo.git("submodule", "--quiet", "add", str(inner.folder), "inner")
    repo.git("commit", "--quiet", "-m", "inner")
    (repo.folder / "file0.txt").write_text("changed\n")
    (repo.folder / "new.txt").touch()
    repo.git("checkout", "--quiet", "--detach")

    dirty, detached, submodules = worktree.remarks(repo.folder)

    assert "2 files of" in dirty
    assert "are not committed and will be missing from the worktrees" in dirty
    assert "HEAD is detached" in detached
    assert "submodules are not checked out" in submodules


def test_a_repository_without_a_commit_can_be_examined(tmp_path: Path) -> None:
    assert () == worktree.remarks(Repo(tmp_path / "r", commits=0).folder)
    assert "" == head(tmp_path / "r")


# Names


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("tidy", "2"), "tidy-2"),
        (("a b", "ç..d~^:"), "a-b-d"),
        (("--x--",), "x"),
        (("a_b",), "a_b"),
        (("..lock",), "lock"),
    ],
)
def test_a_branch_name_is_one_that_git_accepts(words: tuple[str, ...], name: str, repo: Repo) -> None:
    assert name == worktree.proper_branch(words)
    repo.git("check-ref-format", f"refs/heads/plan/{name}")


def test_an_empty_text_is_no_name() -> None:
    with pytest.raises(UsageError):
        worktree.proper_branch(("日本", "…"))
