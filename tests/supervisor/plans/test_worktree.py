"""Git worktrees, on real repositories: made, described, and never removed with work in them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.errors import GitError, RefusedError, UsageError
from kasmon.supervisor.plans import worktree
from tests.supervisor.plans.repo import Repo


@pytest.fixture(autouse=True)
def _no_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user's own git config is not heard, as on a fresh machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
def tree(repo: Repo, tmp_path: Path) -> Path:
    """A worktree of *repo*, untouched."""
    return Path(worktree.make(repo.folder, tmp_path / "trees" / "t", "plan/t").path)


# Made


def test_a_worktree_begins_at_head_on_a_branch_of_its_own(repo: Repo, tmp_path: Path) -> None:
    tree = worktree.make(repo.folder, tmp_path / "deep" / "t", "plan/t")

    assert worktree.Tree(path=str(tmp_path / "deep" / "t"), branch="plan/t", base=repo.head) == tree
    assert "plan/t" == repo.git("branch", "--show-current", at=Path(tree.path))
    assert "main" == repo.git("branch", "--show-current")
    assert 0o700 == (tmp_path / "deep").stat().st_mode & 0o777


def test_the_same_worktree_again_is_the_same_with_its_work(repo: Repo, tree: Path) -> None:
    base = repo.head
    repo.commit("more.txt", at=tree)
    repo.commit("else.txt")

    assert base == worktree.make(repo.folder, tree, "plan/t").base
    assert (tree / "more.txt").exists()


def test_a_branch_that_exists_is_not_taken(repo: Repo, tmp_path: Path) -> None:
    repo.git("branch", "plan/t")

    with pytest.raises(RefusedError, match="the branch 'plan/t' exists already") as told:
        worktree.make(repo.folder, tmp_path / "t", "plan/t")

    assert "git branch -m plan/t" in told.value.hint
    assert not (tmp_path / "t").exists()


def test_a_worktree_whose_agent_went_to_another_branch_is_not_taken_for_ours(repo: Repo, tree: Path) -> None:
    repo.git("checkout", "--quiet", "-b", "mine", at=tree)

    with pytest.raises(RefusedError, match="is on 'mine', not on 'plan/t'"):
        worktree.make(repo.folder, tree, "plan/t")


def test_a_repository_without_a_commit_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="has no commit yet") as told:
        worktree.make(Repo(tmp_path / "r", commits=0).folder, tmp_path / "t", "plan/t")

    assert "Commit something first" in told.value.hint


def test_a_detached_head_is_where_it_begins(repo: Repo, tmp_path: Path) -> None:
    first = repo.head
    repo.commit("second.txt")
    repo.git("checkout", "--quiet", first)

    assert first == worktree.make(repo.folder, tmp_path / "t", "plan/t").base


def test_what_stands_where_the_worktree_should_is_left_alone(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "mine").touch()

    with pytest.raises(GitError, match="already exists"):
        worktree.make(repo.folder, tmp_path / "t", "plan/t")

    assert (tmp_path / "t" / "mine").exists()
    assert "" == repo.git("branch", "--list", "plan/t")


def test_nothing_of_the_repository_runs(repo: Repo, tmp_path: Path) -> None:
    hook = repo.folder / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    hook.chmod(0o755)

    worktree.make(repo.folder, tmp_path / "t", "plan/t")

    assert not (tmp_path / "ran").exists()


def test_the_worktrees_of_others_are_not_forgotten_where_their_disk_is_away(repo: Repo, tmp_path: Path) -> None:
    """`git worktree prune` would lose what was staged there."""
    theirs = tmp_path / "usb"
    repo.git("worktree", "add", "--quiet", str(theirs))
    (theirs / "staged.txt").write_text("only here\n")
    repo.git("add", "staged.txt", at=theirs)
    theirs.rename(tmp_path / "unplugged")

    worktree.make(repo.folder, tmp_path / "t", "plan/t")

    (tmp_path / "unplugged").rename(theirs)
    assert "A  staged.txt" == repo.git("status", "--porcelain", at=theirs)


def test_variables_of_a_surrounding_git_do_not_lead_elsewhere(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a hook, or a rebase's `exec`."""
    other = Repo(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.folder))

    assert repo.folder == worktree.repository(repo.folder)


# Which repository


def test_a_folder_within_a_repository_is_in_it(repo: Repo) -> None:
    (repo.folder / "src" / "deep").mkdir(parents=True)

    assert repo.folder == worktree.repository(repo.folder / "src" / "deep")


def test_a_folder_in_none_is_in_none(tmp_path: Path) -> None:
    assert worktree.repository(tmp_path) is None
    assert worktree.repository(Repo(tmp_path / "r").folder / ".git") is None


def test_without_git_there_is_no_repository(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert worktree.repository(repo.folder) is None
    with pytest.raises(GitError, match="it is not installed"):
        worktree.head(repo.folder)


def test_a_repository_that_git_does_not_open_is_not_taken_for_none(repo: Repo) -> None:
    """Otherwise its tasks would work in the folder itself, unasked."""
    (repo.folder / ".git" / "config").write_text("nonsense [\n")

    with pytest.raises(GitError, match="bad config"):
        worktree.repository(repo.folder)


def test_a_folder_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="is gone"):
        worktree.changed(tmp_path / "gone", "HEAD")


# What a person should know


def test_a_clean_repository_has_no_remarks(repo: Repo) -> None:
    assert () == worktree.remarks(repo.folder)


def test_what_worktrees_will_not_hold_is_remarked(repo: Repo, tmp_path: Path) -> None:
    inner = Repo(tmp_path / "inner")
    repo.git("submodule", "--quiet", "add", str(inner.folder), "inner")
    repo.git("commit", "--quiet", "-m", "inner")
    (repo.folder / "file0.txt").write_text("changed\n")
    (repo.folder / "new.txt").touch()
    repo.git("checkout", "--quiet", "--detach")

    dirty, detached, submodules = worktree.remarks(repo.folder)

    assert "2 files of" in dirty
    assert "are not committed, so no worktree has them" in dirty
    assert "HEAD is detached" in detached
    assert "submodules are not checked out" in submodules


def test_a_repository_without_a_commit_can_be_looked_at(tmp_path: Path) -> None:
    assert () == worktree.remarks(Repo(tmp_path / "r", commits=0).folder)
    assert "" == worktree.head(tmp_path / "r")


# What changed


def test_what_changed_is_committed_uncommitted_new_and_gone(repo: Repo, tree: Path) -> None:
    base = repo.head
    repo.commit("sub/committed.txt", at=tree)
    (tree / "file0.txt").unlink()
    (tree / "größe \n.txt").touch()
    (tree / ".gitignore").write_text("*.o\n")
    (tree / "a.o").touch()

    assert (".gitignore", "file0.txt", "größe \n.txt", "sub/committed.txt") == worktree.changed(tree, base)
    assert worktree.changed(tree, base) == worktree.changed(tree / "sub", base)


def test_nothing_changed_is_nothing(repo: Repo, tree: Path) -> None:
    assert () == worktree.changed(tree, repo.head)
    assert "" == worktree.diff(tree, repo.head)


def test_the_diff_holds_new_files_too_and_runs_nothing(repo: Repo, tree: Path, tmp_path: Path) -> None:
    (tree / "file0.txt").write_text("two\n")
    (tree / "new.txt").write_text("brand new\n")
    (tree / ".gitattributes").write_text("*.txt diff=evil\n")
    for key in ("diff.evil.textconv", "diff.evil.command", "diff.external"):
        repo.git("config", key, f"touch {tmp_path / 'ran'};")

    shown = worktree.diff(tree, repo.head)

    assert "-one\n+two\n" in shown
    assert "+++ b/new.txt\n@@ -0,0 +1 @@\n+brand new\n" in shown
    assert not (tmp_path / "ran").exists()


# Removed, or not

Mess = Callable[[Repo, Path], object]


def committed(repo: Repo, tree: Path) -> None:
    repo.commit("work.txt", at=tree)


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
        (detached_commit, "1 of its commits is nowhere else"),
        (stash, "it has a stash"),
        (named_stash, "it has a stash"),
        (detached_stash, "it has a stash"),
        (submodule, "it has submodules, which nobody looked into"),
        (dirty_submodule, "1 file is not committed"),
        (half_merged, "a merge in it is not finished"),
        (half_rebased, "a rebase in it is not finished"),
        (orphaned, "nobody can tell what is in it"),
        (broken, "nobody can tell what is in it"),
        (index_broken, "nobody can tell what is in it"),
    ],
    ids=["changed", "deleted", "new", "several", "staged", "renamed", "new, and status looks away",
         "committed only here", "committed on no branch", "stashed", "stashed with words", "stashed on no branch",
         "submodule", "dirty submodule", "within a merge", "within a rebase", "no commit", "unreadable",
         "broken index"],
)  # fmt: skip
def test_a_worktree_with_work_in_it_is_not_removed(repo: Repo, tree: Path, mess: Mess, why: str) -> None:
    mess(repo, tree)
    files = sorted(path.name for path in tree.iterdir())

    assert worktree.unsaved(tree).startswith(why), worktree.unsaved(tree)
    with pytest.raises(RefusedError, match=why) as told:
        worktree.remove(repo.folder, tree)

    assert files == sorted(path.name for path in tree.iterdir())
    assert "try again" in told.value.hint


def pushed(repo: Repo, tree: Path) -> None:
    remote = tree.parent / "remote.git"
    repo.git("init", "--quiet", "--bare", str(remote))
    repo.git("remote", "add", "origin", str(remote))
    repo.commit("work.txt", at=tree)
    repo.git("push", "--quiet", "origin", "plan/t", at=tree)


def pushed_and_one_more(repo: Repo, tree: Path) -> None:
    pushed(repo, tree)
    repo.commit("more.txt", at=tree)


def merged(repo: Repo, tree: Path) -> None:
    repo.commit("work.txt", at=tree)
    repo.git("merge", "--quiet", "plan/t")


def ignored(repo: Repo, tree: Path) -> None:
    repo.commit(".gitignore", "*.o\n")
    repo.git("merge", "--quiet", "main", at=tree)
    (tree / "a.o").touch()


def stash_of_others(repo: Repo, tree: Path) -> None:
    (repo.folder / "file0.txt").write_text("two\n")
    repo.git("stash")


@pytest.mark.parametrize(
    "kept", [lambda repo, tree: None, pushed, merged, ignored, stash_of_others],
    ids=["untouched", "pushed", "merged", "ignored files", "somebody else's stash"],
)  # fmt: skip
def test_a_worktree_whose_work_is_elsewhere_is_removed_and_its_branch_stays(repo: Repo, tree: Path, kept: Mess) -> None:
    kept(repo, tree)
    tip = repo.git("rev-parse", "HEAD", at=tree)

    worktree.remove(repo.folder, tree)

    assert not tree.exists()
    assert tip == repo.git("rev-parse", "plan/t")
    assert 1 == repo.git("worktree", "list").count("\n") + 1


def test_what_was_committed_after_the_push_stays(repo: Repo, tree: Path) -> None:
    pushed_and_one_more(repo, tree)

    with pytest.raises(RefusedError, match="1 of its commits is nowhere else"):
        worktree.remove(repo.folder, tree)


def test_a_locked_worktree_stays(repo: Repo, tree: Path) -> None:
    repo.git("worktree", "lock", str(tree))

    with pytest.raises(GitError, match="lock"):
        worktree.remove(repo.folder, tree)

    assert tree.exists()


def test_a_folder_that_is_no_worktree_is_not_removed(repo: Repo, tree: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").touch()
    link = tmp_path / "link"
    link.symlink_to(tree)
    other = Repo(tmp_path / "other")

    for folder in (foreign, repo.folder, link, tmp_path / "gone", other.folder):
        with pytest.raises(RefusedError, match="is no worktree"):
            worktree.remove(repo.folder, folder)
    theirs = worktree.make(other.folder, tmp_path / "theirs", "plan/theirs")
    with pytest.raises(GitError, match="is not a working tree"):
        worktree.remove(repo.folder, Path(theirs.path))
    assert (foreign / "thesis.tex").exists()
    assert Path(theirs.path).exists()
    assert tree.exists()


def test_a_worktree_whose_repository_is_gone_is_not_removed(repo: Repo, tree: Path, tmp_path: Path) -> None:
    other = Repo(tmp_path / "other")
    shutil.rmtree(repo.folder)

    with pytest.raises(RefusedError, match="nobody can tell what is in it"):
        worktree.remove(other.folder, tree)

    assert (tree / "file0.txt").exists()


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
def test_a_branch_is_called_by_what_git_takes(words: tuple[str, ...], name: str, repo: Repo) -> None:
    assert name == worktree.proper_branch(words)
    repo.git("check-ref-format", f"refs/heads/plan/{name}")


def test_nothing_is_no_name() -> None:
    with pytest.raises(UsageError):
        worktree.proper_branch(("日本", "…"))
