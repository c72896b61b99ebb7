"""Measures the delay from an event in a log to the screen, and the processor time, for 20 structured sessions."""

import contextlib
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from kasmon.bench.dashboard.bare_textual import READY, following
from kasmon.bench.dashboard.event_writer import EVERY_MESSAGE
from kasmon.bench.support.figure import Figure, percentile, timed
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.process_cost import family
from kasmon.bench.support.terminal import BenchTerminal, environment, open_dashboard, read_for, reading
from kasmon.model.events import Event, TurnEnded, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.event_log import EventLog

SESSIONS, RATE_HZ = 20, 50.0
STAMP = re.compile(rb"T(\d{9,20})T")
STAMP_BYTES = 22
TALKING = [sys.executable, "-P", "-m", "kasmon.bench.dashboard.event_writer"]


def measure_event_to_screen(seconds: float, sessions: int = SESSIONS, rate_hz: float = RATE_HZ) -> list[Figure]:
    """Measure the delay of the selected session's messages, and the dashboard's processor time: *seconds* each."""
    with scratch() as paths, create_sessions(paths, sessions) as ids:
        own = environment(paths.environment_variables())
        with open_dashboard(own) as terminal:
            terminal.until(b"session-0000")
            with talking(ids, rate_hz, own):
                read_for(terminal, 3.0)
                delays = _delays(terminal, seconds)
                share = reading(terminal, [process.pid for process in family([terminal.pid])], seconds)
        with BenchTerminal(following(paths.log(ids[0]), '"text":"T'), own) as bare:
            bare.until(READY)
            with talking(ids, rate_hz, own):
                limits = _delays(bare, seconds)
    seen = f"{len(delays)} of some {seconds * rate_hz / EVERY_MESSAGE:.0f} messages came by"
    return [
        timed(
            f"event to screen, p95, {sessions} at {rate_hz:g} events/s",
            delays,
            50,
            f"p50 {percentile(delays, 0.5):.1f} ms; {seen}; a bare Textual app that does nothing but follow this "
            f"log, in the same run: p50 {percentile(limits, 0.5):.1f} ms, p95 {percentile(limits, 0.95):.1f} ms",
            share=0.95,
        ),
        Figure(
            name=f"{sessions} structured sessions at {rate_hz:g} events/s",
            value=share,
            unit="% of a core",
            target=25,
            samples=1,
            note="the dashboard and its guard, without the program that writes the logs",
        ),
    ]


@contextlib.contextmanager
def talking(ids: Sequence[SessionId], rate_hz: float, own: Mapping[str, str]) -> Iterator[None]:
    """Let a program write *rate_hz* events a second for each of *ids* while the context lasts."""
    talking = subprocess.Popen([*TALKING, str(rate_hz), *ids], env=dict(own))
    try:
        yield
    finally:
        talking.kill()
        talking.wait()


def _delays(terminal: BenchTerminal, seconds: float) -> list[float]:
    """Return the delays in ms of the stamps made within *seconds*, until each first appeared on the terminal.

    Raises:
        TimeoutError: if none appeared.
    """
    delays: dict[int, float] = {}
    began, rest = time.monotonic_ns(), b""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        rest = rest[-STAMP_BYTES:] + terminal.read(0.1)
        now = time.monotonic_ns()
        for stamp in map(int, STAMP.findall(rest)):
            if stamp > began:
                delays.setdefault(stamp, (now - stamp) / 1e6)
    if not delays:
        raise TimeoutError("no message of the selected session came to the screen.")
    return list(delays.values())


COLUMN = 12
"""The width of a state in a row, before the name."""
TARGET_MS = 60.0


def measure_state_to_row(rounds: int, sessions: int = SESSIONS) -> list[Figure]:
    """Measure turns that end and begin again, one session after the other, in *rounds* of a new dashboard each.

    Half of the sessions change their states; the others write `RATE_HZ` events a second each meanwhile.
    """
    first: list[float] = []
    delays: list[float] = []
    for _ in range(rounds):
        each = list(_changes(sessions))
        first.append(each[0])
        delays += each
    note = f"p50 {percentile(delays, 0.5):.1f} ms; from the write in the log to the write on our terminal"
    return [
        timed("state change to row on the screen, p95", delays, TARGET_MS, note, share=0.95),
        timed("the first state change of a dashboard", first, TARGET_MS, "the slowest of them", share=1.0),
    ]


def _changes(sessions: int) -> Iterator[float]:
    """Yield the delays in ms."""
    with scratch() as paths, create_sessions(paths, sessions) as ids:
        own = environment(paths.environment_variables())
        with open_dashboard(own) as terminal:
            terminal.until(b"session-0000")
            with talking(ids[sessions // 2 :], RATE_HZ, own):
                read_for(terminal, 2.0)
                for number, session in enumerate(ids[1 : sessions // 2], 1):
                    yield from change_states(terminal, paths, session, number)


def change_states(terminal: BenchTerminal, paths: Paths, session: SessionId, number: int) -> Iterator[float]:
    """End the turn of a session of *paths* and begin another; yield the delay of each until its row, in ms."""
    log = EventLog(paths.log(session))
    for word in ("finished", "working"):
        now = time.time()
        event: Event = TurnEnded(at=now) if word == "finished" else TurnStarted(at=now, prompt="go on")
        began = time.perf_counter()
        log.append(event)
        shown_at = terminal.until(f"{word:{COLUMN}}session-{number:04d}".encode())
        yield 1000 * (shown_at - began)
        read_for(terminal, random.uniform(0.15, 0.35))
