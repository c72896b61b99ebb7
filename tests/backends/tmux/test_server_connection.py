"""The requests to a tmux server, as the loop sees them."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.errors import KasmonError, TmuxServerGoneError
from kasmon.paths import user_paths
from kasmon.tmux.control import requests as ask
from kasmon.tmux.server import TmuxServer


@pytest.fixture
def server() -> Iterator[TmuxServer]:
    paths = user_paths()
    paths.make()
    server = TmuxServer(paths.tmux_socket)
    yield server
    server.kill_server()


async def test_a_request_without_an_answer_fails_on_the_loop_when_the_connection_is_closed(server: TmuxServer) -> None:
    """The hub is closed in another thread, where no future of the loop may be set."""
    line = ServerConnection(server)
    failed: list[tuple[type, int]] = []

    def note(answer: list[bytes] | KasmonError) -> None:
        failed.append((type(answer), threading.get_ident()))

    await line.open()
    line.submit(ask.command("wait-for never"), note)
    waiting = asyncio.create_task(line.ask(ask.command("display-message -p late")))
    await asyncio.sleep(0)
    await line.aclose()

    assert [(TmuxServerGoneError, threading.get_ident())] == failed
    with pytest.raises(TmuxServerGoneError):
        await waiting
