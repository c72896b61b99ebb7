from collections.abc import Iterator

import pytest

from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer


@pytest.fixture
def kasmon(fork_server: ForkServer) -> Iterator[Cli]:
    line = Cli(fork_server)
    yield line
    line.close()
