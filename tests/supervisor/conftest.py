from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.supervisor.worktrees.worktree import create
from tests.support.git_repo import Repo
from tests.support.supervisor.env import Env


@pytest.fixture
def env() -> Iterator[Env]:
    env = Env()
    yield env
    env.close()


@pytest.fixture
def tree(repo: Repo, tmp_path: Path) -> Path:
    """A worktree of *repo*, untouched."""
    return Path(create(repo.folder, tmp_path / "trees" / "t", "plan/t").path)
