"""A kasmon in a folder of its own, and its whole dashboard on a terminal: raw bytes, the screen, keys, clicks."""

import asyncio
import fcntl
import re
import struct
import tempfile
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psutil
import pyte

from kasmon.config import Config
from kasmon.demo.scratch import clear
from kasmon.model.commands import Mode
from kasmon.model.events import Event
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths, user_paths
from kasmon.store.event_log import EventLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create, send
from tests.support.cli.fork_server import KASMON
from tests.support.tui.pty_program import OnTerminal
from tests.support.wait import until

LIMIT_S = 100.0
UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[[<>=?][0-9;:]*\$?[a-zA-Z]|\x1b\[[0-9;]* q|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""What a newer terminal takes and pyte would print: modes, the cursor's and the pointer's shape."""
WHOLE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()].|[^][()\x1b])")
LONGEST_BYTES = 64
"""So long is an escape sequence of the dashboard's own at most."""

FactT = TypeVar("FactT", bound=Event)
Value = TypeVar("Value")


IGNORED = "Wait: the card just changed."
"""What a card says to a key that comes before it is ready."""


def press_on_card(press: Callable[[], None], screen: Callable[[], str], outcome: Callable[[], Value | None]) -> Value:
    """Press a key until its *outcome* is there: again, as a person does, where the card had just changed."""
    press()

    def find() -> Value | None:
        if not (found := outcome()) and IGNORED in (shown := screen()) and "ready" in shown:
            press()
            until(lambda: IGNORED not in screen() or outcome(), LIMIT_S, "the key on the card")
        return found

    return until(find, LIMIT_S, "what the key on the card does")


class Home:
    """One kasmon in a 0700 folder; at the end everything that runs for it is ended, and the folder gone."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="kss-", dir="/tmp"))
        for name in ("s", "r", "c"):
            (self.path / name).mkdir(mode=0o700)
        self.variables = {
            "HOME": str(self.path),
            "XDG_STATE_HOME": str(self.path / "s"),
            "XDG_RUNTIME_DIR": str(self.path / "r"),
            "XDG_CONFIG_HOME": str(self.path / "c"),
        }
        self.paths: Paths = user_paths(self.variables)
        self.paths.make()

    def start(self, name: str, prompt: str = "", **more: Any) -> SessionId:
        """A real session: structured and scripted unless *more* says otherwise."""
        fields: dict[str, Any] = {"agent": "scripted", "mode": Mode.SDK, "workdir": "/", "speed": 0.0, "prompt": prompt}
        return asyncio.run(create(self.paths, Config(), NewSession(name=name, **(fields | more))))

    def prompt(self, session: SessionId, text: str) -> None:
        asyncio.run(send(self.paths, self.session(session), text))

    def session(self, session: SessionId) -> Session:
        """The session as `kasmon ls` would show it."""
        seen = read_fleet(self.paths).get(session)
        assert seen is not None
        return seen

    def facts(self, kind: type[FactT], session: SessionId) -> list[FactT]:
        return [event for event in EventLog(self.paths.log(session)).events() if isinstance(event, kind)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        clear(self.path)


class Dashboard(OnTerminal):
    """`kasmon` over the places of *home*, on a terminal of *columns* x *rows*."""

    def __init__(
        self,
        home: Home,
        *,
        argv: Sequence[str] = KASMON,
        environment: Mapping[str, str] | None = None,
        columns: int = 150,
        rows: int = 40,
    ) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._fed, self._shown = 0, ""
        self._log = home.paths.own_log
        variables = {**home.variables, "COLORTERM": "truecolor", **(environment or {})}
        super().__init__(argv, home.path, environment=variables, columns=columns, rows=rows)

    @property
    def screen(self) -> str:
        """What a person sees now."""
        seen = self.seen  # its reader adds to it meanwhile
        ready = len(seen)
        if (begun := seen.rfind(b"\x1b", max(self._fed, ready - LONGEST_BYTES))) >= 0 and not WHOLE.match(seen, begun):
            ready = begun
        if ready <= self._fed:
            return self._shown
        self._stream.feed(UNKNOWN_TO_PYTE.sub(b"", seen[self._fed : ready]))
        self._fed = ready
        rows, cells = range(self._screen.lines), range(self._screen.columns)
        # not `Screen.display`, which fails where the first half of a wide character was written over
        self._shown = "\n".join("".join(self._screen.buffer[row][cell].data for cell in cells) for row in rows)
        return self._shown

    def shows(self, *texts: str, limit_s: float = LIMIT_S) -> str:
        """Wait until all *texts* are on the screen at once, and return it."""

        def all_there() -> str:
            seen = self.screen
            return seen if all(text in seen for text in texts) else ""

        try:
            return until(all_there, limit_s)
        except TimeoutError:
            log = self._log.read_text()[-4000:] if self._log.exists() else ""
            raise AssertionError(f"no {texts}; {self.is_up=}; the screen is:\n{self.screen}\n{log}") from None

    def hides(self, text: str, limit_s: float = LIMIT_S) -> None:
        """Wait until *text* is not on the screen."""
        try:
            until(lambda: text not in self.screen, limit_s)
        except TimeoutError:
            raise AssertionError(f"{text!r} stays; the screen is:\n{self.screen}") from None

    def type(self, keys: str) -> None:
        """Press *keys*, each after the dashboard has read the one before."""
        for key in keys:
            self.send(key.encode())
            until(lambda: not self.unread)

    @property
    def unread(self) -> int:
        """How many bytes of what was typed the dashboard has not read yet."""
        return int(struct.unpack("i", fcntl.ioctl(self.terminal, termios.FIONREAD, b"\0" * 4))[0])

    def resize(self, columns: int, rows: int) -> None:
        super().resize(columns, rows)
        self._screen.resize(rows, columns)

    def ground(self, column: int, row: int) -> str:
        """The colour behind a cell, counted from 0, as rrggbb."""
        return str(self._screen.buffer[row][column].bg) if self.screen else ""

    def click(self, text: str) -> None:
        """Click on the first place that shows *text*."""
        row, line = next((n, line) for n, line in enumerate(self.screen.split("\n"), 1) if text in line)
        self.click_at(line.index(text) + 1, row)

    def click_at(self, column: int, row: int) -> None:
        """Click on a cell, counted from 1."""
        self.send(f"\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m".encode())

    def quit(self) -> int:
        """Leave it as a person does; the exit code."""
        self.send(b"q")
        return self.ended()

    @property
    def process(self) -> psutil.Process:
        """The dashboard itself, below its guard."""
        [child] = until(lambda: psutil.Process(self.pid).children())
        return child
