"""In focus a terminal shows, cell by cell, what tmux has: real programs, a real dashboard, and a tmux around it all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unicodedata import category

import pytest

from kasmon.model.commands import Mode
from kasmon.tmux.server import TmuxServer
from tests.support.tmux.sync_hub import panes_of
from tests.support.tui.dashboard import Home
from tests.support.tui.outer_tmux import Cell, Outer, Tmux, read
from tests.support.tui.pty_program import program
from tests.support.wait import until

SKINS = frozenset(map(chr, range(0x1F3FB, 0x1F400)))
HALVES = frozenset(map(chr, range(0x1F1E6, 0x1F200)))
"""Of flags."""
LONE = "\u2630"
"""Has one cell in tmux and two everywhere else."""
BAR = "Ctrl+] or F12 list"
LIMIT_S = 100.0


class Inside:
    """A dashboard in whose only session somebody is, and the pane of that session."""

    def __init__(self, home: Home, outer: Outer) -> None:
        self.outer, self._server = outer, TmuxServer(home.paths.tmux_socket)
        [facts] = panes_of(self._server)
        self.pane = facts.pane_id

    def says(self, wanted: str) -> list[int]:
        """The numbers that a format of *wanted* stands for."""
        answer = self._server.run("display-message", "-p", "-t", self.pane, wanted)
        return [int(word) for word in answer.split()]

    @property
    def cells(self) -> list[list[Cell]]:
        """The session's screen, as its own tmux has it."""
        return read(self._server.run("capture-pane", "-p", "-e", "-N", "-t", self.pane), self.says("#{pane_width}")[0])

    @property
    def corner(self) -> tuple[int, int]:
        """Where the session's screen begins on the outer one: column and row."""
        columns, rows = self.says("#{pane_width} #{pane_height}")
        bar = next(y for y, row in enumerate(self.outer.screen.split("\n")) if BAR in row)
        return self.outer.columns - columns, bar - rows

    def differences(self) -> list[str]:
        """Each cell that is shown otherwise than it is; empty where all are the same, colours included."""
        found: list[str] = []
        colours: dict[tuple[str, str, str], set[str]] = {}
        inner, outer, (left, top) = self.cells, self.outer.cells, self.corner
        cursor = self.says("#{cursor_x} #{cursor_y} #{cursor_flag}")
        if top + len(inner) > len(outer) or any(left + len(row) > len(outer[top]) for row in inner):
            return ["it has another size than a moment ago"]
        for y, row in enumerate(inner):
            first = ""
            for x, cell in enumerate(row):
                first = cell.text[:1] or first
                shown = outer[top + y][left + x]
                if cursor == [x, y, 1]:
                    found += (
                        []
                        if ("reverse" in shown.attributes) != ("reverse" in cell.attributes)
                        else [f"no cursor at {x}, {y}"]
                    )
                    continue
                if not alike(cell, shown, first):
                    found.append(f"row {y}, column {x}: {shown} for {cell}")
                dim = cell.background if "dim" in cell.attributes else "not dim"
                colours.setdefault(("text", cell.foreground, dim), set()).add(shown.foreground)
                colours.setdefault(("ground", cell.background, ""), set()).add(shown.background)
        for wanted, seen in colours.items():
            kind, colour, dim = wanted
            exact = (
                {palette(colour)} if colour[:2] in ("2/", "5/") and palette(colour)[0] == "2" else seen
            )  # the first sixteen are the theme's own
            if len(seen) > 1 or (seen != exact and (kind == "ground" or dim == "not dim")):
                found.append(f"{wanted} is shown as {seen}")
        return found

    def is_exact(self) -> None:
        """Wait until there is no difference."""
        try:
            until(lambda: not self.differences(), LIMIT_S)
        except TimeoutError:
            raise AssertionError("\n".join(self.differences()) + "\n" + self.outer.screen) from None


def palette(colour: str) -> str:
    """What `5/208` is in xterm's colours; the first sixteen come as they are."""
    kind, number = colour[:2], int(colour[2:].partition("/")[0])
    if kind == "2/" or number < 16:
        return colour
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return f"2/{grey}/{grey}/{grey}"
    steps = (0, 95, 135, 175, 215, 255)
    cube = number - 16
    return f"2/{steps[cube // 36]}/{steps[cube // 6 % 6]}/{steps[cube % 6]}"


def alike(cell: Cell, shown: Cell, first: str) -> bool:
    """Whether *shown* is what a person should see of *cell*, in whose place *first* stands, unless that has no room."""
    if cell.attributes - {"dim"} != shown.attributes - {"dim"}:
        return False
    seen = shown.text[:1]
    if first in SKINS:
        return not seen.strip()
    if category(first) in ("Mc", "Cf") or first in LONE:
        return seen == "\ufffd"
    return cell.text[:1] == seen or first in HALVES


@contextmanager
def inside(*argv: str, columns: int = 130, rows: int = 40, workdir: str = "/") -> Iterator[Inside]:
    """Somebody is in a session that runs *argv* in *workdir*."""
    with Home() as home:
        home.start("it", mode=Mode.TMUX, agent="", argv=argv, workdir=workdir)
        with Outer(home, columns=columns, rows=rows) as outer:
            outer.shows("it", "tmux")
            outer.send(b"\r")
            outer.shows(BAR)
            yield Inside(home, outer)


@pytest.fixture
def text() -> Iterator[Path]:
    """A text with wide characters, tabs and colours for those who know Python."""
    folder = Path(tempfile.mkdtemp(prefix="kmx-", dir="/tmp"))
    path = folder / "sample.py"
    lines = ["# comment \u26a0\ufe0f 日本語 text", "def f(x: int) -> str:", "\treturn f'{x} \u2014 ok' + '✅'"]
    path.write_text("\n".join([*lines, *(f"x{n} = {n}  # line" for n in range(200))]) + "\n")
    yield path
    shutil.rmtree(folder)


def installed(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def test_every_style_and_every_width_is_shown_as_it_is() -> None:
    with inside(*program("torture")) as it:
        it.outer.shows("end of torture")
        it.is_exact()


def test_vim_is_exact_while_it_is_used_and_through_a_resize(text: Path) -> None:
    looks = "set number cursorline hlsearch termguicolors mouse=a"
    vim = (
        installed("vim"),
        "-N",
        "-u",
        "NONE",
        "-i",
        "NONE",
        "-c",
        "syntax on",
        "-c",
        looks,
        "-c",
        "vsplit",
        str(text),
    )
    with inside(*vim) as it:
        it.outer.shows("x5 = 5")
        it.is_exact()
        it.outer.send(b"/line\r")
        it.outer.send(b"jjv$")
        it.is_exact()
        it.outer.shows("-- VISUAL --")
        it.outer.send(b"\x1b")
        until(lambda: "-- VISUAL --" not in it.outer.screen)
        it.outer.send(b"ihello \xe6\xbc\xa2\x1b[200~pasted\nlines\x1b[201~\x1b")
        it.outer.shows("hello", "pasted")
        it.is_exact()
        it.outer.resize(101, 31)
        until(lambda: it.says("#{pane_width}") != [129])
        it.is_exact()
        it.outer.send(b":echo 'a mouse: ' . getpos('.')[1]\r")
        it.is_exact()


def test_less_is_exact_and_restores_the_screen(text: Path) -> None:
    with inside("/bin/sh", "-c", f"echo before; {installed('less')} -N {text}; echo behind; exec cat") as it:
        it.outer.shows("x5 = 5")
        it.is_exact()
        it.outer.send(b" /x44\r")
        it.outer.shows("x44")
        it.is_exact()
        it.outer.send(b"q")
        it.outer.shows("before", "behind")
        it.is_exact()


def test_a_tmux_in_the_pane_is_exact(text: Path) -> None:
    with Tmux() as inner:
        socket = inner.folder / "in"
        command = f"tmux -u -S {socket} -f /dev/null new-session 'less {text}' ';' split-window -h cat"
        try:
            with inside("/bin/sh", "-c", f"unset TMUX; exec {command}") as it:
                it.outer.shows("[0]", "x5 = 5")
                it.is_exact()
                it.outer.send(b"\x02\x5bword")
                it.is_exact()
        finally:
            Tmux.__call__(inner, "-S", str(socket), "kill-server")


def test_htop_is_exact_once_it_is_still() -> None:
    with inside(installed("htop"), "--delay=600") as it:
        it.outer.shows("F10", "PID")
        it.is_exact()
