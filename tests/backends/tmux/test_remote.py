"""An agent on another machine, as the pane of its ssh shows it."""

import asyncio
from collections.abc import Iterator

import pytest

from kasmon.backends.tmux import remote
from kasmon.backends.tmux.evidence.output_monitor import OutputMonitor
from kasmon.backends.tmux.remote import RemoteAgent
from kasmon.backends.tmux.terminal_backend import TmuxBackend
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths
from kasmon.tmux.formats import CreatedPane
from kasmon.tmux.remote.agent import build_marker
from kasmon.tmux.server import TmuxServer
from tests.support.wait import until

NONCE = "0a1b"


@pytest.fixture
def pane() -> Iterator[CreatedPane]:
    """One that shows the marker, and prints no more."""
    paths = user_paths()
    paths.make()
    server = TmuxServer(paths.tmux_socket)
    server.start()
    marker = build_marker(NONCE)
    pane = server.create("remote", ["/bin/sh", "-c", f"echo {marker}; exec cat"])
    until(lambda: marker.encode() in server.run("capture-pane", "-p", "-t", pane.pane_id))
    yield pane
    server.kill_server()


async def test_an_agent_that_reports_its_start_before_its_output_is_read_is_connected(
    pane: CreatedPane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tmux does not report what a window printed before it was linked to the session of the control client."""
    monkeypatch.setattr(remote, "LIMIT_S", 5.0)
    backend = TmuxBackend()
    line = await asyncio.to_thread(lambda: backend.line)
    await line.open()
    launch = Launch(
        session=SessionId("abcdefgh"),
        name="far",
        agent="shell@box",
        mode=Mode.TMUX,
        backend="tmux",
        machine="box",
        argv=("sh",),
    )
    agent = await backend._agent(launch, pane, None, OutputMonitor(asyncio.get_running_loop().time()), NONCE)
    assert isinstance(agent, RemoteAgent)

    await agent.wait_until_connected()

    assert agent._connected.is_set()
    await backend.aclose()
