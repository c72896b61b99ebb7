"""git as a person has it run: a fetch whose transport never answers, merges that fail, files that git does not show."""

import os
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest

from kasmon.errors import GitError, RefusedError, TimedOutError
from kasmon.supervisor.finish.branch_operations import (
    BaseRemote,
    How,
    check_checkout,
    checkout_of,
    commit,
    fetch,
    find_base_remote,
    find_worktree_of,
    merge,
    push,
    update,
)
from tests.support.git_repo import Repo
from tests.support.wait import until

pytestmark = pytest.mark.usefixtures("no_git_config")
SOURCE = BaseRemote("origin", "main", "refs/remotes/origin/main")


@pytest.fixture
def transport(repo: Repo, tmp_path: Path) -> Path:
    """The program that git starts instead of ssh, to be written."""
    program = tmp_path / "ssh"
    repo.git("remote", "add", "origin", "ssh://host.invalid/shop")
    repo.git("config", "core.sshCommand", str(program))
    return program


def test_a_password_prompt_finds_no_terminal(repo: Repo, transport: Path, tmp_path: Path) -> None:
    transport.write_text(f"#!/bin/sh\nps -o sid= -p $$ >{tmp_path}/sid\necho no key >&2\nexit 1\n")
    transport.chmod(0o755)

    with pytest.raises(GitError, match="cannot do 'fetch'"):
        fetch(repo.folder, SOURCE)

    assert os.getsid(0) != int((tmp_path / "sid").read_text())


def test_a_silent_remote_ends_the_fetch_and_ssh_and_changes_nothing(
    repo: Repo, transport: Path, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    transport.write_text(f"#!/bin/sh\necho $$ >{pid}\nexec sleep 600\n")
    transport.chmod(0o755)
    before = repo.git("for-each-ref")

    with pytest.raises(TimedOutError, match="git fetch took longer than"):
        fetch(repo.folder, SOURCE, limit_s=1.0)

    until(lambda: not psutil.pid_exists(int(pid.read_text())), what="ssh has ended")
    assert before == repo.git("for-each-ref")


def test_the_base_is_fetched_from_its_upstream_and_not_from_the_remote_of_pushes(repo: Repo) -> None:
    for name in ("origin", "theirs"):
        repo.git("remote", "add", name, f"/nowhere/{name}")
        repo.git("update-ref", f"refs/remotes/{name}/develop", "HEAD")
    repo.git("branch", "--quiet", "--set-upstream-to=theirs/develop", "main")

    assert BaseRemote("theirs", "develop", "refs/remotes/theirs/develop") == find_base_remote(
        repo.folder, "refs/heads/main"
    )


@pytest.fixture
def branch(repo: Repo) -> str:
    """The commit of a branch `fix` that changes `file0.txt` and adds `added.txt`."""
    repo.git("config", "user.name", "Ann")
    repo.git("config", "user.email", "ann@example.org")
    repo.git("switch", "--quiet", "--create", "fix")
    repo.commit("file0.txt", "fixed\n")
    commit = repo.commit("added.txt")
    repo.git("switch", "--quiet", "main")
    return commit


def failing_hooks(repo: Repo, text: str = "") -> None:
    for name in ("pre-commit", "pre-merge-commit"):
        hook = repo.folder / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\nunset GIT_INDEX_FILE\n{text}\nexit 1\n")
        hook.chmod(0o755)


@pytest.mark.parametrize("how", ["merge", "squash"])
def test_staged_changes_stay_when_a_merge_fails(repo: Repo, branch: str, how: How) -> None:
    failing_hooks(repo, "echo mine >mine.txt; git add mine.txt; echo later >mine.txt; echo note >note.txt")

    with pytest.raises(GitError):
        merge(repo.folder, branch, how, "Fix it")

    assert "AM mine.txt\n?? note.txt" == repo.git("status", "--porcelain")
    assert ("mine", "one\n") == (repo.git("show", ":mine.txt"), (repo.folder / "file0.txt").read_text())
    left = [name for name in ("MERGE_HEAD", "MERGE_MSG", "SQUASH_MSG") if (repo.folder / ".git" / name).exists()]
    assert [] == left


def test_a_merged_file_that_changed_before_the_merge_failed_stays_and_is_named(repo: Repo, branch: str) -> None:
    failing_hooks(repo, "echo mine >added.txt; git add added.txt")

    with pytest.raises(GitError) as error:
        merge(repo.folder, branch, "squash", "Fix it")

    assert "`git reset --merge` there discards it" in error.value.hint
    assert "mine\n" == (repo.folder / "added.txt").read_text()


def test_changes_stay_in_the_checkout_though_the_config_stashes_them(repo: Repo, branch: str) -> None:
    repo.commit("other.txt")
    repo.git("config", "merge.autoStash", "true")
    (repo.folder / "other.txt").write_text("mine\n")
    failing_hooks(repo)

    with pytest.raises(GitError):
        merge(repo.folder, branch, "merge", "Fix it")

    assert ("M other.txt", "") == (repo.git("status", "--porcelain"), repo.git("stash", "list"))


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_merge_into_changes_that_git_is_set_to_ignore_is_refused(repo: Repo, branch: str, flag: str) -> None:
    repo.git("update-index", flag, "file0.txt")
    (repo.folder / "file0.txt").write_text("mine\n")

    with pytest.raises(RefusedError, match=r"1 file: 'file0\.txt'"):
        check_checkout(repo.folder, branch)


@pytest.mark.parametrize("how", ["merge", "rebase"])
def test_an_update_that_would_overwrite_an_ignored_file_is_refused(repo: Repo, branch: str, how: str) -> None:
    (repo.folder / ".git" / "info" / "exclude").write_text("added.txt\n")
    (repo.folder / "added.txt").write_text("mine\n")

    with pytest.raises(RefusedError, match=r"not committed: 1 file: 'added\.txt'"):
        update(repo.folder, branch, how, "Update", keeps_conflicts=False)  # type: ignore[arg-type]  # one of both

    assert "mine\n" == (repo.folder / "added.txt").read_text()


def test_a_rebase_over_a_file_that_a_later_commit_untracks_is_refused(repo: Repo, branch: str) -> None:
    repo.commit(".env", "tracked\n")
    repo.git("rm", "--quiet", "--cached", ".env")
    repo.commit(".gitignore", ".env\n")
    (repo.folder / ".env").write_text("mine\n")

    with pytest.raises(RefusedError, match=r"1 file: '\.env'"):
        update(repo.folder, branch, "rebase", "", keeps_conflicts=False)

    assert () == update(repo.folder, branch, "merge", "Update", keeps_conflicts=False)
    assert "mine\n" == (repo.folder / ".env").read_text()


def test_a_rebase_moves_no_other_branch_whatever_the_config(repo: Repo, branch: str) -> None:
    first = repo.commit("first.txt")
    repo.git("branch", "stacked")
    repo.commit("second.txt")
    repo.git("config", "rebase.updateRefs", "true")

    update(repo.folder, branch, "rebase", "", keeps_conflicts=False)

    assert (first, branch) == (repo.git("rev-parse", "stacked"), repo.git("merge-base", "HEAD", branch))


def test_a_branch_whose_rebase_is_unfinished_is_not_free_to_move(repo: Repo, branch: str, tmp_path: Path) -> None:
    repo.commit("added.txt", "mine\n")
    repo.git("worktree", "add", "--quiet", str(tmp_path / "other"), "fix")
    assert find_worktree_of(tmp_path / "other", "refs/heads/nowhere") is None
    with pytest.raises(subprocess.CalledProcessError):
        repo.git("rebase", branch)

    with pytest.raises(RefusedError, match="a rebase of the branch 'main' is unfinished"):
        find_worktree_of(tmp_path / "other", "refs/heads/main")


def test_a_commit_includes_files_outside_of_the_sparse_checkout(repo: Repo, branch: str) -> None:
    repo.commit("in/a.txt")
    repo.commit("out/b.txt")
    repo.git("sparse-checkout", "set", "in")
    (repo.folder / "out").mkdir()
    (repo.folder / "out" / "new.txt").write_text("new\n")

    commit(repo.folder, "All")

    assert ("out/new.txt", "") == (repo.git("diff", "--name-only", "HEAD~1"), repo.git("status", "--porcelain"))


def test_the_checkout_of_a_submodule_is_found(repo: Repo, tmp_path: Path) -> None:
    outer = Repo(tmp_path / "outer")
    outer.git("submodule", "--quiet", "add", str(repo.folder), "inner")
    inner = outer.folder / "inner"
    repo.git("worktree", "add", "--quiet", "-b", "fix", str(tmp_path / "fix"), at=inner)

    assert inner == find_worktree_of(tmp_path / "fix", "refs/heads/main")


def test_the_temporary_worktree_of_a_killed_merge_does_not_keep_its_branch(repo: Repo, branch: str) -> None:
    repo.git("switch", "--quiet", "fix")
    left = Path(tempfile.mkdtemp(prefix="kasmon-merge-")) / "worktree"
    repo.git("worktree", "add", "--quiet", str(left), "main")
    (left / "file0.txt").write_text("half merged\n")

    assert find_worktree_of(repo.folder, "refs/heads/main") is None
    with checkout_of(repo.folder, "refs/heads/main") as target:
        merge(target, branch, "squash", "Fix it")
    left.parent.rmdir()

    assert "Fix it" == repo.git("log", "-1", "--format=%s", "main")
    assert 1 == repo.git("worktree", "list").count("\n") + 1


def test_a_push_sends_no_tag_whatever_the_config(repo: Repo, branch: str, tmp_path: Path) -> None:
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(tmp_path / "remote.git"))
    repo.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    repo.git("config", "push.followTags", "true")
    repo.git("tag", "--annotate", "-m", "one", "v1")

    push(repo.folder, "fix", "origin", "fix")

    assert "" == repo.git("ls-remote", "--tags", "origin")


def test_staged_changes_stay_when_an_update_fails(repo: Repo, branch: str) -> None:
    repo.commit("other.txt")
    failing_hooks(repo, "echo mine >mine.txt; git add mine.txt")

    with pytest.raises(GitError):
        update(repo.folder, branch, "merge", "Update", keeps_conflicts=False)

    assert "A  mine.txt" == repo.git("status", "--porcelain")
    assert not (repo.folder / ".git" / "MERGE_HEAD").exists()


def test_a_squash_that_would_be_empty_is_refused_and_leaves_nothing_staged(repo: Repo) -> None:
    repo.git("switch", "--quiet", "--create", "fix")
    repo.commit("one.txt")
    repo.git("revert", "--no-edit", "HEAD")
    fix = repo.head
    repo.git("switch", "--quiet", "main")

    with pytest.raises(RefusedError, match="changes nothing in its base"):
        merge(repo.folder, fix, "squash", "fix")

    assert "" == repo.git("status", "--porcelain")
