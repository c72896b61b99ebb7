from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.paths import Paths, private_folder
from kasmon.supervisor.worktrees.worktree import create
from tests.support.git_repo import Repo
from tests.support.tui.dashboard import Home


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as home:
        yield home


@pytest.fixture
def tree(repo: Repo, tmp_path: Path) -> Path:
    """A worktree of *repo*, untouched."""
    return Path(create(repo.folder, tmp_path / "trees" / "t", "plan/t").path)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(state=private_folder(tmp_path / "state"), config=tmp_path / "config")
