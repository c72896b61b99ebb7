"""The state of a worktree's branch, on real repositories."""

import os
from pathlib import Path

import pytest

from kasmon.config.schema import WorktreeConfig
from kasmon.model.commands import SessionWorktree
from kasmon.repository.branch import BranchState
from kasmon.supervisor.worktrees.branch_state import BranchStates, read_state
from kasmon.supervisor.worktrees.session_worktree import WorktreeRequest, new_worktree
from tests.support.git_repo import Repo

pytestmark = pytest.mark.usefixtures("no_git_config")


def create(repo: Repo, name: str = "fix", base: str = "") -> SessionWorktree:
    with new_worktree(WorktreeConfig(), WorktreeRequest(base=base), repo.folder, name) as (tree, _):
        return tree


def objects(repo: Repo) -> list[Path]:
    return sorted((repo.folder / ".git" / "objects").rglob("*"))


def figures(state: BranchState) -> tuple[int, int, int, int, int]:
    return state.ahead, state.behind, state.staged, state.unstaged, state.untracked


def test_a_new_worktree_has_no_open_work(repo: Repo) -> None:
    state = read_state(create(repo))

    assert ("kasmon/fix", repo.head, "main", "refs/heads/main", repo.head) == (
        state.name,
        state.head,
        state.base_name,
        state.base_ref,
        state.base,
    )
    assert (0, 0, 0, 0, 0) == figures(state)
    assert ((), "", None, "no changes") == (state.conflicts, state.remote, state.unpushed, state.words)


def test_it_counts_commits_on_both_sides_and_files_of_each_kind(repo: Repo) -> None:
    tree = create(repo)
    path = Path(tree.path)
    repo.commit("mine.txt", at=path)
    repo.commit("mine2.txt", at=path)
    repo.commit("theirs.txt")
    (path / "staged.txt").write_text("s\n")
    repo.git("add", "staged.txt", at=path)
    repo.git("mv", "mine.txt", "moved.txt", at=path)
    (path / "file0.txt").write_text("changed\n")
    (path / "new.txt").write_text("new\n")

    state = read_state(tree)

    assert (2, 1, 3, 1, 1) == figures(state)
    assert repo.head == state.base != tree.base
    assert "2 ahead, 1 behind, 5 changes" == state.words


@pytest.mark.parametrize("base", ["v1", "origin/topic", "topic", "first"])
def test_only_a_branch_as_base_follows(repo: Repo, base: str) -> None:
    first = repo.head
    repo.git("branch", "topic")
    repo.git("tag", "--annotate", "-m", "one", "v1")
    repo.git("update-ref", "refs/remotes/origin/topic", first)
    tree = create(repo, base=first if base == "first" else base)
    repo.commit("later.txt")
    for ref in ("refs/heads/topic", "refs/remotes/origin/topic"):
        repo.git("update-ref", ref, repo.head)

    state = read_state(tree)

    kinds = {"v1": "refs/tags/", "origin/topic": "refs/remotes/", "topic": "refs/heads/"}
    assert (f"{kinds[base]}{base}" if base in kinds else "", int("topic" in base)) == (state.base_ref, state.behind)


def test_the_commit_it_began_at_counts_once_its_base_branch_is_deleted(repo: Repo) -> None:
    repo.git("branch", "topic")
    tree = create(repo, base="topic")
    repo.git("branch", "-D", "topic")
    repo.commit("mine.txt", at=Path(tree.path))

    state = read_state(tree)

    assert ("", tree.base, 1) == (state.base_ref, state.base, state.ahead)


def test_conflicts_with_the_base_are_named_and_the_repository_gets_no_object(repo: Repo) -> None:
    tree = create(repo)
    repo.commit("file0.txt", "mine\n", at=Path(tree.path))
    repo.commit("file0.txt", "theirs\n")
    before = objects(repo)

    assert ("file0.txt",) == read_state(tree).conflicts
    assert before == objects(repo)


def test_a_trial_merge_runs_no_driver_of_the_repository(repo: Repo, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (repo.folder / ".git" / "info" / "attributes").write_text("* merge=x\n")
    repo.git("config", "merge.x.driver", f"touch '{mark}'")
    tree = create(repo)
    repo.commit("file0.txt", "mine\n", at=Path(tree.path))
    repo.commit("file0.txt", "theirs\n")

    assert ("file0.txt",) == read_state(tree).conflicts
    assert not mark.exists()


def test_unrelated_commits_cannot_be_compared_for_conflicts(repo: Repo) -> None:
    repo.git("checkout", "--quiet", "--orphan", "other")
    repo.git("commit", "--quiet", "-m", "other")
    repo.git("checkout", "--quiet", "main")
    tree = create(repo, base="other")
    repo.git("reset", "--quiet", "--hard", "main", at=Path(tree.path))

    assert read_state(tree).conflicts is None


def test_it_shows_what_is_pushed(repo: Repo, tmp_path: Path) -> None:
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(tmp_path / "remote.git"))
    repo.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    tree = create(repo)
    path = Path(tree.path)
    pushed = repo.commit("one.txt", at=path)
    before = read_state(tree)
    repo.git("push", "--quiet", "origin", "HEAD", at=path)
    after = read_state(tree)
    repo.commit("two.txt", at=path)
    more = read_state(tree)

    assert ("", None) == (before.remote, before.unpushed)
    assert ("origin/kasmon/fix", pushed, 0) == (after.remote, after.remote_head, after.unpushed)
    assert ("origin/kasmon/fix", pushed, 1) == (more.remote, more.remote_head, more.unpushed)


def test_it_names_an_unfinished_merge_and_a_detached_head(repo: Repo) -> None:
    tree = create(repo)
    path = Path(tree.path)
    repo.commit("file0.txt", "mine\n", at=path)
    repo.commit("file0.txt", "theirs\n")
    with pytest.raises(Exception, match="merge"):
        repo.git("merge", "main", at=path)

    merging = read_state(tree)
    repo.git("merge", "--abort", at=path)
    repo.git("checkout", "--quiet", "--detach", at=path)

    assert ("a merge", 1) == (merging.operation, merging.unmerged)
    assert ("", "") == (read_state(tree).name, read_state(tree).operation)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that gets a line for each run of git."""
    real, noted = os.environ["PATH"], tmp_path / "calls"
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{noted}\nPATH={real} exec git "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{real}")
    noted.touch()
    return noted


def test_git_runs_only_for_changed_worktrees(repo: Repo, calls: Path) -> None:
    trees = [create(repo, name) for name in "abc"]
    states = BranchStates()
    first = states.read(trees)
    calls.write_text("")

    assert first == states.read(trees, changed=())
    assert "" == calls.read_text()
    (Path(trees[1].path) / "new.txt").write_text("new\n")
    after = states.read(trees, changed={trees[1].path})

    assert [0, 1, 0] == [after[tree.path].untracked for tree in trees]
    assert 1 == sum("status" in line for line in calls.read_text().splitlines())


@pytest.mark.parametrize("change", ["commit", "stage", "base", "push"])
def test_a_change_in_the_git_folder_is_detected_without_a_hint(repo: Repo, change: str) -> None:
    tree = create(repo)
    path = Path(tree.path)
    (path / "new.txt").write_text("new\n")
    states = BranchStates()
    before = states.read([tree])[tree.path]
    match change:
        case "commit":
            repo.git("commit", "--quiet", "--allow-empty", "-m", "more", at=path)
        case "stage":
            repo.git("add", "new.txt", at=path)
        case "base":
            repo.commit("theirs.txt")
        case _:
            repo.git("update-ref", f"refs/remotes/origin/{tree.branch}", repo.head)

    assert before != states.read([tree], changed=())[tree.path]


def test_a_missing_worktree_has_no_state(repo: Repo) -> None:
    tree = create(repo)
    repo.git("worktree", "remove", tree.path)

    assert {} == BranchStates().read([tree])


def test_a_tag_with_the_name_of_the_branch_that_is_checked_out_is_not_the_base(repo: Repo) -> None:
    repo.git("tag", "main")

    tree = create(repo)

    assert ("main", "refs/heads/main") == (tree.base_name, read_state(tree).base_ref)
