"""Every kind of input through the real dashboard into a program that writes down each byte it gets."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kasmon.model.commands import Mode
from tests.support.cli.fork_server import KASMON
from tests.support.tui.dashboard import Dashboard, Home
from tests.support.tui.inputs import ALL, MOUSE
from tests.support.tui.outer_tmux import Tmux
from tests.support.tui.pty_program import OnTerminal, program
from tests.support.wait import until

BAR = b"F12 list"
LEFT, TOP = 1, 2
"""Where a session's screen begins in the dashboard, counted from 0."""
MARK = b"|"
LIMIT_S = 100.0


class Recorded:
    """A terminal in whose focus a recorder runs."""

    def __init__(self, terminal: OnTerminal, path: Path) -> None:
        self.terminal, self._path = terminal, path
        self._at = 0

    @property
    def got(self) -> bytes:
        return self._path.read_bytes() if self._path.exists() else b""

    def of(self, sent: bytes) -> bytes:
        """What the program got of *sent*, which has all arrived once a mark behind it has."""
        before = len(self.got)
        self.terminal.send(sent)
        if sent.endswith(b"\x1b") or sent in (b"\x1b[", b"\x1bO"):  # a beginning: the dashboard waits for its rest
            until(lambda: len(self.got) >= before + len(sent), LIMIT_S, f"{sent!r} as the beginning of a key")
        self.terminal.send(MARK)
        until(lambda: self.got.endswith(MARK) and len(self.got) > before, LIMIT_S, f"what became of {sent!r}")
        return self.got[before:-1]


@contextmanager
def recorded(*asks: str) -> Iterator[Recorded]:
    """A recorder in focus, in a dashboard on a bare terminal."""
    with Home() as home:
        path = home.path / "typed"
        home.start("it", mode=Mode.TMUX, agent="", argv=tuple(program("recorder", str(path), *asks)))
        with Dashboard(home, columns=100, rows=30) as dashboard:
            dashboard.shows("it records")
            dashboard.send(b"\r")
            dashboard.until(BAR)
            until(lambda: "it records" in dashboard.screen)
            yield Recorded(dashboard, path)


def moved(report: str) -> bytes:
    """*report* of the cell on the outer terminal that stands for the program's own."""

    def place(match: re.Match[str]) -> str:
        return f"<{match[1]};{int(match[2]) + LEFT};{int(match[3]) + TOP}"

    return re.sub(r"<(\d+);(\d+);(\d+)", place, report).encode()


def test_in_a_tmux_all_input_arrives_that_tmux_passes_on() -> None:
    assert 80 <= len(ALL) + len(MOUSE)
    with recorded() as it:
        wrong = {name: got for name, (sent, wanted) in ALL.items() if (got := it.of(sent.encode())) != wanted.encode()}

        assert {} == wrong


def test_the_mouse_arrives_in_the_programs_own_cells() -> None:
    with recorded("mouse") as it:
        wanted = MOUSE["moved"].encode()  # before the terminal has the pane's size, the report is of another cell
        until(lambda: it.of(moved(MOUSE["moved"])) == wanted, LIMIT_S, "the program's wish for the mouse")
        wrong = {name: got for name, report in MOUSE.items() if (got := it.of(moved(report))) != report.encode()}

        assert {} == wrong


@contextmanager
def recorded_in_tmux() -> Iterator[Recorded]:
    """Likewise, with a tmux between the terminal and the dashboard."""
    with Home() as home, Tmux(home.variables) as tmux:
        path = home.path / "typed"
        home.start("it", mode=Mode.TMUX, agent="", argv=tuple(program("recorder", str(path))))
        tmux.start(KASMON, 100, 30, "-s escape-time 200", "-s extended-keys on", "-g prefix None")
        argv = ["/usr/bin/env", "tmux", "-u", "-S", str(tmux.folder / "t"), "attach", "-t", "main"]
        with OnTerminal(argv, home.path, columns=100, rows=30) as terminal:
            terminal.until(b"it records")
            terminal.send(b"\r")
            terminal.until(BAR)
            yield Recorded(terminal, path)


CHANGED_BY_TMUX = {
    "up in application mode": "\x1b[A",  # it writes arrows in the mode of its own pane; kasmon, in the program's
    "super+up": "\x1b[1;3A",  # it knows no Super, and takes it for Alt
    "super+a in kitty's form": "\x1ba",
    "hyper+a in kitty's form": "a",  # nor Hyper
    "keypad enter": "\n",  # the keypad's keys are those of the main board, and its Enter a line feed
    "keypad 5": "5",
    "shift+enter in xterm's form": "\x1b[13;2u",  # it knows the key, and writes it in its own form
    "ctrl+e acute in kitty's form": "",  # it knows no key of this name
}
"""What cannot pass a tmux 3.3a around the dashboard: it reads keys and writes them anew."""


def test_in_a_tmux_everything_arrives_that_tmux_itself_hands_on() -> None:
    with recorded_in_tmux() as it:
        wanted = {name: CHANGED_BY_TMUX.get(name, wanted) for name, (_, wanted) in ALL.items()}
        wrong = {name: got for name, (sent, _) in ALL.items() if (got := it.of(sent.encode())) != wanted[name].encode()}

        assert {} == wrong
