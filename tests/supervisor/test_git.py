"""git, asked about real repositories."""

from pathlib import Path

import pytest

from kasmon.errors import GitError
from kasmon.supervisor.git import head, repository
from tests.supervisor.repo import Repo

pytestmark = pytest.mark.usefixtures("no_git_config")


def test_a_folder_within_a_repository_is_in_it(repo: Repo) -> None:
    (repo.folder / "src" / "deep").mkdir(parents=True)

    assert repo.folder == repository(repo.folder / "src" / "deep")


def test_a_folder_in_none_is_in_none(tmp_path: Path) -> None:
    assert repository(tmp_path) is None
    assert repository(Repo(tmp_path / "r").folder / ".git") is None


def test_without_git_there_is_no_repository(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert repository(repo.folder) is None
    with pytest.raises(GitError, match="it is not installed"):
        head(repo.folder)


def test_a_repository_that_git_does_not_open_is_not_taken_for_none(repo: Repo) -> None:
    """Otherwise its tasks would work in the folder itself, unasked."""
    (repo.folder / ".git" / "config").write_text("nonsense [\n")

    with pytest.raises(GitError, match="bad config"):
        repository(repo.folder)


def test_variables_of_a_surrounding_git_do_not_lead_elsewhere(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a hook, or a rebase's `exec`."""
    other = Repo(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.folder))

    assert repo.folder == repository(repo.folder)
