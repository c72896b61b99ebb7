"""Whatever breaks while the dashboard runs: what is gone is said to be gone within two seconds, the rest goes on.

What is no terminal at all, or a dumb one, gets a sentence instead: tests/cli/test_start.py.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode
from kasmon.model.events import MessageWritten, TurnEnded
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.tmux.server import TmuxServer
from tests.support.tui.dashboard import Dashboard, Home
from tests.support.wait import until

pytestmark = pytest.mark.story

SOON_S = 2.0
"""What is gone is said to be gone within this; the specification's number."""


def cat(home: Home, name: str) -> SessionId:
    """A program in tmux that says nothing."""
    return home.start(name, agent="", mode=Mode.TMUX, argv=("cat",))


def row(dashboard: Dashboard, name: str) -> str:
    """The list's line for the session of this name; empty where there is none."""
    lines = (line.partition("│")[0] for line in dashboard.screen.split("\n")[1:])
    return next((line for line in lines if f" {name} " in line), "")


def becomes(dashboard: Dashboard, name: str, state: str, said: str = "") -> float:
    """Wait until the list says that *name* is in *state*, and *said* last.

    How long that took, in seconds, without those in which the dashboard or this test waited for a processor.
    """
    pids = (dashboard.process.pid, os.getpid())
    began = time.monotonic() - sum(map(delay, pids))
    try:
        until(lambda: state in (line := row(dashboard, name)) and said in line)
    except TimeoutError:
        raise AssertionError(f"{name} is not {state}:\n{dashboard.screen}") from None
    return time.monotonic() - sum(map(delay, pids)) - began


def delay(pid: int) -> float:
    """How long the main thread of *pid* has waited for a processor so far, in seconds; 0 where /proc does not say."""
    counted = Path(f"/proc/{pid}/schedstat")
    return int(counted.read_text().split()[1]) / 1e9 if counted.exists() else 0.0


def view(dashboard: Dashboard, name: str, then: str, said: str = "") -> None:
    """Mark the finished *name*, which stands on top, as viewed; then what needs a person is on top, and selected.

    *said*: its last message. Before that is on the screen, the state there may be the one before its last turn.
    """

    def on_top(wanted: str) -> None:
        try:
            until(lambda: f" {wanted}" in dashboard.screen.split("\n")[2].partition("│")[0])
        except TimeoutError:
            raise AssertionError(f"{wanted} is not on top:\n{dashboard.screen}") from None

    becomes(dashboard, name, "finished", said)
    on_top(name)
    dashboard.send(b"\x1b[HL")
    becomes(dashboard, name, "idle")
    on_top(then)
    dashboard.send(b"\x1b[H")


def kill(pid: int | None) -> None:
    assert pid
    os.kill(pid, signal.SIGKILL)


def test_a_host_killed_with_9_is_lost_at_once_and_comes_back_over_its_stale_socket(home: Home) -> None:
    victim, other = home.start("victim", "say One."), home.start("other", "say Two.")
    with Dashboard(home) as dashboard:
        dashboard.shows("2 finished")
        kill(lock_holder(home.paths.host_lock(victim)))
        assert becomes(dashboard, "victim", "lost") < SOON_S
        assert home.paths.socket(victim).is_socket()
        with home.paths.log(victim).open("ab") as log:
            log.write(TORN[0])  # it was just writing
        assert SessionState.LOST is home.session(victim).state
        assert "finished" in row(dashboard, "other")

        home.prompt(other, "say Still here.")
        until(lambda: len(home.facts(TurnEnded, other)) == 2)
        view(dashboard, "other", then="victim", said="Still here.")
        dashboard.send(b"R")
        becomes(dashboard, "victim", "finished")
        home.prompt(victim, "say Back again.")
        dashboard.shows("Back again.")


def test_without_its_host_a_terminal_is_unsure_and_never_idle(home: Home) -> None:
    home.start("first", "say One.")
    terminal = home.start("terminal", "", agent="scripted", mode=Mode.TMUX)
    until(lambda: SessionState.IDLE is home.session(terminal).state)
    with Dashboard(home) as dashboard:
        dashboard.shows("2 finished")
        kill(lock_holder(home.paths.tmux_host_lock))
        assert becomes(dashboard, "terminal", "unsure") < SOON_S
        assert SessionState.UNSURE is home.session(terminal).state

        view(dashboard, "first", then="terminal ")  # whoever looks at it brings its host back
        becomes(dashboard, "terminal", "finished")


def test_a_killed_tmux_server_ends_only_the_terminals(home: Home) -> None:
    structured = home.start("structured", "say One.")
    terminals = [cat(home, f"terminal-{number}") for number in range(3)]
    with Dashboard(home) as dashboard:
        dashboard.shows("terminal-2", "structured")
        server = TmuxServer(home.paths.tmux_socket).process()
        assert server is not None
        kill(server.pid)
        for number in range(3):
            assert becomes(dashboard, f"terminal-{number}", "lost") < SOON_S
        assert all(SessionState.LOST is home.session(terminal).state for terminal in terminals)

        home.prompt(structured, "say Still here.")
        until(lambda: len(home.facts(TurnEnded, structured)) == 2)
        view(dashboard, "structured", then="terminal-", said="Still here.")
        dashboard.send(b"R")
        until(lambda: any(SessionState.LOST is not home.session(terminal).state for terminal in terminals))


def test_sockets_left_by_a_crash_block_no_start(home: Home) -> None:
    for path in (home.paths.tmux_socket, home.paths.tmux_host_socket):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    home.start("terminal", "say One.", agent="scripted", mode=Mode.TMUX)
    with Dashboard(home) as dashboard:
        becomes(dashboard, "terminal", "finished")
        dashboard.shows("One.")


TORN = [
    b'{"kind":"message.said","at":1.0,"text":"half',
    b'{"kind":"message.said","at":1.0}\n',
    b'{"kind":"turn.started","at":"never"}\n',
    b"\xff\xfe\x00 not even text\n",
    b"[" * 5000 + b"\n",
    b'{"kind":"request.opened","at":1.0,"request":{"id":7}}\n{}\nnull\n\n',
    b'{"kind":"of.tomorrow","at":1.0,"more":[1,2,3]}\n',
]


def test_incomplete_and_foreign_lines_in_a_log_are_skipped(home: Home) -> None:
    session = home.start("torn", "say One.")
    with Dashboard(home) as dashboard:
        dashboard.shows("1 finished")
        for number, torn in enumerate(TORN):
            with home.paths.log(session).open("ab") as log:
                log.write(torn)
            home.prompt(session, f"say After {number}.")
            dashboard.shows(f"After {number}.")
        becomes(dashboard, "torn", "finished")

        assert [f"After {n}." for n in range(len(TORN))] == [m.text for m in home.facts(MessageWritten, session)][1:]


def test_a_fleet_log_with_incomplete_lines_still_lists_every_session(home: Home) -> None:
    home.start("before")
    with home.paths.fleet_log.open("ab") as log:
        log.write(TORN[0])
    home.start("after")
    with Dashboard(home) as dashboard:
        dashboard.shows("2 sessions", "before", "after")
        with home.paths.fleet_log.open("ab") as log:
            log.writelines(TORN[1:])
        home.start("later")
        dashboard.shows("3 sessions", "later")


def test_a_deleted_session_folder_ends_no_dashboard(home: Home) -> None:
    gone, stays = home.start("gone", "say One."), home.start("stays", "say Two.")
    with Dashboard(home) as dashboard:
        dashboard.shows("2 finished")
        host = lock_holder(home.paths.host_lock(gone))
        shutil.rmtree(home.paths.folder(gone))
        assert becomes(dashboard, "gone", "lost") < SOON_S
        kill(host)
        home.prompt(stays, "say Still here.")
        dashboard.shows("Still here.")


@pytest.mark.parametrize("what", ["a folder", "no database"])
def test_a_damaged_index_costs_no_session(home: Home, what: str) -> None:
    home.start("known", "say One.")
    with Dashboard(home) as dashboard:
        dashboard.shows("1 finished")
        assert 0 == dashboard.quit()
    index = home.paths.index
    index.unlink(missing_ok=True)
    if what == "a folder":
        index.mkdir(mode=0o700)
    else:
        index.write_bytes(b"SQLite format 3\0" + os.urandom(8192))
    with Dashboard(home) as dashboard:
        dashboard.shows("1 finished", "known")
        assert 0 == dashboard.quit()


@pytest.fixture
def small_disk(home: Home) -> Iterator[Path]:
    """The state folder on a disk of its own, of 4 MB."""
    disk = home.path / "s"
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(disk)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("a small disk needs the right to mount one")
    try:
        home.paths.make()
        yield disk
        for path in home.paths.sessions.glob("*/host.lock"):
            if pid := lock_holder(path):
                kill(pid)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True, capture_output=True)


def test_on_a_full_disk_no_session_is_idle_and_live_control_continues(home: Home, small_disk: Path) -> None:
    session = home.start("worker", "say One.")
    with Dashboard(home) as dashboard:
        dashboard.shows("1 finished")
        ballast = small_disk / "ballast"
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(b"x" * 5_000_000)
        assert becomes(dashboard, "worker", "unsure") < SOON_S
        dashboard.shows("kasmon cannot save anything: No space left on device")
        assert SessionState.UNSURE is home.session(session).state
        home.prompt(session, "say Written later.")
        dashboard.send(b"n")
        dashboard.shows("New session", "interpreters")  # the agents are found
        dashboard.send(b"another\r")
        dashboard.shows("Cannot write")
        dashboard.send(b"\x1b")

        ballast.unlink()
        dashboard.hides("kasmon cannot save anything")
        becomes(dashboard, "worker", "finished")
        dashboard.shows("Written later.")


def test_on_a_read_only_file_system_no_session_is_idle_and_live_control_continues(home: Home, small_disk: Path) -> None:
    """As where the kernel turned a broken disk read-only; what is said to a session meanwhile is written later."""
    session = home.start("worker", "say One.")
    with Dashboard(home) as dashboard:
        dashboard.shows("1 finished")
        mount("--bind", str(small_disk), str(small_disk))
        try:
            mount("-o", "remount,bind,ro", str(small_disk))
            with pytest.raises(OSError, match="Read-only"):
                (small_disk / "any").touch()
            assert becomes(dashboard, "worker", "unsure") < SOON_S
            dashboard.shows("kasmon cannot save anything: Read-only file system")
            assert SessionState.UNSURE is home.session(session).state
            home.prompt(session, "say Written later.")
        finally:
            subprocess.run(["umount", "-l", str(small_disk)], check=True, capture_output=True)

        dashboard.hides("kasmon cannot save anything")
        becomes(dashboard, "worker", "finished")
        dashboard.shows("Written later.")


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


@pytest.fixture
def bare(home: Home) -> Path:
    folder = home.path / "bin"
    folder.mkdir()
    return folder


def fake_tmux(folder: Path, says: str) -> None:
    program = folder / "tmux"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("says", "told"),
    [("", ("'tmux' is not installed", "Install tmux 3.2")), ("tmux 2.6", ("tmux 2.6 is too old", "3.2 or newer"))],
    ids=["missing", "old"],
)
def test_without_a_usable_tmux_structured_sessions_work_and_the_rest_reports_it_missing(
    home: Home, bare: Path, says: str, told: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if says:
        fake_tmux(bare, says)
    monkeypatch.setenv("PATH", str(bare))
    structured = home.start("structured", "say One.")
    with Dashboard(home, environment={"PATH": str(bare)}) as dashboard:
        dashboard.shows("1 finished")
        home.prompt(structured, "say Still here.")
        dashboard.shows("Still here.")
        dashboard.send(b"n")
        dashboard.shows("New session", "Agent")
        dashboard.send(b"terminal-to-be\r")
        dashboard.shows(*told)
        assert "finished" in row(dashboard, "structured")


GOOD = '[ui]\ntheme = "{theme}"\n'
BROKEN = {
    "no TOML": (GOOD + "bell = \n", ("config.toml:3", "not valid TOML")),
    "an unknown key": (GOOD + "bel = true\n", ("config.toml:3", "'ui.bel'", "Allowed", "toasts")),
    "a wrong type": (GOOD + 'bell = "loud"\n', ("config.toml:3", "'ui.bell'", "'loud'", "true", "false")),
    "an unknown action": (GOOD + '[keys]\nfly = "f9"\n', ("config.toml:4", "'keys.fly'", "Allowed", "filter")),
    "an unknown theme": ('[ui]\ntheme = "nosuch"\n', ("config.toml:2", "'ui.theme'", "'nosuch'", "rose-pine-dawn")),
}
"""What is wrong with a config -> the config, and what a person has to read about it."""

THEME = Path(__file__).parents[2] / "themes" / "rose-pine-moon.toml"
BROKEN_THEMES = {
    "no colour": ('background = "#', 'background = "', ("'colors.background'", "#rrggbb")),
    "an unknown table": ("[colors]", "[colours]", ("'colours'", "Allowed", "contrast")),
    "no TOML": ("[states]", "[states", ("not valid TOML",)),
}
"""What is wrong with a theme -> a piece of it, what stands there instead, and what a person has to read about it."""


def colours(dashboard: Dashboard) -> str:
    """The ground that the list is drawn on, once it is: the rows of a picture come one after the other."""
    return until(lambda: ground if (ground := dashboard.ground(2, 20)) != "default" else "", what="the list's ground")


def test_a_config_that_breaks_while_it_is_open_is_reported_and_the_last_good_one_stays(home: Home) -> None:
    home.start("worker")
    home.paths.config.mkdir(mode=0o700)
    config = home.paths.config_file
    config.write_text("theme = 7")
    with Dashboard(home) as dashboard:
        dashboard.shows("worker", "config.toml:1", "'theme'", "default_agent")  # with the defaults
        before = colours(dashboard)
        config.write_text(GOOD.format(theme="high-contrast"))
        until(lambda: colours(dashboard) != before)
        good = colours(dashboard)
        for text, told in BROKEN.values():
            broken = text.format(theme="high-contrast")
            config.write_text(broken)
            dashboard.shows(*told)

            assert good == colours(dashboard)
            assert broken == config.read_text()
        config.write_text(GOOD.format(theme="rose-pine-moon"))
        until(lambda: colours(dashboard) == before)


def test_a_theme_that_breaks_while_it_is_shown_is_reported_and_stays_as_it_was(home: Home) -> None:
    home.start("worker")
    home.paths.themes.mkdir(parents=True, mode=0o700)
    mine = home.paths.themes / "mine.toml"
    mine.write_text(THEME.read_text())
    home.paths.config_file.write_text(GOOD.format(theme="mine"))
    with Dashboard(home) as dashboard:
        dashboard.shows("worker")
        before = colours(dashboard)
        good = THEME.read_text().replace(f'background = "#{before}', 'background = "#102030')
        mine.write_text(good)
        until(lambda: colours(dashboard) == "102030")
        for old, new, told in BROKEN_THEMES.values():
            broken = good.replace(old, new, 1)
            line = broken[: broken.index(new)].count("\n") + 1
            mine.write_text(broken)
            dashboard.shows(f"mine.toml:{line}", *told)

            assert "102030" == colours(dashboard)
            assert broken == mine.read_text()


SMALL = "(minimum 40x10)."
PATHS = {
    "a small window": ({}, 30, 8, (SMALL,)),
    "the smallest window": ({}, 1, 1, ("…",)),
    "no colour": ({"NO_COLOR": "1"}, 100, 30, ("worker", "finished")),
    "not UTF-8": (
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        100,
        30,
        ("worker", "F finished"),
    ),
    "a locale that says C": ({"LANG": "C", "LC_ALL": ""}, 100, 30, ("worker", "F finished")),
    "a terminal nobody knows": ({"TERM": "nosuchterm"}, 100, 30, ("worker", "finished")),
}


@pytest.mark.parametrize("place", PATHS)
def test_the_dashboard_can_be_read_and_left_on_any_terminal_that_it_opens_on(home: Home, place: str) -> None:
    variables, columns, rows, told = PATHS[place]
    home.start("worker", "say One.")
    with Dashboard(home, environment=variables, columns=columns, rows=rows) as dashboard:
        dashboard.shows(*told)
        dashboard.resize(100, 30)
        dashboard.shows("worker", "finished")
        assert 0 == dashboard.quit()

        assert dashboard.before == dashboard.modes
        if place == "no colour":
            assert [] == colour_codes(dashboard.seen)
        if place in ("not UTF-8", "a locale that says C"):
            assert dashboard.seen.isascii()


def colour_codes(seen: bytes) -> list[bytes]:
    """The rendition codes in *seen* that give a colour."""
    codes = {code for codes in re.findall(rb"\x1b\[([0-9;:]*)m", seen) for code in re.split(b"[;:]", codes)}
    return sorted(code for code in codes if 30 <= int(code or 0) < 50 or int(code or 0) >= 90)


def test_a_window_that_is_too_small_can_be_left(home: Home) -> None:
    with Dashboard(home, columns=30, rows=8) as dashboard:
        dashboard.shows(SMALL)

        assert 0 == dashboard.quit()


def test_a_window_that_was_too_small_for_a_while_keeps_the_typed_text(home: Home) -> None:
    home.start("worker", "say One.")
    with Dashboard(home, columns=100, rows=30) as dashboard:
        dashboard.shows("worker", "finished")
        dashboard.send(b"\r")
        dashboard.shows("Write to worker")
        dashboard.type("half")
        dashboard.shows("half")
        dashboard.resize(30, 8)
        dashboard.shows(SMALL)
        dashboard.resize(100, 30)
        dashboard.shows("half", "worker")
        dashboard.type("way")

        dashboard.shows("halfway")
