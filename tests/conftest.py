"""What every test may rely on: a kasmon of its own, a terminal of one kind, no blocked loop."""

import contextlib
import gc
import inspect
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from blockbuster import BlockBuster
from hypothesis import HealthCheck, settings

from kasmon.tmux import start_server
from tests.support.cli.fork_server import OURS, PLAIN, ForkServer, start_hosts_by
from tests.support.git_repo import Repo

pytest_plugins = ["tests.support.forked_workers"]
EXCUSED = (
    ("os.stat", "importlib/_bootstrap_external.py", "path_stat"),  # an import on first use
    ("io.BufferedReader.read", "importlib/_bootstrap_external.py", "get_data"),
    ("os.listdir", "importlib/_bootstrap_external.py", "_fill_cache"),
)
"""Blocking calls that the loop may make, each by the function that it is made in."""
CONTEXT = ("SESSION", "TASK", "WAVE", "PEERS", "PLAN", "DEV", "LIFELINE")
"""What a kasmon that runs these tests may have put into the environment."""
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")  # on a busy machine everything takes long: that is no fault of a test
if sys.platform == "linux":  # elsewhere a fork without exec is unsafe
    start_hosts_by(lambda: OURS.path, lambda: PLAIN)


def pytest_configure(config: pytest.Config) -> None:
    """A worker leads a session of its own: else the hosts of the others' tests make it an agent's
    (`host.rpc.process_origin`).

    The same for a run whose session has lost its leader, as in the background of a shell that has ended.
    """
    if hasattr(config, "workerinput") or _has_ended(os.getsid(0)):
        with contextlib.suppress(PermissionError):  # it leads a group, which no call lets it leave
            os.setsid()


def _has_ended(leader: int) -> bool:
    try:
        return leader > 0 and psutil.Process(leader).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pytest_collection(session: pytest.Session) -> None:
    """Ten thousand tests and what they import are no garbage: none is looked for while they are collected."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Nor is it ever again looked for among them."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _own_kasmon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """XDG folders of this test alone, under a path short enough for a socket; nothing of the user's is seen."""
    home = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    for variable, name in (("XDG_STATE_HOME", "s"), ("XDG_RUNTIME_DIR", "r"), ("XDG_CONFIG_HOME", "c")):
        folder = home / name
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(folder))
    for variable in CONTEXT:
        monkeypatch.delenv(f"KASMON_{variable}", raising=False)
        monkeypatch.delenv(f"KASMOS_{variable}", raising=False)
    yield
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True)
def _one_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same colours, locale and stillness on every machine."""
    for variable in [name for name in os.environ if name.startswith("TEXTUAL") and "SNAPSHOT" not in name]:
        monkeypatch.delenv(variable)
    for variable in ("NO_COLOR", "FORCE_COLOR", "TMUX", "TMUX_PANE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def _no_blocked_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """In a test that runs on a loop, a blocking call of ours raises."""
    if not inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        yield
        return
    guard = BlockBuster(scanned_modules="kasmon")
    for call, file, function in EXCUSED:
        if call in guard.functions:
            guard.functions[call].can_block_in(file, function)
    guard.activate()
    yield
    guard.deactivate()


@pytest.fixture(scope="session")
def fork_server() -> ForkServer:
    """What runs kasmon's commands for the tests of this process."""
    return OURS


@pytest.fixture(scope="session", autouse=True)
def _end_of_fork_server() -> Iterator[None]:
    yield
    OURS.close()


@pytest.fixture
def forked_tmux_starter(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tmux server of this process is started without a Python that imports libtmux for it."""
    monkeypatch.setattr(start_server, "__file__", fork_server.tmux_starter())


@pytest.fixture
def no_git_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user's own git config is not heard, as on a fresh machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repo(no_git_config: None, tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")
