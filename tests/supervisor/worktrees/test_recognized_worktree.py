"""Worktrees that kasmon did not create: which branch and base a session works on."""

import os
from pathlib import Path

import pytest

from kasmon.supervisor.worktrees.recognized_worktree import recognize, worktree_of
from tests.support.git_repo import Repo
from tests.support.sample_fleet import session


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo(tmp_path / "repo")
    repo.git("tag", "v1")
    repo.git("update-ref", "refs/remotes/origin/dev", repo.head)
    repo.commit("later")
    return repo


@pytest.mark.parametrize(
    ("base", "name", "commit"),
    [
        ((), "main", "HEAD"),
        (("main",), "main", "HEAD"),
        (("v1",), "v1", "v1"),
        (("origin/dev",), "origin/dev", "v1"),
        (("HEAD~",), "HEAD~", "v1"),
        (("CLAUDE",), "main", "HEAD"),
    ],
)
def test_the_log_of_the_branch_names_its_base(
    repo: Repo, tmp_path: Path, base: tuple[str, ...], name: str, commit: str
) -> None:
    base = (f"{repo.head}^{{commit}}",) if base == ("CLAUDE",) else base  # as claude 2.1 does
    repo.git("worktree", "add", "-q", "-b", "me/fix", "../tree", *base)
    repo.commit("sub/mine", at=tmp_path / "tree")

    found = recognize(str(tmp_path / "tree" / "sub"))

    assert found is not None
    assert (str(tmp_path / "tree"), "me/fix", str(repo.folder)) == (found.path, found.branch, found.source)
    assert (name, repo.git("rev-parse", commit)) == (found.base_name, found.base)
    assert not found.is_new_branch


def test_a_main_checkout_a_submodule_a_detached_worktree_and_a_broken_one_are_none(repo: Repo, tmp_path: Path) -> None:
    other = Repo(tmp_path / "other")
    repo.git("submodule", "add", "-q", str(other.folder), "module")
    repo.git("worktree", "add", "-q", "--detach", "../detached")
    repo.git("worktree", "add", "-q", "-b", "nolog", "../nolog")
    (repo.folder / ".git/logs/refs/heads/nolog").unlink()
    (tmp_path / "forged").mkdir()
    (tmp_path / "forged" / ".git").write_text(f"gitdir: {tmp_path}/nowhere\n")

    for folder in (repo.folder, repo.folder / "module", *(tmp_path / n for n in ("detached", "nolog", "forged"))):
        assert recognize(str(folder)) is None


def test_the_worktree_that_an_agent_changed_to_is_recognized(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.git("worktree", "add", "-q", "-b", "worktree-fix", "../tree")
    monkeypatch.chdir(tmp_path / "tree")
    one = session("x", pid=os.getpid(), workdir=str(repo.folder))

    found = worktree_of(one)

    assert found is not None
    assert "worktree-fix" == found.branch
    assert worktree_of(session("x", pid=None, workdir=str(repo.folder))) is None
    assert worktree_of(session("x", agent="claude@box", pid=None, workdir=str(tmp_path / "tree"))) is None
