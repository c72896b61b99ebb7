"""The dashboard in a pane of a tmux of the test's own: a terminal that can be asked, cell by cell, what it shows.

The same reader reads the outer pane and the pane inside, so that the two can be compared. It stands on its own: nothing
of kasmon's is used to say what a captured row means.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from unicodedata import category, east_asian_width

from tests.support.cli.fork_server import KASMON
from tests.support.tui.dashboard import Home
from tests.support.wait import until

LIMIT_S = 100.0
LINE_DRAWING = dict(zip("`afgijklmnopqrstuvwxyz{|}~", "◆▒°±␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·", strict=False)) | {"h": "▒"}
ATTRIBUTES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 5: "blink", 7: "reverse", 8: "conceal", 9: "strike"}
ATTRIBUTES |= {53: "overline"}
ENDED_BY = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 25: ("blink",), 27: ("reverse",)}
ENDED_BY |= {28: ("conceal",), 29: ("strike",), 55: ("overline",)}


class Cell(NamedTuple):
    """One cell as a terminal shows it; the second half of a wide character is empty."""

    text: str = " "
    foreground: str = ""
    background: str = ""
    attributes: frozenset[str] = frozenset()


class CellStyle:
    """The style that the next character has; it goes on from row to row."""

    def __init__(self) -> None:
        self.foreground = self.background = ""
        self.attributes: set[str] = set()

    def change(self, numbers: str) -> None:
        codes = (numbers or "0").split(";")
        while codes:
            code, *details = codes.pop(0).split(":")
            number = int(code or 0)
            if number in (38, 48, 58):
                details = details or [codes.pop(0) for _ in range({"5": 2, "2": 4}[codes[0]])]
                colour = "/".join(part for part in details if part)
                if number == 38:
                    self.foreground = colour
                elif number == 48:
                    self.background = colour
            elif number == 0:
                self.foreground = self.background = ""
                self.attributes = set()
            elif number == 4 and details[:1] == ["0"]:
                self.attributes -= {"underline"}
            elif number in ATTRIBUTES:
                self.attributes |= {ATTRIBUTES[number]}
            elif number == 21:
                self.attributes |= {"underline"}
            elif number in ENDED_BY:
                self.attributes -= set(ENDED_BY[number])
            elif number == 39 or 30 <= number <= 37 or 90 <= number <= 97:
                self.foreground = "" if number == 39 else str(number)
            elif number == 49 or 40 <= number <= 47 or 100 <= number <= 107:
                self.background = "" if number == 49 else str(number - 10)


def read(captured: bytes, columns: int) -> list[list[Cell]]:
    """The cells of what `capture-pane -p -e -N` printed."""
    pen, rows, drawing = CellStyle(), [], False
    for line in captured.decode().removesuffix("\n").split("\n"):
        row: list[Cell] = []
        at = 0
        while at < len(line):
            character = line[at]
            at += 1
            if character == "\x1b":
                end = line.index("m", at)
                pen.change(line[at + 1 : end])
                at = end + 1
            elif character in "\x0e\x0f":
                drawing = character == "\x0e"
            elif not (width := _width(character)) or (not character.isascii() and _last(row).endswith("\u200d")):
                if row:
                    place = next(n for n in range(len(row) - 1, -1, -1) if row[n].text)
                    row[place] = row[place]._replace(text=row[place].text + character)
            else:
                shown = LINE_DRAWING.get(character, character) if drawing else character
                style = (pen.foreground, pen.background, frozenset(pen.attributes))
                row += [Cell(shown, *style)] + [Cell("", *style)] * (width - 1)
        rows.append(row + [Cell()] * (columns - len(row)))
    return rows


def _last(row: list[Cell]) -> str:
    return next((cell.text for cell in reversed(row) if cell.text), "")


def _width(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf") and character != "\xad":
        return 0
    return 2 if east_asian_width(character) in "WF" or "\u4dc0" <= character <= "\u4dff" else 1


class Tmux:
    """A tmux server on a socket of the test's own, killed at the end."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kmo-", dir="/tmp"))
        self.environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": "/"}
        self.environment |= environment or {}

    def __call__(self, *arguments: str) -> bytes:
        argv = ["tmux", "-u", "-S", str(self.folder / "t"), "-f", "/dev/null", *arguments]
        done = subprocess.run(
            argv, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S
        )
        return done.stdout

    def start(self, argv: Sequence[str], columns: int, rows: int, *settings: str) -> None:
        """Run *argv* in the only pane; *settings* are `set-option` lines, each split at blanks."""
        size = ("-x", str(columns), "-y", str(rows))
        self("new-session", "-d", "-s", "_first", "-x", "80", "-y", "24", "--", "cat")
        for setting in ("-g status off", "-g default-terminal tmux-256color", "-ga terminal-overrides *:Tc", *settings):
            self("set-option", *setting.split())
        self("new-session", "-d", "-s", "main", *size, "--", *argv)
        self("kill-session", "-t", "_first")

    def close(self) -> None:
        self("kill-server")
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Outer(Tmux):
    """`kasmon` over the places of *home*, in a pane of *columns* x *rows*."""

    def __init__(self, home: Home, *settings: str, columns: int = 130, rows: int = 40) -> None:
        super().__init__({**home.variables, "COLORTERM": "truecolor"})
        self.columns = columns
        self.start(KASMON, columns, rows, *settings)

    def send(self, data: bytes) -> None:
        """Give *data* to the dashboard's terminal, byte for byte."""
        for at in range(0, len(data), 200):
            self("send-keys", "-t", "main", "-H", *(f"{byte:02x}" for byte in data[at : at + 200]))

    @property
    def cells(self) -> list[list[Cell]]:
        return read(self("capture-pane", "-p", "-e", "-N", "-t", "main"), self.columns)

    def resize(self, columns: int, rows: int) -> None:
        self.columns = columns
        self("resize-window", "-t", "main", "-x", str(columns), "-y", str(rows))

    @property
    def screen(self) -> str:
        return self("capture-pane", "-p", "-t", "main").decode()

    def shows(self, *texts: str) -> str:
        """Wait until all *texts* are there at once."""

        def all_there() -> str:
            seen = self.screen
            return seen if all(text in seen for text in texts) else ""

        try:
            return until(all_there, LIMIT_S)
        except TimeoutError:
            raise AssertionError(f"no {texts}; the screen is:\n{self.screen}") from None
