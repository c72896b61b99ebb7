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
from typing import TYPE_CHECKING

import psutil
import pytest
from blockbuster import BlockBuster
from hypothesis import HealthCheck, settings

from kasmon.tmux import start_server
from tests.support.cli.fork_server import OURS, PLAIN, ForkServer, start_hosts_by
from tests.support.git_repo import Repo

if TYPE_CHECKING:
    from tests.support.cli.cli_runner import Cli
    from tests.support.supervisor.env import Env

pytest_plugins = ["tests.support.forked_workers"]
EXCUSED = (
    ("os.stat", "importlib/_bootstrap_external.py", "path_stat"),  # an import on first use
    ("io.BufferedReader.read", "importlib/_bootstrap_external.py", "get_data"),
    ("os.listdir", "importlib/_bootstrap_external.py", "_fill_cache"),
    *(
        ("os.stat", "kasmon/agents/catalog.py", function)  # whether the small file of an agent changed
        for function in ("load", "_names_in", "_own_stamps")
    ),
    *(
        (call, "kasmon/agents/catalog.py", function)  # that file on first use, like an import
        for call in ("os.stat", "os.listdir", "os.scandir", "io.BufferedReader.read")
        for function in ("_names", "_load", "_packages")
    ),
)
"""Blocking calls that the loop may make, each by the function that it is made in."""
FOLDERS = {"XDG_STATE_HOME": "s", "XDG_RUNTIME_DIR": "r", "XDG_CONFIG_HOME": "c", "HOME": "h"}
"""The folders of a test's kasmon, by their variables."""
START_FILES = ("ENV", "BASH_ENV", "ZDOTDIR")
"""Variables that lead a shell to the user's start files."""
CONTEXT = ("SESSION", "TASK", "WAVE", "PEERS", "PLAN", "DEV", "LIFELINE")
"""What a kasmon that runs these tests may have put into the environment."""
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", settings.get_profile("patient"), max_examples=1000)
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
    gc.set_threshold(50_000)  # by default 700: a dashboard makes that many objects with each key
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _no_start_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No shell of a test or of a fixture reads the user's start files, which may take a minute, or writes a history."""
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        variables.setenv("SHELL", "/bin/sh")
        for variable in START_FILES:
            variables.delenv(variable, raising=False)
        yield


@pytest.fixture(scope="session")
def _untouched_homes() -> Iterator[list[Path]]:
    """Homes that a test left as they were, for the next one: to make one and to remove it is half of a small test."""
    homes: list[Path] = []
    yield homes
    for home in homes:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_kasmon(monkeypatch: pytest.MonkeyPatch, _untouched_homes: list[Path]) -> Iterator[None]:
    """Folders of this test alone, under a path short enough for a socket; nothing of the user's is seen."""
    home = _untouched_homes.pop() if _untouched_homes else Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    for variable, name in FOLDERS.items():
        folder = home / name
        folder.mkdir(mode=0o700, exist_ok=True)
        monkeypatch.setenv(variable, str(folder))
    before = _look_at(home)
    for variable in CONTEXT:
        monkeypatch.delenv(f"KASMON_{variable}", raising=False)
        monkeypatch.delenv(f"KASMOS_{variable}", raising=False)
    yield
    if before == _look_at(home):
        _untouched_homes.append(home)
    else:
        shutil.rmtree(home, ignore_errors=True)


def _look_at(home: Path) -> list[object]:
    """What a test that uses *home* changes: the mode, the time of change and the entries of its folders."""
    state: list[object] = []
    with contextlib.suppress(OSError):
        for folder in (home, *(home / name for name in FOLDERS.values())):
            found = folder.lstat()
            state += (found.st_ino, found.st_mode, found.st_ctime_ns, [entry.name for entry in folder.iterdir()])
    return state


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


@pytest.fixture
def kasmon(fork_server: ForkServer) -> Iterator["Cli"]:
    """The command line of a kasmon of its own."""
    from tests.support.cli.cli_runner import Cli  # only for the tests that use it, as below

    line = Cli(fork_server)
    yield line
    line.close()


@pytest.fixture
def env() -> Iterator["Env"]:
    """A kasmon in this process."""
    from tests.support.supervisor.env import Env

    env = Env()
    yield env
    env.close()


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
