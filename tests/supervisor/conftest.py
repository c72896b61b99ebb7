from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.supervisor.worktrees.worktree import make
from tests.support.supervisor.env import Env
from tests.support.supervisor.git_repo import Repo


@pytest.fixture
def env() -> Iterator[Env]:
    env = Env()
    yield env
    env.close()


@pytest.fixture
def no_git_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user's own git config is not heard, as on a fresh machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repo(no_git_config: None, tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
def tree(repo: Repo, tmp_path: Path) -> Path:
    """A worktree of *repo*, untouched."""
    return Path(make(repo.folder, tmp_path / "trees" / "t", "plan/t").path)
