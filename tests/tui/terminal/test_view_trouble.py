"""What goes wrong while somebody is in a terminal: it is said, the keyboard comes back, the terminal is left clean."""

import base64
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kasmon.model.commands import Mode
from kasmon.tmux.server import TmuxServer
from tests.support.tmux.sync_hub import panes_of
from tests.support.tui.dashboard import Dashboard, Home
from tests.support.wait import until

LEAVE = b"\x1d"

FLOOD = r"""
import os, random, sys
draw = random.Random(1)
bits = [b"\x1b[31m", b"\x1b]52;c;AAAA", b"\x1b[2J", b"\x1bP+q", b"\x1b_G", b"\x1b\\\\",
        b"\x1b\\\\", b"\x1b\\\\", b"\x9b", b"\x1b[?1049h", b"\x1b[?1049l",
        b"x" * 1000, b"\xff\xfe", b"\x1b[999;999H", b"\x1b[?1003h", b"\x1b[?1003l", b"\x07" * 3, "漢".encode() * 50,
        b"\x1b]2;#(touch " + sys.argv[1].encode() + b")\x07", b"\r| / - \\\b", b"\x1b[H\x1b[J",
        "e\u0301\u202e\u200d".encode()]
os.write(1, b"begun")
sys.stdin.readline()
while True:
    os.write(1, b"".join(draw.choice(bits) for _ in range(50)))
"""


@contextmanager
def inside(*argv: str, columns: int = 100, says: str = "begun") -> Iterator[tuple[Home, Dashboard]]:
    """Somebody is in the terminal of *argv*, which says that it has begun."""
    with Home() as home:
        home.start("it", mode=Mode.TMUX, agent="", argv=argv)
        with Dashboard(home, columns=columns, rows=20) as dashboard:
            dashboard.shows(says)
            dashboard.send(b"\r")
            dashboard.shows("F12 list")
            tmux = TmuxServer(home.paths.tmux_socket)
            until(lambda: panes_of(tmux)[0].width == columns - 1)  # the host knows who is inside
            yield home, dashboard


def is_left_clean(dashboard: Dashboard) -> None:
    dashboard.send(LEAVE)
    dashboard.hides("F12 list")
    assert 0 == dashboard.quit()
    assert dashboard.before == dashboard.modes
    assert b"\x1b[?1049l" in dashboard.seen[-400:]


def test_the_key_behind_a_leave_key_is_the_dashboards() -> None:
    """Also in the same read. The first one enters the terminal again, which then gets keys."""
    with inside("/bin/sh", "-c", "echo begun; exec cat") as (_, dashboard):

        def is_echoed() -> bool:
            dashboard.send(b"z")
            return "zz" in dashboard.screen

        dashboard.send(LEAVE + b"\r")
        until(is_echoed)
        dashboard.send(LEAVE + b"q")
        assert 0 == dashboard.ended()


def test_keys_behind_the_one_that_enters_are_the_terminals() -> None:
    """Also in the same read, as when somebody types ahead."""
    with inside("/bin/sh", "-c", "echo begun; exec cat") as (_, dashboard):
        for number in range(5):
            text = f"typed ahead {number}"
            dashboard.send(LEAVE + b"\r" + text.encode())
            dashboard.shows(text)
        is_left_clean(dashboard)


def test_a_program_that_dies_in_focus_is_reported_as_dead() -> None:
    with inside("/bin/sh", "-c", "echo begun; read x; exit 7") as (_, dashboard):
        dashboard.send(b"\r")
        dashboard.shows("program ended; keys are ignored", "Pane is dead (status 7")
        dashboard.send(b"more\x1b[200~and a paste\x1b[201~")
        is_left_clean(dashboard)


def test_a_program_that_dies_during_a_paste_gets_none_of_it_twice(tmp_path: Path) -> None:
    """It ends at the first byte; tmux 3.3a would die of a paste into a dead pane."""
    script = f"echo begun; printf '\\033[?2004h'; stty raw -echo; dd bs=1 count=1 of={tmp_path}/typed 2>/dev/null"
    with inside("/bin/sh", "-c", script) as (home, dashboard):
        for _ in range(5):
            dashboard.send(b"\x1b[200~" + b"pasted " * 300 + b"\x1b[201~")
        dashboard.shows("program ended; keys are ignored")

        assert b"\x1b" == (tmp_path / "typed").read_bytes()
        assert TmuxServer(home.paths.tmux_socket).process() is not None
        is_left_clean(dashboard)


def test_a_tmux_server_killed_in_focus_is_reported_and_the_focus_returns() -> None:
    with inside("/bin/sh", "-c", "echo begun; exec cat") as (home, dashboard):
        tmux = TmuxServer(home.paths.tmux_socket).process()
        assert tmux is not None
        os.kill(tmux.pid, signal.SIGKILL)
        said = ("the tmux server ended", "its pane no longer exists")  # whichever is noticed first
        until(lambda: "1 lost" in dashboard.screen and any(why in dashboard.screen for why in said))
        dashboard.send(b"nobody reads this")
        is_left_clean(dashboard)


@pytest.mark.parametrize("columns", [60, 200])
def test_a_hostile_flood_does_not_affect_the_focus_or_the_terminal(columns: int, tmp_path: Path) -> None:
    with inside(sys.executable, "-c", FLOOD, str(tmp_path / "ran"), columns=columns) as (_, dashboard):
        begun = len(dashboard.seen)
        dashboard.send(b"\r")
        until(lambda: len(dashboard.seen) > begun + 20_000)
        is_left_clean(dashboard)

        assert not (tmp_path / "ran").exists()
        assert b"\x1b]52" not in dashboard.seen[begun:]
        assert b"\x1b[999;999H" not in dashboard.seen[begun:]


def test_a_thousand_columns_are_shown_as_far_as_they_fit() -> None:
    wide = "print('begun ' + '\u2500' * 1000 + 'end', flush=True); import time; input()"
    with inside(sys.executable, "-c", wide, columns=60) as (_, dashboard):
        dashboard.shows("end")
        is_left_clean(dashboard)


def test_a_screen_that_is_cleared_repeatedly_is_shown_correctly() -> None:
    script = "printf begun; read x; for i in $(seq 200); do printf '\\033[2J\\033[Hround %s' $i; done; exec cat"
    with inside("/bin/sh", "-c", script) as (_, dashboard):
        dashboard.send(b"\r")
        dashboard.shows("round 200")
        assert "begun" not in dashboard.screen
        is_left_clean(dashboard)


def test_text_copied_from_a_real_terminal_is_whole() -> None:
    """From its first line, through wraps, to the clipboard of the person's terminal."""
    text = "begun " + "word " * 40 + "end ⚠️ 漢字"
    script = f"printf '%s\\n' '{text}   '; seq 300; exec cat"
    with inside("/bin/sh", "-c", script, columns=70, says="300") as (_, dashboard):
        dashboard.send(LEAVE)
        dashboard.shows("state")
        dashboard.send(b"v")
        dashboard.shows("line 301 of 301")
        dashboard.send(b"/end\r")
        dashboard.shows("1 match")
        dashboard.send(b"y")
        dashboard.until(b"\x1b]52;c;" + base64.b64encode(text.encode()))


def test_a_clipboard_text_of_an_agent_is_dropped_unless_the_config_allows_it() -> None:
    put = "printf '\\033]52;c;aGVsbG8=\\007told'"
    script = f"echo begun; read x; {put}; read x; {put}-again; exec cat"
    with inside("/bin/sh", "-c", script) as (home, dashboard):
        dashboard.send(b"\r")
        dashboard.shows("told", "tried to copy")
        assert b"\x1b]52" not in dashboard.seen

        home.paths.config_file.parent.mkdir()
        home.paths.config_file.write_text('[agents.sh]\nprogram = "sh"\nclipboard = true\n')
        dashboard.hides("tried to copy")
        dashboard.send(b"\r")
        dashboard.until(b"\x1b]52;c;aGVsbG8=")
        dashboard.shows("Copied for it")
        is_left_clean(dashboard)
