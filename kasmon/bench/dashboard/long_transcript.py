"""Measures the time until the last page of a session with a hundred thousand events is shown."""

import itertools
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kasmon.bench.dashboard.startup import BARE_TEXTUAL, until_shown, warm
from kasmon.bench.support.figure import Figure, ratio, run_in_turn
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.terminal import KASMON, environment, open_dashboard, read_for
from kasmon.model.events import Event, MessageWritten, ToolFinished, ToolStarted, TurnEnded, TurnStarted, encode
from kasmon.paths import write_private

EVENTS = 100_000
LAST = "the-last-page-of-all"
"""This text is in the last message, but not in its last line, which the list shows."""


def measure_last_page(rounds: int, events: int = EVENTS) -> list[Figure]:
    """Measure from the key that selects the session to its last page, and from the dashboard's start; index warm."""
    with scratch() as paths, create_sessions(paths, 2) as (_, long):
        lengthen(paths.log(long), events)
        own = environment(paths.environment_variables())
        warm(paths, own)
        selected = [_measure_selection(own) for _ in range(rounds)]
    with scratch() as paths, create_sessions(paths, 1) as (long,):
        lengthen(paths.log(long), events)
        own = environment(paths.environment_variables())
        warm(paths, own)
        shown = ((BARE_TEXTUAL, b"bare-and-ready"), (KASMON, LAST.encode()))
        bare, opened = run_in_turn(rounds, *(partial(until_shown, argv, own, text) for argv, text in shown))
    value = statistics.median(selected)
    return [
        Figure(
            name=f"{events:,} events, to the last page",
            value=value,
            unit="ms",
            target=300,
            samples=rounds,
            note="from the key that selects the session; the dashboard runs, and has not read the session's log yet",
        ),
        ratio(f"{events:,} events, start to the last page", opened, bare, "bare Textual", None),
    ]


def _measure_selection(own: dict[str, str]) -> float:
    """Return the time from the key to the last page of the second session, in ms."""
    with open_dashboard(own) as terminal:
        terminal.until(b"session-0001")
        read_for(terminal, 1.5)
        return terminal.press_until(b"j", LAST.encode())


def lengthen(log: Path, events: int) -> None:
    """Add *events* events to *log*, all at once: no process follows it yet."""
    lines = (encode(event) + b"\n" for event in itertools.chain(itertools.islice(_story(), events - 2), _end()))
    write_private(log, log.read_bytes() + b"".join(lines))


def _story() -> Iterator[Event]:
    now = time.time()
    for turn in itertools.count():
        yield TurnEnded(at=now)
        yield TurnStarted(at=now, prompt=f"Do part {turn}.")
        for step in range(6):
            call = f"call-{turn}-{step}"
            yield ToolStarted(
                at=now, call=call, tool="Bash", title=f"make part-{turn}-{step}", input='{"command":"make"}'
            )
            yield ToolFinished(at=now, call=call, output=f"part {turn}: compiled\npart {turn}: linked\n" * (step + 1))
            yield MessageWritten(at=now, text=f"Step **{step}** of part {turn} is done; `make part-{turn}` says so.")


def _end() -> Iterator[Event]:
    now = time.time()
    yield TurnStarted(at=now, prompt="Finish.")
    yield MessageWritten(at=now, text=f"This is {LAST}.\n\nThere is nothing more.")
