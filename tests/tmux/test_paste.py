"""Text goes in whole, as one paste, or not at all."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kasmon.errors import PaneDeadError, PasteRefusedError, TmuxCommandError, TmuxServerGoneError
from kasmon.sanitize import outgoing
from kasmon.tmux.control import requests
from kasmon.tmux.server import TmuxServer
from kasmon.tmux.server_config import parse
from tests.support.tmux.hub_listener import Kept, Listener, recorder
from tests.support.tmux.sync_hub import panes_of
from tests.support.wait import until

BRACKETS = b"\x1b[?2004h"
START, END = b"\x1b[200~", b"\x1b[201~"

HOSTILE = [
    "echo hi;",
    "-t foo",
    "Enter",
    "a\nset-option -g @pwn yes\n",
    "'; set-option -g @pwn yes; '",
    "#(touch pwned) #{pid} #{E:@x}",
    "break \x1b[201~ out",
    "\x03\x04\x1a\x00 control",
    "é✓🙂 \t tab\n\nlines\n",
    "$HOME `id` $(id) ~ \\ \" '",
    "x" * 1_000_000,
]


class Recorded:
    """A pane that keeps what it is given, between brackets."""

    def __init__(self, listener: Listener, server: TmuxServer, file: Path) -> None:
        self.listener, self.file = listener, file
        self.pane = server.create("recorder", recorder(file, BRACKETS)).pane_id
        listener.until_shown(self.pane, "ready")

    def paste(self, text: str) -> bytes:
        before = self.file.stat().st_size
        self.listener.hub.paste(self.pane, text)

        def arrived() -> bytes:
            got = self.file.read_bytes()[before:]
            return got if got.endswith(END) else b""

        return until(arrived)


@pytest.fixture
def recorded(shared: Listener, folder: Path) -> Recorded:
    return Recorded(shared, shared.server, folder / "got")


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_hostile_text_arrives_cleaned_between_one_pair_of_brackets(recorded: Recorded, text: str) -> None:
    server = recorded.listener.server
    before = server.run("show-options", "-g") + server.run("show-options", "-s")

    assert START + outgoing(text).encode() + END == recorded.paste(text)
    assert before == server.run("show-options", "-g") + server.run("show-options", "-s")
    assert b"" == server.run("list-buffers")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(lambda text: outgoing(text) != "")
)
def test_any_text_arrives_cleaned_between_one_pair_of_brackets(recorded: Recorded, text: str) -> None:
    assert START + outgoing(text).encode() + END == recorded.paste(text)


def test_a_program_that_did_not_ask_gets_no_brackets(shared: Listener, folder: Path) -> None:
    listener = shared
    pane = listener.server.create("plain", recorder(folder / "got")).pane_id
    listener.until_shown(pane, "ready")
    listener.hub.paste(pane, "two\nlines")

    until(lambda: b"two\nlines" == (folder / "got").read_bytes())


def test_a_dead_pane_accepts_nothing_and_the_server_continues(listener: Listener, server: TmuxServer) -> None:
    """tmux 3.3a dies when something is pasted into a dead pane, and every agent with it."""
    bystander = server.create("bystander", ["cat"])
    dead = server.create("dead", ["true"]).pane_id
    listener.ending(dead)

    with pytest.raises(PaneDeadError, match=dead):
        listener.hub.paste(dead, "hello")
    assert [False, True] == [pane.is_dead for pane in panes_of(server)]
    assert bystander.pid == panes_of(server)[0].pid
    assert b"" == server.run("list-buffers")


def test_without_the_guard_the_server_dies(
    listener: Listener, server: TmuxServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above can see the hole."""
    if parse(server.version()) >= (3, 4):
        pytest.skip("tmux 3.4 and later survive it")
    dead = server.create("dead", ["true"]).pane_id
    listener.ending(dead)
    monkeypatch.setattr(requests, "GUARD", "0")

    with pytest.raises(TmuxServerGoneError):
        listener.hub.paste(dead, "hello")
    until(lambda: server.process() is None)
    assert 1 == listener.gone


@pytest.mark.parametrize(("mode", "why"), [("copy-mode", "copy mode"), ("select-pane -d", "input is off")])
def test_a_pane_that_takes_no_input_now_refuses(recorded: Recorded, mode: str, why: str) -> None:
    """What is pasted or typed would be lost, or be a command to tmux's copy mode."""
    listener, server = recorded.listener, recorded.listener.server
    server.run(*mode.split(), "-t", recorded.pane)
    kept = Kept()
    listener.hub.press(recorded.pane, b"q", kept.append)

    with pytest.raises(PasteRefusedError, match=why):
        listener.hub.paste(recorded.pane, "hello")
    assert isinstance(kept.error, PasteRefusedError)
    assert b"" == recorded.file.read_bytes()
    assert b"" == server.run("list-buffers")


@pytest.mark.parametrize("mode", ["copy-mode", "select-pane -d"])
def test_without_the_guard_the_loss_of_the_text_would_be_unknown(
    recorded: Recorded, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, server = recorded.listener, recorded.listener.server
    server.run(*mode.split(), "-t", recorded.pane)
    monkeypatch.setattr(requests, "GUARD", "0")
    listener.hub.paste(recorded.pane, "hello")

    assert not any("hello" in row for row in listener.rows(recorded.pane))


def test_a_missing_pane_accepts_nothing(shared: Listener) -> None:
    with pytest.raises(TmuxCommandError, match="tmux refused 'paste-buffer': can't find pane"):
        shared.hub.paste("%9999", "hello")
    shared.until(lambda: b"" == shared.server.run("list-buffers"))


def test_a_text_that_is_empty_after_cleaning_is_not_sent(recorded: Recorded) -> None:
    recorded.listener.hub.paste(recorded.pane, "\x07\x1b[31m")
    with pytest.raises(ValueError, match="nothing to paste"):
        recorded.listener.server.load(b"")

    assert START + b"next" + END == recorded.paste("next")


def test_a_paste_can_be_done_without_waiting(recorded: Recorded) -> None:
    """Bytes given to `load` are not cleaned: a person's own paste in focus may hold an escape."""
    listener, server = recorded.listener, recorded.listener.server
    kept = Kept()
    listener.hub.submit(requests.paste(recorded.pane, server.load(b"raw \x1b byte")), kept.append)
    listener.until(lambda: kept)

    assert kept.answer is None
    until(lambda: START + b"raw \x1b byte" + END == recorded.file.read_bytes())
