"""The real terminal of a session, and the way back."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.tmux.server import TmuxServer
from kasmon.tmux.user_client import attach_with_message
from kasmon.tui.keymap import DETACHES
from kasmon.tui.session_pane import HOW_TO_COME_BACK
from tests.support.tui.pty_program import OnTerminal


@pytest.fixture
def server() -> Iterator[TmuxServer]:
    """A running tmux of kasmon's, with one session that says again what it reads."""
    folder = Path(tempfile.mkdtemp(prefix="kst", dir="/tmp"))
    server = TmuxServer(folder / "t.sock")
    server.start()
    server.run("new-session", "-d", "-s", "echo", "cat")
    yield server
    server.kill_server()
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "key", [bytes([ord(DETACHES.removeprefix("ctrl+")) & 0x1F]), b"\x1b[24~"], ids=["ctrl+]", "F12"]
)
def test_an_attached_user_gets_the_keys_that_return(server: TmuxServer, tmp_path: Path, key: bytes) -> None:
    """What is typed meanwhile goes to the session."""
    [session] = server.run("list-sessions", "-F", "#{session_id}").decode().split()
    server.run("set-option", "-g", "assume-paste-time", "0")  # a test types faster than a millisecond a key
    with OnTerminal(attach_with_message(server.attach_argv(session), HOW_TO_COME_BACK), tmp_path) as screen:
        screen.until(f"{DETACHES} or F12: detach (back to kasmon)".encode())
        screen.send(b"hello\r")
        screen.until(b"hello\r\nhello")
        screen.send(key)

        assert 0 == screen.ended()
