import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from kasmon.bus.base import Bus
from tests.conftest import EXCUSED
from tests.support.bus.buses import bus_to, end_shared_cluster
from tests.support.host.sshd import Sshd
from tests.support.supervisor.env import Env

KINDS = ("local", "stream", "ssh", "nats")
READING = (*KINDS, "viewer")
"""Those that lists and logs are read by: a viewer of a cluster has no connections, commands and files."""


@pytest.fixture(scope="module")
def box() -> Iterator[Callable[[], Sshd]]:
    """An sshd, started by the first test that needs it."""
    boxes: list[Sshd] = []
    root = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))

    def opened() -> Sshd:
        if not boxes:
            boxes.append(Sshd(root))
        return boxes[0]

    try:
        yield opened
        for box in boxes:
            box.close()
    finally:
        shutil.rmtree(root)


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> Iterator[None]:
    """In a test that runs on a loop, a blocking call of ours raises, except of what the test itself writes."""
    guard = BlockBuster(scanned_modules="kasmon")
    for call, file, function in EXCUSED:
        if call in guard.functions:
            guard.functions[call].can_block_in(file, function)
    for blocking in guard.functions.values():
        blocking.can_block_in(
            "tests/support/supervisor/env.py", {"has", "tells", "says", "hosts", "host_dies", "started"}
        )
    guard.activate()
    yield
    guard.deactivate()


@pytest.fixture(params=KINDS)
async def bus(request: pytest.FixtureRequest, env: Env, box: Callable[[], Sshd]) -> AsyncIterator[Bus]:
    """Each kind of bus to `env`."""
    async with bus_to(request.param, env.paths, box) as bus:
        yield bus


@pytest.fixture(params=READING)
async def reading(request: pytest.FixtureRequest, env: Env, box: Callable[[], Sshd]) -> AsyncIterator[Bus]:
    """Each kind of bus to `env`, for its list and its logs only."""
    async with bus_to(request.param, env.paths, box) as bus:
        yield bus


@pytest.fixture(scope="session", autouse=True)
def _shared_cluster_ends() -> Iterator[None]:
    yield
    end_shared_cluster()
