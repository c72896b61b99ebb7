"""Measures the delay of events on the screen and the processor time, for 20 structured sessions at 50 events/s."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from kasmon.bench.dashboard.bare_textual import READY, following
from kasmon.bench.dashboard.event_writer import EVERY_MESSAGE
from kasmon.bench.dashboard.startup import KASMON
from kasmon.bench.support.figure import Figure, percentile
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.process_cost import family
from kasmon.bench.support.terminal import BenchTerminal, environment, read_for, reading
from kasmon.model.permission import SessionId

SESSIONS, RATE_HZ = 20, 50.0
STAMP = re.compile(rb"T(\d{9,20})T")
STAMP_BYTES = 22
TALKING = [sys.executable, "-P", "-m", "kasmon.bench.dashboard.event_writer"]


def measure_event_to_screen(seconds: float, sessions: int = SESSIONS, rate_hz: float = RATE_HZ) -> list[Figure]:
    """Measure the delay of the selected session's messages, and the dashboard's processor time: *seconds* each."""
    with scratch() as paths, create_sessions(paths, sessions) as ids:
        own = environment(paths.environment_variables())
        terminal = BenchTerminal(KASMON, own, columns=160, rows=50)
        try:
            terminal.until(b"session-0000")
            with talking(ids, rate_hz, own):
                read_for(terminal, 3.0)
                delays = _delays(terminal, seconds)
                share = reading(terminal, [process.pid for process in family([terminal.pid])], seconds)
        finally:
            terminal.close()
        bare = BenchTerminal(following(paths.log(ids[0]), '"text":"T'), own)
        try:
            bare.until(READY)
            with talking(ids, rate_hz, own):
                limits = _delays(bare, seconds)
        finally:
            bare.close()
    seen = f"{len(delays)} of some {seconds * rate_hz / EVERY_MESSAGE:.0f} messages came by"
    return [
        Figure(
            name=f"event to screen, p95, {sessions} at {rate_hz:g} events/s",
            value=percentile(delays, 0.95),
            unit="ms",
            target=50,
            samples=len(delays),
            note=f"p50 {percentile(delays, 0.5):.1f} ms; {seen}; a bare Textual app that does nothing but follow this "
            f"log, in the same run: p50 {percentile(limits, 0.5):.1f} ms, p95 {percentile(limits, 0.95):.1f} ms",
        ),
        Figure(
            name=f"{sessions} structured sessions at {rate_hz:g} events/s",
            value=share,
            unit="% of a core",
            target=25,
            samples=1,
            note="the dashboard and its guard; whoever writes the logs is left out",
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
