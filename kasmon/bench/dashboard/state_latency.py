"""Measures the delay from a state change in a session's log to its row on the terminal, the first changes included.

Half of the sessions change their states; the others work, and write events meanwhile.
"""

import random
import time
from collections.abc import Iterator

from kasmon.bench.dashboard.event_latency import talking
from kasmon.bench.dashboard.startup import KASMON
from kasmon.bench.support.figure import Figure, percentile
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.terminal import BenchTerminal, environment, read_for
from kasmon.model.events import Event, TurnEnded, TurnStarted
from kasmon.store.event_log import EventLog

SESSIONS = 20
RATE_HZ = 5.0
"""The events per second of each session that works."""
COLUMN = 12
"""The width of a state in a row, before the name."""
TARGET_MS = 60.0


def measure_state_to_row(rounds: int, sessions: int = SESSIONS) -> list[Figure]:
    """Measure turns that end and begin again, one session after the other, in *rounds* of a new dashboard each."""
    first: list[float] = []
    delays: list[float] = []
    for _ in range(rounds):
        each = list(_changes(sessions))
        first.append(each[0])
        delays += each
    return [
        Figure(
            name="state change to row on the screen, p95",
            value=percentile(delays, 0.95),
            unit="ms",
            target=TARGET_MS,
            samples=len(delays),
            note=f"p50 {percentile(delays, 0.5):.1f} ms; from the write in the log to the write on our terminal",
        ),
        Figure(
            name="the first state change of a dashboard",
            value=max(first),
            unit="ms",
            target=TARGET_MS,
            samples=len(first),
            note="the slowest of them",
        ),
    ]


def _changes(sessions: int) -> Iterator[float]:
    """Yield the delays in ms."""
    with scratch() as paths, create_sessions(paths, sessions) as ids:
        own = environment(paths.environment_variables())
        terminal = BenchTerminal(KASMON, own, columns=160, rows=50)
        try:
            terminal.until(b"session-0000")
            with talking(ids[sessions // 2 :], RATE_HZ, own):
                read_for(terminal, 2.0)
                for number, session in enumerate(ids[1 : sessions // 2], 1):
                    log = EventLog(paths.log(session))
                    for word in ("finished", "working"):
                        now = time.time()
                        event: Event = TurnEnded(at=now) if word == "finished" else TurnStarted(at=now, prompt="go on")
                        began = time.perf_counter()
                        log.append(event)
                        shown_at = terminal.until(f"{word:{COLUMN}}session-{number:04d}".encode())
                        yield 1000 * (shown_at - began)
                        read_for(terminal, random.uniform(0.15, 0.35))
        finally:
            terminal.close()
