"""Measures whether the memory of both kinds of hosts and of the dashboard grows with the number of events."""

import asyncio
import time
from typing import Final

from kasmon.bench.support.figure import Figure
from kasmon.bench.support.fleet import scratch
from kasmon.bench.support.process_cost import held_mb, memory_mb
from kasmon.bench.support.terminal import BenchTerminal, environment, open_dashboard
from kasmon.bench.support.tmux_sessions import program
from kasmon.config import Config
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode
from kasmon.paths import Paths
from kasmon.store.event_log import Cursor, EventLog
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create

EVENTS: Final = 1_000_000
WARM: Final = 100_000
"""The number of events after which memory is measured first: caches and buffers are full then."""
SCRIPT: Final = """\
say Here is a line of text.
tool Bash {"command": "make test"} => 41 passed
tool Read {"path": "src/app.py"} => 214 lines
loop"""
"""Turns without a pause; at one event a second of a real agent's turn, a million are the work of days."""
STALL_S: Final = 60.0
PROCESSES: Final = ("a host", "the tmux host", "the dashboard")
TARGETS_MB: Final = (2.0, 2.0, 8.0)


def measure_memory_growth(events: int = EVENTS, warm: int = WARM) -> list[Figure]:
    """Measure all while a scripted agent writes *events* events, from event *warm* on; the dashboard shows it.

    A terminal prints fifty lines a second meanwhile.

    Raises:
        TimeoutError: if no event is written for `STALL_S`.
    """
    with scratch() as paths:
        new = NewSession(name="endless", agent="scripted", mode=Mode.SDK, workdir="/", prompt=SCRIPT, speed=0)
        printing = NewSession(name="printing", mode=Mode.TMUX, argv=tuple(program("talk", "50")), workdir="/")
        session = asyncio.run(create(paths, Config(), new))
        asyncio.run(create(paths, Config(), printing))
        hosts = [lock_holder(path) for path in (paths.host_lock(session), paths.tmux_host_lock)]
        pids = [pid for pid in hosts if pid]
        with open_dashboard(environment(paths.environment_variables())) as terminal:
            terminal.until(b"endless")
            log = _Counter(paths, session)
            log.wait_for(warm, terminal)
            first = [*map(held_mb, pids), memory_mb(terminal.pid)]
            began = time.monotonic()
            log.wait_for(events, terminal)
            rate_hz = (events - warm) / (time.monotonic() - began)
            last = [*map(held_mb, pids), memory_mb(terminal.pid)]
    return [
        Figure(
            name=f"{what}: growth of its memory from event {warm:,} to {events:,}",
            value=after - before,
            unit="MB",
            target=target,
            samples=1,
            note=f"{before:.1f} MB, then {after:.1f} MB; {rate_hz:.0f} events/s",
        )
        for what, before, after, target in zip(PROCESSES, first, last, TARGETS_MB, strict=True)
    ]


class _Counter:
    """Counts the events of a log as they are written."""

    def __init__(self, paths: Paths, session: str) -> None:
        self._log, self._cursor, self._count = EventLog(paths.log(session)), Cursor(0), 0

    def wait_for(self, count: int, terminal: BenchTerminal) -> None:
        """Read *terminal* until the log has *count* events."""
        moved = time.monotonic()
        while self._count < count:
            terminal.read(0.05)
            for _, cursor in self._log.lines(self._cursor):
                self._count, self._cursor, moved = self._count + 1, cursor, time.monotonic()
            if time.monotonic() > moved + STALL_S:
                raise TimeoutError(f"no event was written for {STALL_S:g} s; {self._count} of {count} were.")
