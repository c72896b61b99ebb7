"""A kasmon of its own for each test of a host; on a loop, nothing of the host may block."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from tests.conftest import EXCUSED
from tests.support.agents.fake_agent import FakeAgent
from tests.support.host.env import Env
from tests.support.host.tmux_env import TmuxEnv
from tests.support.wait import remove_folder


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> Iterator[BlockBuster]:
    """In place of the one for all tests: these read logs and locks on the loop that the host runs on."""
    with blockbuster_ctx(
        "kasmon.host", excluded_modules=["kasmon.host.rpc.host_lock", "kasmon.process_identity"]
    ) as blockbuster:
        for call, file, function in EXCUSED:
            blockbuster.functions[call].can_block_in(file, function)
        yield blockbuster


@pytest.fixture
def env() -> Iterator[Env]:
    root = Path(tempfile.mkdtemp(prefix="kasmon-test-", dir="/tmp"))
    built = Env(root)
    yield built
    built.close()
    remove_folder(root)


@pytest.fixture
def tmux(forked_tmux_starter: None) -> Iterator[TmuxEnv]:
    root = Path(tempfile.mkdtemp(prefix="kmi", dir="/tmp"))
    built = TmuxEnv(root)
    yield built
    built.close()
    remove_folder(root)


@pytest.fixture
def in_tmux_env(tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host in this process sees what a host process of *tmux* would see."""
    for name in [name for name in os.environ if name.startswith(("XDG_", "KASMO"))]:
        monkeypatch.delenv(name)
    for name, value in tmux.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def fake() -> FakeAgent:
    return FakeAgent()
