"""git, asked about real repositories."""

import os
import signal
from pathlib import Path

import pytest

from kasmon.errors import GitError
from kasmon.repository.git import git, git_as_user, head, repository, where
from kasmon.supervisor.worktrees.changes import changed_files, diff, state_digest, touched_since_fork
from kasmon.supervisor.worktrees.unsaved_files import unsaved
from kasmon.supervisor.worktrees.worktree import create
from tests.support.git_repo import Repo

pytestmark = pytest.mark.usefixtures("no_git_config")


def test_a_folder_within_a_repository_is_in_it_and_one_in_none_is_in_none(repo: Repo, tmp_path: Path) -> None:
    (repo.folder / "src" / "deep").mkdir(parents=True)
    assert repo.folder == repository(repo.folder / "src" / "deep")

    assert repository(tmp_path) is None
    assert repository(Repo(tmp_path / "r").folder / ".git") is None


def test_a_line_break_is_a_part_of_a_folders_name(tmp_path: Path) -> None:
    """Otherwise one session in such a folder would end the radar of all."""
    repo = Repo(tmp_path / "two\nlines\n")

    assert repo.folder == repository(repo.folder)
    assert (str(repo.folder), str(repo.folder / ".git")) == where(repo.folder)


def test_without_git_there_is_no_repository(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert repository(repo.folder) is None
    with pytest.raises(GitError, match="it is not installed"):
        head(repo.folder)


def test_a_repository_that_git_does_not_open_is_reported_as_one(repo: Repo) -> None:
    """Otherwise its tasks would work in the folder itself, unasked."""
    (repo.folder / ".git" / "config").write_text("nonsense [\n")

    with pytest.raises(GitError, match="bad config"):
        repository(repo.folder)


def test_variables_of_a_surrounding_git_are_ignored(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a hook, or a rebase's `exec`."""
    other = Repo(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.folder))

    assert repo.folder == repository(repo.folder)


def planted(repo: Repo, mark: Path, *keys: str, at: Path | None = None) -> None:
    """Have the config of *repo* name a program that leaves *mark* when it runs, for each of *keys*."""
    for key in keys:
        repo.git("config", key, f"touch '{mark}'; cat", at=at)


@pytest.mark.parametrize("name", ["x", "a.b", "a=b"])
@pytest.mark.parametrize("what", ["clean", "smudge", "process"])
def test_no_filter_named_by_a_repository_runs(repo: Repo, tmp_path: Path, name: str, what: str) -> None:
    """Whatever works in it can write there; a filter that is required is not missed either."""
    mark = tmp_path / "ran"
    tree = Path(create(repo.folder, tmp_path / "trees" / "before", "plan/before").path)
    (repo.folder / ".git" / "info" / "attributes").write_text(f"* filter={name}\n")
    planted(repo, mark, f"filter.{name}.{what}")
    repo.git("config", f"filter.{name}.required", "true")
    (tree / "file0.txt").write_text("two\n")

    assert ("file0.txt",) == changed_files(tree, head(tree))
    assert touched_since_fork(tree).files
    assert state_digest(tree)
    assert "+two" in diff(tree, head(tree))
    assert "1 file is not committed" == unsaved(tree)
    made = create(repo.folder, tmp_path / "trees" / "after", "plan/after")
    assert "one\n" == (Path(made.path) / "file0.txt").read_text()
    assert not mark.exists()


def test_no_program_that_watches_the_files_runs(repo: Repo, tmp_path: Path) -> None:
    mark, program = tmp_path / "ran", tmp_path / "watch"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(program))
    repo.git("status")
    assert mark.exists(), "git itself runs it"
    mark.unlink()
    (repo.folder / "file0.txt").write_text("two\n")

    assert state_digest(repo.folder)
    assert ("file0.txt",) == changed_files(repo.folder, head(repo.folder))
    assert "+two" in diff(repo.folder, head(repo.folder))
    assert touched_since_fork(repo.folder).files
    assert unsaved(repo.folder)
    create(repo.folder, tmp_path / "trees" / "after", "plan/after")
    assert not mark.exists()


def test_a_submodule_is_not_entered_and_its_filters_do_not_run(repo: Repo, tmp_path: Path) -> None:
    mark, other = tmp_path / "ran", Repo(tmp_path / "other")
    repo.git("submodule", "--quiet", "add", str(other.folder), "part")
    repo.git("config", "--file", ".gitmodules", "submodule.part.ignore", "none")
    repo.git("commit", "--quiet", "--all", "-m", "part")
    part = repo.folder / "part"
    Path(repo.git("rev-parse", "--absolute-git-dir", at=part), "info", "attributes").write_text("* filter=x\n")
    planted(repo, mark, "filter.x.clean", at=part)
    (part / "file0.txt").write_text("two\n")

    assert state_digest(repo.folder)
    assert not touched_since_fork(repo.folder).files
    assert "it has submodules" in unsaved(repo.folder)
    assert not mark.exists()


def test_no_program_that_checks_signatures_runs(repo: Repo, tmp_path: Path) -> None:
    mark, program = tmp_path / "ran", tmp_path / "gpg"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    signed = repo.git("cat-file", "commit", "HEAD").replace("\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n\n", 1)
    (tmp_path / "commit").write_text(signed + "\n")
    repo.git("reset", "--quiet", "--hard", repo.git("hash-object", "-t", "commit", "-w", str(tmp_path / "commit")))
    repo.git("config", "log.showSignature", "true")
    repo.git("config", "gpg.program", str(program))

    assert git(repo.folder, "log", "--format=%H").split()
    assert not mark.exists()


def test_a_filter_of_the_users_own_config_runs_as_in_their_git(repo: Repo, tmp_path: Path) -> None:
    """As Git LFS; what the repository says of one of the same name does not count."""
    mark = tmp_path / "ran"
    (tmp_path / ".gitconfig").write_text('[filter "x"]\n\tclean = tr a-z A-Z\n')
    (repo.folder / ".git" / "info" / "attributes").write_text("* filter=x\n")
    planted(repo, mark, "filter.x.clean")
    (repo.folder / "file0.txt").write_text("two\n")

    assert "+TWO" in diff(repo.folder, head(repo.folder))
    assert not mark.exists()


def test_missing_objects_are_not_fetched_by_a_program_that_the_config_names(repo: Repo, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    blob = repo.git("rev-parse", "HEAD:file0.txt")
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "protocol.allow": "always",
        "remote.origin.promisor": "true",
        "remote.origin.url": str(repo.folder),
        "remote.origin.uploadPack": f"touch '{mark}'; git-upload-pack",
    }.items():
        repo.git("config", key, value)
    (repo.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (repo.folder / "file0.txt").write_text("two\n")

    with pytest.raises(GitError):
        diff(repo.folder, head(repo.folder))
    assert not mark.exists()


def test_a_process_left_by_a_hook_is_not_waited_for(repo: Repo, tmp_path: Path) -> None:
    hook = repo.folder / ".git" / "hooks" / "post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! >{tmp_path}/pid\n")
    hook.chmod(0o755)
    user = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")

    try:
        git_as_user(repo.folder, *user, "commit", "--allow-empty", "-m", "one", limit_s=5)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
