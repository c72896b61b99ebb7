"""Signals from a pane's output: what the program reports by OSC 7501, else whether it prints. Sans-IO."""

import math
from typing import Final, NamedTuple

from kasmon.model.events import SignalSeen
from kasmon.model.evidence import Signal
from kasmon.model.permission import RequestKind
from kasmon.sanitize import clean_line
from kasmon.tmux.output_scanner import ProgramStatus, StatusScanner

QUIET_S: Final = 2.0
"""An agent that printed nothing for this long is quiet."""
LINE_S: Final = 5.0
"""How often the last line of an agent that keeps printing is read."""
ECHO_S: Final = 0.3
"""Output this soon after typing counts as echo: it does not make the agent `printing`."""
STATE_GAP_S: Final = 0.1
TEXT_GAP_S: Final = 1.0
"""The minimum gap between two forwarded reports of a program: a new state, or only a new text. The newest counts."""
TEXT_LENGTH: Final = 200


class ProgramReport(NamedTuple):
    state: str
    asking: RequestKind | None
    text: str


class OutputMonitor:
    """Derives signals from one agent's output. `now` is monotonic time in seconds, `at` the time of day of the signals.

    Pass all output to `feed`, call `due` at `next_at`, and pass the last line to `handle_line` when `due` requests it.
    Each returns the new signals. While a program reports its own state, no signals about printing are made.
    """

    def __init__(self, now: float, logged: tuple[Signal, ...] = ()) -> None:
        """*logged*: the signals in the log, for an agent that ran before this host."""
        by_source = {signal.source: signal for signal in logged}
        output, program = by_source.get("output"), by_source.get("program")
        self.printed_at = -math.inf
        """When it last printed, except echoes."""
        self._scanner = StatusScanner()
        self._last_report: ProgramReport | None = None
        if program is not None and program.value != "clear":
            self._last_report = ProgramReport(program.value, program.asking, program.text)
        self._pending: ProgramReport | None = None
        self._reported_at = -math.inf
        self._is_printing = output is not None and output.value == "printing"
        self._is_flooding = False
        self._line = output.text if output is not None else ""
        self._line_at = now
        self._is_unread = True
        """Whether something was printed since the last line was read."""
        self._changed_at = now
        self._echo_until = -math.inf

    @property
    def reports_state(self) -> bool:
        return self._last_report is not None

    @property
    def is_asking(self) -> bool:
        """Whether the program reports that it waits for an answer."""
        latest = self._pending or self._last_report
        return latest is not None and latest.state == "blocked"

    def record_typing(self, now: float) -> None:
        self._echo_until = now + ECHO_S

    def feed(self, data: bytes, now: float, at: float) -> list[SignalSeen]:
        signals = [signal for status in self._scanner.feed(data) for signal in self._on_report(status, now, at)]
        self._is_unread, self._changed_at = True, now
        if now >= self._echo_until:
            self.printed_at = now
            signals += self._start_printing(now, at)
        return signals

    def handle_missed_output(self, now: float, at: float) -> list[SignalSeen]:
        """Record that some output was not received: the program's last report may be outdated."""
        self._scanner = StatusScanner()
        self._is_unread, self._changed_at = True, now
        self._pending = None
        return self._emit(ProgramReport("clear", None, ""), now, at) if self.reports_state else []

    def handle_flood(self, is_off: bool, now: float, at: float) -> list[SignalSeen]:
        """Record that tmux output is paused (*is_off*) because the pane floods, or resumed."""
        self._is_flooding = is_off
        self.printed_at = self._changed_at = now
        return self._start_printing(now, at)

    def next_at(self) -> float:
        """Return when to call `due` next; infinity if only new output can change anything."""
        if self._pending is not None:
            return self._reported_at + self._gap(self._pending)
        if self.reports_state or self._is_flooding:
            return math.inf
        quiet_at = self._changed_at + QUIET_S if self._is_printing or self._is_unread else math.inf
        line_at = self._line_at + LINE_S if self._is_printing and self._is_unread else math.inf
        return min(quiet_at, line_at)

    def due(self, now: float, at: float) -> tuple[list[SignalSeen], bool]:
        """Return the signals caused by elapsed time, and whether the last line is needed."""
        if now < self.next_at():
            return [], False
        if self._pending is not None:
            return self._emit(self._pending, now, at), False
        return [], True

    def handle_line(self, line: str, now: float, at: float) -> list[SignalSeen]:
        """Process *line*, the last one on the screen."""
        if self.reports_state:
            return []
        was_printing, before = self._is_printing, self._line
        self._line, self._line_at, self._is_unread = clean_line(line)[:TEXT_LENGTH], now, False
        self._is_printing = was_printing and (self._is_flooding or now - self._changed_at < QUIET_S)
        if self._is_printing == was_printing and self._line == before:
            return []
        value = "printing" if self._is_printing else "quiet"
        return [SignalSeen(at=at, source="output", value=value, text=self._line)]

    def _start_printing(self, now: float, at: float) -> list[SignalSeen]:
        if self._is_printing or self.reports_state:
            return []
        self._is_printing, self._line_at = True, now
        return [SignalSeen(at=at, source="output", value="printing")]

    def _on_report(self, status: ProgramStatus, now: float, at: float) -> list[SignalSeen]:
        asking = RequestKind(status.kind) if status.state == "blocked" and status.kind in set(RequestKind) else None
        report = ProgramReport(status.state, asking, clean_line(status.message)[:TEXT_LENGTH])
        self._pending = None
        if report == self._last_report or (report.state == "clear" and not self.reports_state):
            return []
        if now >= self._reported_at + self._gap(report):
            return self._emit(report, now, at)
        self._pending = report
        return []

    def _gap(self, report: ProgramReport) -> float:
        same = self._last_report is not None and self._last_report[:2] == report[:2]
        return TEXT_GAP_S if same else STATE_GAP_S

    def _emit(self, report: ProgramReport, now: float, at: float) -> list[SignalSeen]:
        self._pending, self._reported_at = None, now
        self._last_report = None if report.state == "clear" else report
        return [SignalSeen(at=at, source="program", value=report.state, asking=report.asking, text=report.text)]
