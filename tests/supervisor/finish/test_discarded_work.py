"""Discarded worktrees: what is stored of them, and that they can be discarded wherever they were requested."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from kasmon.config.schema import WorktreeConfig
from kasmon.errors import RefusedError
from kasmon.model.commands import SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.paths import Paths
from kasmon.supervisor.finish.discarded_work import discard
from kasmon.supervisor.finish.finish_plan import FinishRequest, plan_finish
from kasmon.supervisor.worktrees.inventory import remove_session_worktree
from kasmon.supervisor.worktrees.session_worktree import WorktreeRequest, new_worktree
from tests.support.git_repo import Repo
from tests.support.sample_fleet import session

pytestmark = [pytest.mark.story, pytest.mark.usefixtures("no_git_config")]


def fleet() -> Fleet:
    return Fleet(at=time.time())


def create(folder: Path, name: str = "fix") -> SessionWorktree:
    with new_worktree(WorktreeConfig(), WorktreeRequest(), folder, name) as (tree, _):
        return tree


def discarded(tree: SessionWorktree, paths: Paths) -> str:
    """Discard *tree*; return the bundle with what was nowhere else."""
    bundle, _ = discard(paths, session("fix", worktree=tree), tree, fleet, ())
    assert not Path(tree.path).exists()
    return bundle


def contents(repo: Repo, bundle: str) -> set[str]:
    """Every content of `file0.txt` in the commits of *bundle*."""
    repo.git("fetch", "--quiet", bundle, "refs/*:refs/back/*")
    commits = repo.git("rev-list", "--glob=refs/back").splitlines()
    return {repo.git("show", f"{commit}:file0.txt") for commit in commits}


def test_changes_that_an_unfinished_rebase_stashed_are_stored(repo: Repo, paths: Paths) -> None:
    tree = create(repo.folder)
    repo.commit("a.txt", "mine\n", at=Path(tree.path))
    repo.commit("a.txt", "theirs\n")
    (Path(tree.path) / "file0.txt").write_text("stashed\n")
    with pytest.raises(subprocess.CalledProcessError):
        repo.git("rebase", "--autostash", "main", at=Path(tree.path))

    assert "stashed" in contents(repo, discarded(tree, paths))


def test_commits_that_only_the_log_of_the_branch_has_are_stored(repo: Repo, paths: Paths) -> None:
    tree = create(repo.folder)
    repo.commit("file0.txt", "dropped\n", at=Path(tree.path))
    repo.git("reset", "--quiet", "--hard", "HEAD~1", at=Path(tree.path))
    repo.git("worktree", "remove", tree.path)
    repo.git("worktree", "add", "--quiet", tree.path, tree.branch)

    assert "dropped" in contents(repo, discarded(tree, paths))


def test_a_file_that_became_a_folder_and_a_folder_that_became_a_link_are_stored(repo: Repo, paths: Paths) -> None:
    repo.commit("folder/a.txt")
    tree = create(repo.folder)
    (Path(tree.path) / "file0.txt").unlink()
    (Path(tree.path) / "file0.txt").mkdir()
    (Path(tree.path) / "file0.txt" / "new.txt").write_text("new\n")
    shutil.rmtree(Path(tree.path) / "folder")
    (Path(tree.path) / "folder").symlink_to("file0.txt")

    repo.git("fetch", "--quiet", discarded(tree, paths), "refs/*:refs/back/*")

    assert ["file0.txt/new.txt", "folder"] == repo.git(
        "ls-tree", "-r", "--name-only", "refs/back/kasmon/files"
    ).splitlines()


def test_a_worktree_is_removed_although_its_requested_folder_is_gone(repo: Repo, paths: Paths) -> None:
    first = create(repo.folder)
    second, third = create(Path(first.path), "second"), create(Path(first.path), "third")
    discarded(first, paths)

    discarded(second, paths)
    remove_session_worktree(WorktreeConfig(), third, fleet(), print)

    assert ("main", False) == (repo.git("branch", "--format=%(refname:short)"), Path(third.path).exists())


def test_the_worktree_of_a_bare_repository_is_removed(repo: Repo, paths: Paths, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(bare))
    first, second = create(bare), create(bare, "second")

    discarded(first, paths)
    remove_session_worktree(WorktreeConfig(), second, fleet(), print)

    assert "main" == repo.git("branch", "--format=%(refname:short)", at=bare)


def test_a_worktree_whose_branch_was_deleted_names_its_last_commit(repo: Repo, paths: Paths) -> None:
    tree = create(repo.folder)
    commit = repo.commit("a.txt", at=Path(tree.path))
    repo.git("update-ref", "-d", f"refs/heads/{tree.branch}")

    with pytest.raises(RefusedError, match="does not exist any more") as error:
        plan_finish(paths, session("fix", worktree=tree), FinishRequest(commits=True), fleet())

    assert f"update-ref refs/heads/{tree.branch} {commit}" in error.value.hint


def test_discards_of_sessions_with_similar_names_are_stored_apart(
    repo: Repo, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: "20261128-120000")  # in the same second
    bundles = set()
    for number, name in enumerate(("fix it", "fix-it")):
        tree = create(repo.folder, name)
        (Path(tree.path) / "new.txt").write_text(name)
        owner = replace(session(f"id{number}", worktree=tree), name=name)
        bundles.add(discard(paths, owner, tree, fleet, ())[0])

    assert 2 == len(bundles)
