"""Our own server: started with our conf and nothing of the surroundings, known by socket and process."""

import os
import signal
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kasmon.errors import TmuxCommandError, TmuxMissingError, TmuxServerGoneError, TmuxTooOldError
from kasmon.tmux.formats import HUB
from kasmon.tmux.hub import Hub
from kasmon.tmux.process_identity import ProcessIdentity, identify
from kasmon.tmux.process_identity import signal as send_signal
from kasmon.tmux.server import TmuxServer
from kasmon.tmux.server_config import configuration, parse
from tests.support.tmux.hub_listener import Listener
from tests.support.tmux.sync_hub import end_window, panes_of
from tests.support.wait import until


def fake_tmux(folder: Path, says: str) -> str:
    program = folder / "tmux"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o700)
    return str(program)


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("tmux 3.3a", (3, 3)),
        ("tmux 3.10", (3, 10)),
        ("tmux next-3.6", (3, 6)),
        ("tmux 2.6", (2, 6)),
        ("tmux master", (99, 0)),
        ("tmux openbsd-current", (99, 0)),
        ("usage: mux", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_a_version_is_read(says: str, version: tuple[int, int]) -> None:
    assert version == parse(says)


def test_a_missing_tmux_is_named_with_the_fix(folder: Path) -> None:
    server = TmuxServer(folder / "t.sock", program="no-such-tmux")

    with pytest.raises(TmuxMissingError, match=r"'no-such-tmux' is not installed.*Install tmux 3\.2"):
        server.start()


@pytest.mark.parametrize("says", ["tmux 3.1c", "tmux 2.6", "not tmux at all"])
def test_an_old_tmux_is_named_with_the_version_that_is_needed(folder: Path, says: str) -> None:
    server = TmuxServer(folder / "t.sock", program=fake_tmux(folder, says))

    with pytest.raises(TmuxTooOldError, match=r"3\.2 or newer"):
        server.start()


@pytest.mark.parametrize("what", ["a command", "a connection"])
def test_a_tmux_that_cannot_be_run_any_more_is_an_error(folder: Path, what: str) -> None:
    """Otherwise a host whose connection ends in that moment would neither have a new one nor say that it has none."""
    program = fake_tmux(folder, "tmux 3.9")
    server = TmuxServer(folder / "t.sock", program=program)
    server.version()
    Path(program).unlink()

    with pytest.raises(TmuxCommandError, match=r"cannot be run: No such file"):
        server.run("list-panes") if what == "a command" else Hub(server).open()


def test_the_environment_may_name_the_program(folder: Path) -> None:
    program = fake_tmux(folder, "tmux 3.9")

    assert "3.9" == TmuxServer(folder / "t.sock", environment={"KASMON_TMUX": program}).version()


def test_there_is_no_answer_before_the_start(idle_server: TmuxServer) -> None:
    with pytest.raises(TmuxServerGoneError):
        panes_of(idle_server)
    with pytest.raises(TmuxServerGoneError):
        idle_server.create("early", ["cat"])
    assert idle_server.process() is None


def test_a_start_may_be_repeated(server: TmuxServer) -> None:
    process = server.process()

    assert process is not None
    assert [process.pid] * 2 == [server.start(), server.start()]


def test_two_simultaneous_starts_share_one_server(idle_server: TmuxServer) -> None:
    with ThreadPoolExecutor() as pool:
        pids = list(pool.map(lambda _: TmuxServer(idle_server.socket).start(), range(4)))

    assert 1 == len(set(pids))


def test_a_server_with_an_older_conf_gets_ours(server: TmuxServer) -> None:
    server.run("set-option", "-s", "@kasmon_conf", "older", ";", "set-option", "-g", "status", "on")
    pid = server.start()

    assert b"off\n" == server.run("show-options", "-gv", "status")
    assert pid == server.start()


def test_the_conf_has_the_settings_of_the_agents(server: TmuxServer) -> None:
    server.create("first", ["cat"])
    wanted = {
        "-sv exit-empty": "off",
        "-sv escape-time": "0",
        "-sv focus-events": "on",
        "-sv set-clipboard": "off",
        "-sv extended-keys": "on",
        "-gv status": "off",
        "-gv prefix": "None",
        "-gv history-limit": "10000",
        "-gv update-environment": "",
        "-gwv remain-on-exit": "on",
        "-gwv window-size": "latest",
        "-gwv allow-rename": "off",
        "-gwv allow-passthrough": "off",
    }

    assert wanted == {key: server.run("show-options", *key.split()).decode().strip() for key in wanted}
    assert "10000" == server.run("display-message", "-p", "-t", "=first:", "#{history_limit}").decode().strip()
    for key in ("C-]", "F12"):
        assert "detach-client" in server.run("list-keys", "-T", "root", key).decode()
    assert "kill-pane" not in server.run("list-keys", "-T", "root").decode()


def test_a_pane_has_the_requested_history_from_the_first_one_on(idle_server: TmuxServer) -> None:
    TmuxServer(idle_server.socket, history_lines=123).start()
    idle_server.create("first", ["cat"])

    assert b"123\n" == idle_server.run("display-message", "-p", "-t", "=first:", "#{history_limit}")


def test_a_running_server_gives_new_panes_the_requested_history(server: TmuxServer) -> None:
    server.create("first", ["cat"])
    TmuxServer(server.socket, history_lines=123).start()
    server.create("second", ["cat"])

    limits = [
        server.run("display-message", "-p", "-t", f"={name}:", "#{history_limit}") for name in ("first", "second")
    ]
    assert [b"10000\n", b"123\n"] == limits


def test_the_written_files_are_private(server: TmuxServer) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in server.socket.parent.iterdir()}

    assert {"t.sock": 0, "t.sock.conf": 0, "t.sock.server": 0, "t.sock.turn": 0} == modes


def test_no_variable_of_the_environment_reaches_the_server(idle_server: TmuxServer) -> None:
    secrets = {
        "ANTHROPIC_API_KEY": "x",
        "CLAUDECODE": "1",
        "NO_COLOR": "1",
        "KASMON_SESSION": "kabc",
        "TMUX": "/x,1,1",
        "TMUX_PANE": "%9",
    }
    server = TmuxServer(idle_server.socket, environment={**os.environ, **secrets})
    server.start()
    held = server.run("show-environment", "-g").decode()

    assert not [name for name in secrets if f"{name}=" in held]
    if sys.platform == "linux":
        process = server.process()
        assert process is not None
        said = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert not [name for name in secrets if name.encode() in said]


def test_without_any_locale_a_locale_is_set(idle_server: TmuxServer) -> None:
    server = TmuxServer(idle_server.socket, environment={"PATH": os.environ["PATH"]})

    assert "C.UTF-8" == server.environment["LANG"]


def test_a_conf_that_tmux_rejects_is_reported(idle_server: TmuxServer, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = configuration("screen") + "set -g no-such-option on\n"
    monkeypatch.setattr("kasmon.tmux.server.configuration", lambda terminal, lines: wrong)

    with pytest.raises(TmuxCommandError, match="no-such-option"):
        idle_server.start()


def test_a_deleted_socket_is_restored(server: TmuxServer) -> None:
    server.create("kept", ["cat"])
    server.socket.unlink()
    assert server.process() is None

    assert server.heal_socket()
    assert ["kept"] == [pane.kasmon_id for pane in panes_of(server)]


def test_a_server_that_answers_needs_no_repair_and_a_dead_one_gets_none(server: TmuxServer) -> None:
    assert server.heal_socket()
    server.kill_server()

    assert not server.heal_socket()


def test_no_other_process_is_taken_for_the_server(server: TmuxServer) -> None:
    """The pid of a server that died may belong to anyone by now."""
    me = identify(os.getpid())
    assert me is not None
    server.kill_server()
    ticks, _, of_boot = me.started.partition("@")
    for started in ("12345", f"{ticks}@another-boot", ticks, f"12345@{of_boot}"):
        server.socket.with_name("t.sock.server").write_text(f"{me.pid} {started}\n")
        assert not server.heal_socket()
    assert not send_signal(ProcessIdentity(me.pid, "12345"), signal.SIGKILL)


def test_killing_the_server_ends_its_programs(server: TmuxServer) -> None:
    pane = server.create("agent", ["cat"])
    server.kill_server()
    server.kill_server()

    until(lambda: identify(pane.pid) is None)
    with pytest.raises(TmuxServerGoneError):
        panes_of(server)


def test_a_server_without_its_socket_is_killed_too(server: TmuxServer) -> None:
    process = server.process()
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    server.kill_server(patience_s=0.1)

    assert identify(process.pid) != process


def test_the_server_outlives_its_sessions(server: TmuxServer) -> None:
    pane = server.create("only", ["cat"])
    end_window(server, pane.window_id)
    end_window(server, pane.window_id)

    assert [] == panes_of(server)
    assert server.process() is not None


def test_the_server_outlives_the_hub(listener: Listener, server: TmuxServer) -> None:
    server.create("kept", ["cat"])
    listener.hub.close()

    assert ["kept"] == [pane.kasmon_id for pane in panes_of(server)]
    assert HUB in server.run("list-sessions", "-F", "#{session_name}").decode()
