"""The whole dashboard on a terminal of its own: its raw bytes, what a person sees of them, and keys and clicks."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

from kasmon.paths import Places, places
from tests.tui.ptys import OnTerminal
from tests.waiting import until

KASMON = (sys.executable, "-P", "-m", "kasmon")
UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[[<>=?][0-9;:]*\$?[a-zA-Z]|\x1b\[[0-9;]* q|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""Modes of a newer terminal, which pyte would print."""
KEPT = (b"?25h", b"?25l", b"?7h", b"?7l", b"?1049h", b"?1049l")
LONGEST = 64
"""So many bytes at most does an escape sequence of the dashboard's own take."""


def own_places(home: Path) -> Places:
    """The places of a kasmon that lives in *home* alone, made."""
    for name in ("s", "r", "c"):
        (home / name).mkdir(mode=0o700, exist_ok=True)
    where = places({"HOME": str(home), **xdg(home)})
    where.make()
    return where


def xdg(home: Path) -> dict[str, str]:
    return {
        "XDG_STATE_HOME": str(home / "s"),
        "XDG_RUNTIME_DIR": str(home / "r"),
        "XDG_CONFIG_HOME": str(home / "c"),
    }


class Dashboard(OnTerminal):
    """`kasmon` with the places of *home*, on a terminal of *columns* x *rows*."""

    def __init__(
        self,
        home: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        columns: int = 150,
        rows: int = 40,
        argv: Sequence[str] = KASMON,
    ) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._fed = 0
        variables = {**xdg(home), "COLORTERM": "truecolor", **(environment or {})}
        super().__init__([*argv, *arguments], home, environment=variables, columns=columns, rows=rows)

    @property
    def screen(self) -> str:
        """What a person sees now."""
        seen = self.seen
        ready = len(seen)
        if (begun := seen.rfind(b"\x1b", max(self._fed, ready - LONGEST))) >= 0:
            ready = begun
        piece = UNKNOWN_TO_PYTE.sub(b"", seen[self._fed : ready])
        self._fed = ready
        self._stream.feed(piece)
        return "\n".join(self._screen.display)

    def shows(self, *texts: str, limit_s: float = 20.0) -> str:
        """Wait until all *texts* are on the screen at once; the screen."""
        try:
            return until(lambda: s if all(text in (s := self.screen) for text in texts) else "", limit_s)
        except TimeoutError:
            raise AssertionError(f"{texts} did not come; the screen is:\n{self.screen}\n{self.is_up=}") from None

    def hides(self, text: str, limit_s: float = 20.0) -> None:
        """Wait until *text* is not on the screen."""
        try:
            until(lambda: text not in self.screen, limit_s)
        except TimeoutError:
            raise AssertionError(f"{text!r} stays; the screen is:\n{self.screen}") from None

    def click(self, text: str) -> None:
        """Click on the first place that shows *text*."""
        row, line = next((n, line) for n, line in enumerate(self.screen.split("\n"), 1) if text in line)
        self.click_at(line.index(text) + 1, row)

    def click_at(self, column: int, row: int) -> None:
        """Click on a cell, counted from 1."""
        self.send(f"\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m".encode())

    @property
    def is_up(self) -> bool:
        """Whether the process still runs."""
        if self.pid and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return True
        return False
