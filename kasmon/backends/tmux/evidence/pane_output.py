"""Passes one pane's output and silence to `OutputMonitor`, and reads the last line for it."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable

from kasmon.backends.tmux.evidence.output_monitor import OutputMonitor
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.errors import KasmonError
from kasmon.model.events import SignalSeen
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.requests import AnswerLines


class PaneOutput:
    """The output of *pane*; calls *emit* with each signal, from its construction until it is closed."""

    def __init__(
        self,
        output_monitor: OutputMonitor,
        line: ServerConnection,
        pane: str,
        emit: Callable[[SignalSeen], None],
        last_line: Callable[[AnswerLines], str],
    ) -> None:
        """*last_line* returns the text for the session list from the rows of the screen."""
        self.output_monitor = output_monitor
        self._line, self._pane, self._emit, self._last_line = line, pane, emit, last_line
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_capturing = self._is_closed = False
        self._arm()

    def handle_output(self, data: bytes) -> None:
        """Process *data* that the pane printed; empty if output was missed."""
        now, at = self._loop.time(), time.time()
        self._emit_all(
            self.output_monitor.feed(data, now, at) if data else self.output_monitor.handle_missed_output(now, at)
        )

    def handle_flood(self, is_off: bool) -> None:
        """Record that the pane's output is paused (*is_off*) because it floods, or resumed."""
        self._emit_all(self.output_monitor.handle_flood(is_off, self._loop.time(), time.time()))

    def record_typing(self) -> None:
        self.output_monitor.record_typing(self._loop.time())

    def handle_screen(self, rows: AnswerLines) -> None:
        self._emit_all(self.output_monitor.handle_line(self._last_line(rows), self._loop.time(), time.time()))

    def close(self) -> None:
        """Stop the timer. Idempotent."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _emit_all(self, signals: Iterable[SignalSeen]) -> None:
        for signal in signals:
            self._emit(signal)
        self._arm()

    def _arm(self) -> None:
        """Set the timer for the next silence check; a timer that is already set re-arms itself."""
        next_at = self.output_monitor.next_at()
        if self._timer is not None and self._timer.when() > next_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and next_at < math.inf and not self._is_closed:
            self._timer = self._loop.call_at(next_at, self._check_due)

    def _check_due(self) -> None:
        self._timer = None
        signals, wants_line = self.output_monitor.due(self._loop.time(), time.time())
        if not wants_line:
            self._emit_all(signals)
        elif not self._is_capturing:
            self._is_capturing = True
            self._line.submit(ask.capture(self._pane, ansi=False), self._on_captured)

    def _on_captured(self, rows: AnswerLines | KasmonError) -> None:
        self._is_capturing = False
        if not self._is_closed and not isinstance(rows, KasmonError):
            self.handle_screen(rows)
