"""What a test hears of a hub, and programs that it runs in panes."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kasmon.errors import KasmonError
from kasmon.tmux.control import requests
from tests.support.tmux.sync_hub import SyncHub, end_window

Value = TypeVar("Value")
Ending = tuple[int | None, int | None]


class Listener:
    """A hub whose callbacks are kept, and which is pumped while a test waits."""

    def __init__(self, hub: SyncHub) -> None:
        self.hub = hub
        self.server = hub.server
        self.said: defaultdict[str, bytes] = defaultdict(bytes)
        self.skipped: list[str] = []
        self.deaths: list[tuple[str, int | None, int | None]] = []
        self.closed: list[str] = []
        self.floods: list[tuple[str, bool]] = []
        self.gone = 0
        hub.on_output = self._output
        hub.on_death = lambda *death: self.deaths.append(death)
        hub.on_closed = self.closed.append
        hub.on_flood = lambda pane, is_off: self.floods.append((pane, is_off))
        hub.on_exit = self._gone

    def until(self, condition: Callable[[], Value | None], limit_s: float = 15.0) -> Value:
        """The first true value of *condition*, with the hub pumped and ticked meanwhile."""
        deadline = time.monotonic() + limit_s
        ticked = time.monotonic()
        while not (value := condition()):
            assert time.monotonic() < deadline, f"it did not come true within {limit_s} s"
            self.hub.pump_for(0.01)
            if time.monotonic() - ticked > 0.25:
                ticked = time.monotonic()
                self.hub.tick()
        return value

    def rows(self, pane: str) -> list[str]:
        return [row.decode() for row in self.hub.call(requests.capture(pane, ansi=False)) if row.strip()]

    def until_shown(self, pane: str, text: str) -> list[str]:
        """The rows of *pane*, once *text* is in one of them."""

        def rows() -> list[str]:
            shown = self.rows(pane)
            return shown if any(text in row for row in shown) else []

        return self.until(rows)

    def clear(self) -> None:
        """End every pane, and forget what was heard."""
        for facts in self.hub.panes():
            end_window(self.server, facts.window_id)
        self.hub.watch([])
        self.hub.refresh()
        self.until(lambda: not self.hub.panes())
        self.hub.call(requests.command("display-message -p quiet"))
        for heard in (self.said, self.skipped, self.deaths, self.closed, self.floods):
            heard.clear()

    def hears(self, pane: str) -> str:
        """*pane*, once the hub knows it and hears what it echoes."""

        def echoed() -> bool:
            self.hub.keys(pane, b"~")
            return b"~" in self.said[pane]

        self.until(echoed)
        return pane

    def ending(self, pane: str) -> Ending:
        """Exit code and signal of *pane*, once its death is told."""
        return self.until(lambda: next((death[1:] for death in self.deaths if death[0] == pane), None))

    def _output(self, pane: str, data: bytes) -> None:
        self.said[pane] += data
        if not data:
            self.skipped.append(pane)

    def _gone(self) -> None:
        self.gone += 1


class Kept(list[object]):
    """Collects the one answer of a submitted request."""

    @property
    def answer(self) -> object:
        assert len(self) == 1
        return self[0]

    @property
    def error(self) -> KasmonError:
        assert isinstance(self.answer, KasmonError)
        return self.answer


def python(code: str) -> list[str]:
    """A command that runs *code* at once."""
    return [sys.executable, "-I", "-S", "-c", code]


def recorder(file: Path, prelude: bytes = b"") -> list[str]:
    """A program that prints *prelude*, says `ready`, and writes every byte that it is given into *file*."""
    return python(
        "import os, tty\n"
        "tty.setraw(0)\n"
        f"out = os.open({str(file)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        f"os.write(1, {prelude!r} + b'ready')\n"
        "while data := os.read(0, 65536):\n"
        "    os.write(out, data)\n"
    )
