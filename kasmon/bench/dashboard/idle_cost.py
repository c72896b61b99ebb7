"""Measures the cost of idle fleets of 10, 50, 200 and 1,000 sessions, and the bytes written to the terminal.

In fleets of up to 50, every second session is structured, with its own host and agent; larger fleets are all terminals.
"""

import asyncio
import threading
from statistics import median

import psutil

from kasmon.bench.dashboard.startup import KASMON
from kasmon.bench.support.figure import Figure
from kasmon.bench.support.process_cost import family, share_of_a_core
from kasmon.bench.support.terminal import BenchTerminal, environment, read_for
from kasmon.bench.support.tmux_sessions import below, terminals
from kasmon.config import Config
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode
from kasmon.paths import Paths
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create

IDLE = ("cat",)
SETTLE_S = 65.0
"""For the first minute a row shows the idle time in seconds; after that the row does not change."""
DASHBOARD_OF_50 = 1.0
"""The target for the dashboard with 50 idle sessions, in percent of a core."""
ALL_OF_200 = 1.5
"""The target for all processes with 200 idle sessions."""
MIXED = 50
WINDOWS = 3
"""How many windows are measured: what happens once a minute (ages change, the index is read) is in one of them."""
COLUMNS, ROWS = 120, 40


def measure_idle_fleet(count: int, seconds: float) -> list[Figure]:
    """Measure the dashboard, its helpers and its terminal over *seconds*, three times, with *count* idle sessions."""
    structured = count // 2 if count <= MIXED else 0
    with terminals([(f"idle-{number:04d}", IDLE) for number in range(count - structured)]) as (paths, _):
        hosts = asyncio.run(_structured(paths, structured))
        terminal = BenchTerminal(KASMON, environment(paths.environment_variables()), columns=COLUMNS, rows=ROWS)
        try:
            terminal.until(b"idle-00")
            read_for(terminal, SETTLE_S)
            own = [process.pid for process in family([terminal.pid])]
            helpers = [*below(paths), *hosts]
            seen = [_observed(terminal, own, helpers, seconds) for _ in range(WINDOWS)]
        finally:
            terminal.close()
    return [
        Figure(
            name=f"{count:,} sessions at rest, all processes",
            value=median(dashboard + others for dashboard, others, _ in seen),
            unit="% of a core",
            target=ALL_OF_200 if count == 200 else None,
            samples=WINDOWS,
            note=f"{structured} of them structured, with a host and an agent each" if structured else "all in tmux",
        ),
        Figure(
            name=f"the dashboard with {count:,} sessions at rest",
            value=median(dashboard for dashboard, _, _ in seen),
            unit="% of a core",
            target=DASHBOARD_OF_50 if count == 50 else None,
            samples=WINDOWS,
        ),
        Figure(
            name=f"written to the terminal with {count:,} sessions at rest",
            value=median(written for _, _, written in seen) / seconds,
            unit="bytes/s",
            target=0.0,
            samples=WINDOWS,
            note=f"{max(written for _, _, written in seen):,} bytes in the window in which most was written",
        ),
    ]


async def _structured(paths: Paths, count: int) -> list[int]:
    """Start *count* structured sessions without prompts; return the pids of their hosts and agents."""
    hosts = []
    for number in range(count):
        wanted = NewSession(name=f"sdk-{number:04d}", agent="scripted", mode=Mode.SDK, workdir="/")
        hosts.append(lock_holder(paths.host_lock(await create(paths, Config(), wanted))) or 0)
    return [process.pid for process in family([pid for pid in hosts if pid])]


def _observed(terminal: BenchTerminal, own: list[int], helpers: list[int], seconds: float) -> tuple[float, float, int]:
    """Return the use of *own* and of *helpers* in percent of a core, and the bytes written to *terminal* meanwhile."""
    written, ended = 0, threading.Event()

    def read() -> None:
        nonlocal written
        while not ended.is_set():
            written += len(terminal.read(0.05))

    before = _spent(helpers)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        dashboard = share_of_a_core(own, seconds)
    finally:
        ended.set()
        reader.join()
    return dashboard, 100.0 * (_spent(helpers) - before) / seconds, written


def _spent(pids: list[int]) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)
