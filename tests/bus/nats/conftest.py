"""One cluster for the tests that change nothing of it, and one for each of the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bus.cluster_server import ClusterServer, open_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServer]:
    with open_cluster(tmp_path_factory.mktemp("cluster")) as server:
        yield server


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[ClusterServer]:
    """One whose server a test may stop."""
    with open_cluster(tmp_path) as server:
        yield server
