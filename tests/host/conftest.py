"""A kasmon of its own for each test of a host; on a loop, nothing of the host may block."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from tests.host.house import House
from tests.host.inn import Inn
from tests.host.puppet import Puppet
from tests.waiting import remove_folder


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> Iterator[BlockBuster]:
    """In place of the one for all tests: these read logs and locks on the loop that the host runs on."""
    with blockbuster_ctx(
        "kasmon.host", excluded_modules=["kasmon.host.rpc.host_lock", "kasmon.process_identity"]
    ) as blockbuster:
        yield blockbuster


@pytest.fixture
def house() -> Iterator[House]:
    root = Path(tempfile.mkdtemp(prefix="kasmon-test-", dir="/tmp"))
    built = House(root)
    yield built
    built.close()
    remove_folder(root)


@pytest.fixture
def inn() -> Iterator[Inn]:
    root = Path(tempfile.mkdtemp(prefix="kmi", dir="/tmp"))
    built = Inn(root)
    yield built
    built.close()
    remove_folder(root)


@pytest.fixture
def as_within_the_inn(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host in this process sees what a host process of the inn would see."""
    for name in [name for name in os.environ if name.startswith(("XDG_", "KASMO"))]:
        monkeypatch.delenv(name)
    for name, value in inn.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def puppet() -> Puppet:
    return Puppet()
