"""What a real dashboard shows of programs that print nothing: on the board of a plan, and in the list."""

import os
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pytest

from kasmon.model.events import SignalSeen
from kasmon.model.permission import SessionId
from kasmon.paths import write_private
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.support.cli.fork_server import KASMON
from tests.support.tui.dashboard import LIMIT_S, Home
from tests.support.tui.outer_tmux import Outer
from tests.support.wait import until

PLAN = """
limit = 3
[[task]]
id = "idle"
run = "cat never"
[[task]]
id = "busy"
run = "yes > /dev/null"
[[task]]
id = "short"
run = "cat gate"
"""
ESCAPE: Final = b"\x1b"
ROW: Final = re.compile(r"^[ ▌] \S (?P<state>\w+) +(?P<name>\S+) ")


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def run(home: Home, *arguments: str) -> None:
    variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SHELL": "/bin/sh", **home.variables}
    done = subprocess.run(
        [*KASMON, *arguments],
        env=variables,
        cwd=home.path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert 0 == done.returncode, done.stderr


def sources(home: Home, session: SessionId) -> set[tuple[str, str]]:
    """What was ever said of *session*, by its log; nothing before it has one."""
    if not home.paths.log(session).exists():
        return set()
    return {(signal.source, signal.value) for signal in home.facts(SignalSeen, session)}


def cards(board: str) -> dict[str, str]:
    """Card of the board -> the word of state below its head."""
    lines = [line.strip(" │▌") for line in board.splitlines()]
    return {head.split()[1]: state.split()[0] for head, state in pairwise(lines) if state.endswith("· shell")}


def rows(listed: str) -> dict[str, str]:
    """Session of the list -> the word of its state."""
    found = (ROW.match(line) for line in listed.splitlines())
    return {row["name"]: row["state"] for row in found if row is not None}


@pytest.mark.timeout(120)
def test_a_silent_command_works_on_the_board_and_in_the_list_whether_it_waits_or_computes(home: Home) -> None:
    for name in ("gate", "never"):
        os.mkfifo(home.path / name)
    config = home.path / "c" / "kasmon"
    config.mkdir(mode=0o700)
    write_private(config / "config.toml", b"[plans]\nmax_load = 0\n")
    write_private(home.path / "silent.toml", PLAN.encode())
    run(home, "new", "train", "--", "cat", "never")
    run(home, "plan", "run", "silent.toml", "--yes")
    quiet = ("output", "quiet")
    silent = {name: {("process", "command"), quiet} for name in ("silent-W1-T1", "silent-W1-T2")}
    silent["train"] = {("launch", "command")}  # it never printed anything

    def all_silent() -> bool:
        """Whether of each is known that it runs, and that it prints nothing."""
        named = {session.name: session.id for session in read_fleet(home.paths).sessions}
        return all(name in named and known <= sources(home, named[name]) for name, known in silent.items())

    with Outer(home) as outer:
        until(all_silent, LIMIT_S)
        outer.shows("train", "silent-W1-T3")
        outer.send(b"B")
        outer.shows("0/3 done")
        (home.path / "gate").write_text("")
        board = outer.shows("◆ short", "its command ended with 0")  # it drew what the logs had said before that
        outer.send(ESCAPE)
        listed = outer.shows("sessions", "train")

    assert {"idle": "working", "busy": "working", "short": "done?"} == cards(board)
    assert {"train": "working", "silent-W1-T1": "working", "silent-W1-T2": "working"} == {
        name: state for name, state in rows(listed).items() if name in silent
    }
