"""One cluster for the tests that change nothing of it."""

from collections.abc import Iterator

import pytest

from tests.support.bus.cluster_server import ClusterServer, open_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServer]:
    with open_cluster(tmp_path_factory.mktemp("cluster")) as server:
        yield server
