"""A tmux server of its own for each test that asks for one, its socket in a short folder; nothing is left behind."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.tmux.process_identity import identify
from kasmon.tmux.server import TmuxServer
from tests.support.tmux.hub_listener import Listener
from tests.support.tmux.sync_hub import SyncHub
from tests.support.wait import remove_folder


@pytest.fixture(autouse=True)
def no_outer_tmux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The person's own tmux and folders are out of reach."""
    for name in ("TMUX", "TMUX_PANE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="kmt", dir="/tmp"))
    yield path
    remove_folder(path)  # a job of tmux may still write into it


@pytest.fixture
def idle_server(folder: Path) -> Iterator[TmuxServer]:
    """A server that was not started yet; whatever runs at its socket in the end is killed."""
    server = TmuxServer(folder / "t.sock")
    yield server
    process = server.process()
    server.kill_server()
    assert process is None or identify(process.pid) != process


@pytest.fixture
def server(idle_server: TmuxServer, forked_tmux_starter: None) -> TmuxServer:
    idle_server.start()
    return idle_server


@pytest.fixture
def listener(server: TmuxServer) -> Iterator[Listener]:
    """An open hub, heard."""
    hub = SyncHub(server)
    listener = Listener(hub)
    hub.open()
    yield listener
    hub.close()


@pytest.fixture(scope="module")
def shared_listener() -> Iterator[Listener]:
    """An open hub on a server for a whole file of tests, none of which ends it or leaves a pane alive."""
    folder = Path(tempfile.mkdtemp(prefix="kmt", dir="/tmp"))
    server = TmuxServer(folder / "t.sock")
    server.start()
    hub = SyncHub(server)
    listener = Listener(hub)
    hub.open()
    yield listener
    hub.close()
    server.kill_server()
    remove_folder(folder)


@pytest.fixture
def shared(shared_listener: Listener) -> Iterator[Listener]:
    """`shared_listener`, without any pane before and after."""
    yield shared_listener
    shared_listener.clear()
