"""Worktrees with work in them are never removed, on real repositories."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.errors import GitError, RefusedError
from kasmon.supervisor.worktrees import worktree
from kasmon.supervisor.worktrees.unsaved_files import UNFINISHED, ignored, list_files, own_folder, unsaved
from tests.support.git_repo import Repo

pytestmark = pytest.mark.usefixtures("no_git_config")

Mess = Callable[[Repo, Path], object]


def committed(repo: Repo, tree: Path) -> None:
    repo.commit("work.txt", at=tree)


def committed_beside_a_tag_of_the_name(repo: Repo, tree: Path) -> None:
    repo.git("tag", "plan/t")
    repo.commit("work.txt", at=tree)


def committed_after_the_push(repo: Repo, tree: Path) -> None:
    pushed(repo, tree)
    repo.commit("more.txt", at=tree)


def stash(repo: Repo, tree: Path) -> None:
    (tree / "file0.txt").write_text("two\n")
    repo.git("stash", at=tree)


def named_stash(repo: Repo, tree: Path) -> None:
    (tree / "file0.txt").write_text("two\n")
    repo.git("stash", "push", "-m", "later", at=tree)


def detached_stash(repo: Repo, tree: Path) -> None:
    repo.git("checkout", "--quiet", "--detach", at=tree)
    stash(repo, tree)


def detached_commit(repo: Repo, tree: Path) -> None:
    repo.git("checkout", "--quiet", "--detach", at=tree)
    repo.commit("work.txt", at=tree)


def untracked_and_looked_away(repo: Repo, tree: Path) -> None:
    repo.git("config", "status.showUntrackedFiles", "no")
    (tree / "new.txt").touch()


def submodule(repo: Repo, tree: Path) -> None:
    inner = Repo(tree.parent / "inner")
    repo.git("submodule", "--quiet", "add", str(inner.folder), "inner", at=tree)
    repo.git("commit", "--quiet", "-m", "inner", at=tree)
    repo.git("branch", "kept", "plan/t")


def dirty_submodule(repo: Repo, tree: Path) -> None:
    submodule(repo, tree)
    (tree / "inner" / "file0.txt").write_text("changed in it\n")


def submodule_with_work(repo: Repo, tree: Path) -> None:
    submodule(repo, tree)
    repo.commit("deep.txt", at=tree / "inner")
    repo.git("-c", "advice.addEmbeddedRepo=false", "commit", "--quiet", "-am", "further", at=tree)
    repo.git("branch", "--force", "kept", "plan/t")


def take_submodule_out(repo: Repo, tree: Path) -> None:
    repo.git("submodule", "--quiet", "deinit", "--force", "inner", at=tree)
    repo.git("rm", "--quiet", "inner", ".gitmodules", at=tree)
    repo.git("commit", "--quiet", "-m", "out", at=tree)
    repo.git("branch", "--force", "kept", "plan/t")


def submodule_that_was_taken_out(repo: Repo, tree: Path) -> None:
    """Its files are gone, and its commits are still in the worktree's own part of the repository."""
    submodule_with_work(repo, tree)
    take_submodule_out(repo, tree)


def submodule_that_left_nothing(repo: Repo, tree: Path) -> None:
    """It was taken out again, and nothing in it was not pushed."""
    submodule(repo, tree)
    take_submodule_out(repo, tree)


def left_behind(repo: Repo, tree: Path) -> None:
    repo.commit("work.txt", at=tree)
    repo.git("reset", "--quiet", "--hard", "HEAD~1", at=tree)


def left_behind_on_no_branch(repo: Repo, tree: Path) -> None:
    repo.git("checkout", "--quiet", "--detach", at=tree)
    repo.commit("work.txt", at=tree)
    repo.commit("more.txt", at=tree)
    repo.git("checkout", "--quiet", "plan/t", at=tree)


def own_reference(repo: Repo, tree: Path) -> None:
    left_behind_on_no_branch(repo, tree)
    repo.git("update-ref", "refs/worktree/kept", "HEAD@{1}", at=tree)
    repo.git("reflog", "expire", "--expire=all", "--expire-unreachable=all", "HEAD", at=tree)


def assumed_unchanged(repo: Repo, tree: Path) -> None:
    repo.git("update-index", "--assume-unchanged", "file0.txt", at=tree)
    (tree / "file0.txt").write_text("two\n")


def skipped(repo: Repo, tree: Path) -> None:
    repo.git("update-index", "--skip-worktree", "file0.txt", at=tree)
    (tree / "file0.txt").write_text("two\n")


def stashed_on_another_branch(repo: Repo, tree: Path) -> None:
    repo.git("checkout", "--quiet", "-b", "aside", at=tree)
    stash(repo, tree)
    repo.git("checkout", "--quiet", "plan/t", at=tree)


def ignores(repo: Repo, tree: Path, *files: str) -> None:
    """*files* are in the worktree, and a `.gitignore` that has been merged says `*.o`, `.env` and `build/`."""
    repo.commit(".gitignore", "*.o\n.env\nbuild/\n")
    repo.git("merge", "--quiet", "main", at=tree)
    for file in files:
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        (tree / file).touch()


def ignored_by_the_person(repo: Repo, tree: Path) -> None:
    (repo.folder / ".git" / "info" / "exclude").write_text("notes.local\n")
    (tree / "notes.local").touch()


def ignored_repository(repo: Repo, tree: Path) -> None:
    pushed(repo, tree)
    repo.commit(".gitignore", "vendor\n", at=tree)
    repo.git("push", "--quiet", "origin", "plan/t", at=tree)
    Repo(tree / "vendor" / "lib")


def half_picked(repo: Repo, tree: Path) -> None:
    (Path(repo.git("rev-parse", "--absolute-git-dir", at=tree)) / "sequencer").mkdir()


def half_merged(repo: Repo, tree: Path) -> None:
    repo.commit("other.txt")
    repo.git("merge", "--quiet", "--no-commit", "--no-ff", "main", at=tree)
    repo.git("rm", "-fq", "other.txt", at=tree)


def half_rebased(repo: Repo, tree: Path) -> None:
    (Path(repo.git("rev-parse", "--absolute-git-dir", at=tree)) / "rebase-merge").mkdir()


def orphaned(repo: Repo, tree: Path) -> None:
    repo.git("checkout", "--quiet", "--orphan", "new", at=tree)
    repo.git("rm", "-rfq", ".", at=tree)


def broken(repo: Repo, tree: Path) -> None:
    (tree / ".git").write_text("gitdir: /nowhere\n")


def index_broken(repo: Repo, tree: Path) -> None:
    (Path(repo.git("rev-parse", "--absolute-git-dir", at=tree)) / "index").write_bytes(b"DIRCjunk")


@pytest.mark.parametrize(
    ("mess", "why"),
    [
        (lambda repo, tree: (tree / "file0.txt").write_text("two\n"), "1 file is not committed"),
        (lambda repo, tree: (tree / "file0.txt").unlink(), "1 file is not committed"),
        (lambda repo, tree: (tree / "new.txt").touch(), "1 file is not committed"),
        (lambda repo, tree: ((tree / "a").touch(), (tree / "b").touch()), "2 files are not committed"),
        (lambda repo, tree: ((tree / "a").touch(), repo.git("add", "a", at=tree)), "1 file is not committed"),
        (lambda repo, tree: repo.git("mv", "file0.txt", "b.txt", at=tree), "2 files are not committed"),
        (untracked_and_looked_away, "1 file is not committed"),
        (committed, "1 of its commits is nowhere else"),
        (committed_beside_a_tag_of_the_name, "1 of its commits is nowhere else"),
        (committed_after_the_push, "1 of its commits is nowhere else"),
        (detached_commit, "1 of its commits is nowhere else"),
        (stash, "it has a stash"),
        (named_stash, "it has a stash"),
        (detached_stash, "it has a stash"),
        (stashed_on_another_branch, "it has a stash"),
        (assumed_unchanged, "git is configured to ignore changes in 1 file"),
        (skipped, "git is configured to ignore changes in 1 file"),
        (left_behind, "1 commit is only in its log"),
        (left_behind_on_no_branch, "2 commits are only in its log"),
        (own_reference, "2 commits are only in its log"),
        (lambda repo, tree: ignores(repo, tree, ".env"), "git ignores 1 file: '.env'"),
        (lambda repo, tree: ignores(repo, tree, "a.o", "build/b", "build/deep/c"),
         r"git ignores 3 files: 'a.o', 'build/' \(2 files\)"),
        (ignored_by_the_person, "git ignores 1 file: 'notes.local'"),
        (ignored_repository, r"git ignores 1 file: 'vendor/' \(1 file\)"),
        (submodule, "it has submodules, and their contents would be removed too"),
        (submodule_with_work, "1 commit is only in its submodule 'inner'"),
        (submodule_that_left_nothing, "it has submodules, and their contents would be removed too"),
        (submodule_that_was_taken_out, "1 commit is only in its submodule 'inner'"),
        (dirty_submodule, "it has submodules, and their contents would be removed too"),
        (half_merged, "a merge in it is unfinished"),
        (half_rebased, "a rebase in it is unfinished"),
        (half_picked, "a row of cherry-picks or reverts in it is unfinished"),
        (orphaned, "its contents cannot be checked"),
        (broken, "its contents cannot be checked"),
        (index_broken, "its contents cannot be checked"),
    ],
    ids=["changed", "deleted", "new", "several", "staged", "renamed", "new, and status looks away",
         "committed only here", "committed beside a tag with the branch's name", "committed after the push",
         "committed on no branch", "stashed", "stashed with words", "stashed on no branch",
         "stashed on another branch", "assumed to be unchanged", "skipped", "reset away", "left on no branch",
         "a reference of its own", "ignored", "ignored in folders", "ignored by the person",
         "a repository that is ignored", "submodule", "submodule with work",
         "submodule that left nothing", "submodule that was taken out",
         "dirty submodule", "within a merge", "within a rebase", "within picks",
         "no commit", "unreadable",
         "broken index"],
)  # fmt: skip
def test_a_worktree_with_work_in_it_is_not_removed(repo: Repo, tree: Path, mess: Mess, why: str) -> None:
    mess(repo, tree)
    files = sorted(path.name for path in tree.iterdir())

    assert re.match(why, unsaved(tree)), unsaved(tree)
    with pytest.raises(RefusedError, match=why) as told:
        worktree.remove(repo.folder, tree)

    assert files == sorted(path.name for path in tree.iterdir())
    assert "try again" in told.value.hint


def test_ignored_files_go_only_where_they_are_named(repo: Repo, tree: Path) -> None:
    ignores(repo, tree, ".env", "a.o", "build/deep/c")

    assert (".env", "a.o", "build/deep/c") == ignored(tree)
    assert ("a.o",) == ignored(tree, ["*.o"])
    assert (".env", "build/deep/c") == ignored(tree, ["/.env", "build/"])
    assert () == ignored(tree, ["file0.txt", "/deep", "!a.o", ""])
    with pytest.raises(RefusedError, match=r"git ignores 1 file: '\.env'"):
        worktree.remove(repo.folder, tree, ignored(tree, ["*.o", "build"]))
    assert (tree / "a.o").exists()

    worktree.remove(repo.folder, tree, ignored(tree, ["*"]))
    assert not tree.exists()


def test_an_ignored_repository_stays_also_when_it_is_named(repo: Repo, tree: Path) -> None:
    ignored_repository(repo, tree)

    assert "it contains another repository: 'vendor/lib'" == unsaved(tree, ignored(tree))


def test_an_ignored_worktree_of_another_repository_stays_also_when_it_is_named(repo: Repo, tree: Path) -> None:
    ignores(repo, tree, "build/a")
    worktree.create(Repo(tree.parent / "other").folder, tree / "build" / "theirs", "plan/theirs")

    assert "it contains another repository: 'build/theirs'" == unsaved(tree, ignored(tree))


def test_some_of_many_ignored_files_are_named() -> None:
    assert "25 files: " in (told := list_files([f"{number:02}" for number in range(25)]))
    assert told.endswith("'19', and 5 more")


def pushed(repo: Repo, tree: Path) -> None:
    remote = tree.parent / "remote.git"
    repo.git("init", "--quiet", "--bare", str(remote))
    repo.git("remote", "add", "origin", str(remote))
    repo.commit("work.txt", at=tree)
    repo.git("push", "--quiet", "origin", "plan/t", at=tree)


def merged(repo: Repo, tree: Path) -> None:
    repo.commit("work.txt", at=tree)
    repo.git("merge", "--quiet", "plan/t")


def amended(repo: Repo, tree: Path) -> None:
    pushed(repo, tree)
    repo.git("commit", "--quiet", "--amend", "-m", "better words", at=tree)
    repo.git("push", "--quiet", "--force", "origin", "plan/t", at=tree)


def sparse(repo: Repo, tree: Path) -> None:
    repo.commit("deep/file.txt")
    repo.git("merge", "--quiet", "main", at=tree)
    repo.git("sparse-checkout", "set", "elsewhere", at=tree)


def without_a_log(repo: Repo, tree: Path) -> None:
    (Path(repo.git("rev-parse", "--absolute-git-dir", at=tree)) / "logs" / "HEAD").unlink()


def stash_of_others(repo: Repo, tree: Path) -> None:
    (repo.folder / "file0.txt").write_text("two\n")
    repo.git("stash")


@pytest.mark.parametrize(
    "kept", [lambda repo, tree: None, pushed, merged, stash_of_others, amended, sparse, without_a_log],
    ids=["untouched", "pushed", "merged", "somebody else's stash", "amended", "sparse", "no log"],
)  # fmt: skip
def test_a_worktree_whose_work_is_stored_elsewhere_is_removed_and_its_branch_stays(
    repo: Repo, tree: Path, kept: Mess
) -> None:
    kept(repo, tree)
    tip = repo.git("rev-parse", "HEAD", at=tree)

    worktree.remove(repo.folder, tree)

    assert not tree.exists()
    assert tip == repo.git("rev-parse", "plan/t")
    assert 1 == repo.git("worktree", "list").count("\n") + 1


def test_a_locked_worktree_stays(repo: Repo, tree: Path) -> None:
    repo.git("worktree", "lock", str(tree))

    with pytest.raises(GitError, match="lock"):
        worktree.remove(repo.folder, tree)

    assert tree.exists()


@pytest.mark.parametrize(
    "name",
    [
        *("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "sequencer"),
        *("BISECT_LOG", "BISECT_START"),
    ],
)
def test_a_worktree_with_an_unfinished_operation_is_not_removed(repo: Repo, tree: Path, name: str) -> None:
    (own_folder(tree) / name).write_text(repo.git("rev-parse", "HEAD", at=tree).strip() + "\n")

    assert f"{UNFINISHED[name]} in it is unfinished" == unsaved(tree)


def test_a_worktree_that_cannot_be_read_is_not_removed(repo: Repo, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    assert "" == unsaved(tree)
    monkeypatch.setattr(os, "scandir", refuse)

    assert "its contents cannot be checked: Permission denied" == unsaved(tree)


def test_a_folder_that_is_no_worktree_is_not_removed(repo: Repo, tree: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").touch()
    link = tmp_path / "link"
    link.symlink_to(tree)
    other = Repo(tmp_path / "other")

    for folder in (foreign, repo.folder, link, tmp_path / "gone", other.folder):
        with pytest.raises(RefusedError, match="is not a worktree"):
            worktree.remove(repo.folder, folder)
    theirs = worktree.create(other.folder, tmp_path / "theirs", "plan/theirs")
    with pytest.raises(RefusedError, match=f"is not a worktree of '{repo.folder}'"):
        worktree.remove(repo.folder, Path(theirs.path))
    assert (foreign / "thesis.tex").exists()
    assert Path(theirs.path).exists()
    assert tree.exists()


def test_a_worktree_whose_repository_is_gone_is_not_removed(repo: Repo, tree: Path, tmp_path: Path) -> None:
    other = Repo(tmp_path / "other")
    shutil.rmtree(repo.folder)

    with pytest.raises(RefusedError, match="its contents cannot be checked"):
        worktree.remove(other.folder, tree)

    assert (tree / "file0.txt").exists()
