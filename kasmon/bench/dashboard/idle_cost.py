"""Measures the cost of idle fleets of 10, 50, 200 and 1,000 sessions, and the bytes written to the terminal.

In fleets of up to 200, every second session is structured, with its own host and agent; larger fleets are all
terminals. All fleets rest at the same time, so that the wait for their rest counts once.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import psutil

from kasmon.bench.support.figure import Figure
from kasmon.bench.support.process_cost import family
from kasmon.bench.support.terminal import KASMON, BenchTerminal, environment, read_for, reading
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
TARGETS = {200: 1.5, 1000: 1.2}
"""The targets for all processes, by the number of idle sessions."""
MIXED = 200
WINDOWS = 3
"""How many windows are measured: what happens once a minute (ages change, the index is read) is in one of them."""
COLUMNS, ROWS = 120, 40


def measure_idle_fleets(counts: Sequence[int], seconds: float) -> list[Figure]:
    """Measure the dashboard, its helpers and its terminal over *seconds*, three times, for each of *counts* at once."""
    with contextlib.ExitStack() as stack:
        fleets = {count: stack.enter_context(_idle_fleet(count)) for count in counts}
        settling = [threading.Thread(target=read_for, args=(fleet.terminal, SETTLE_S)) for fleet in fleets.values()]
        _join(settling)
        windows: dict[int, list[tuple[float, float, int]]] = {count: [] for count in counts}
        for _ in range(WINDOWS):
            _join(
                [threading.Thread(target=_observe, args=(fleets[count], seconds, windows[count])) for count in counts]
            )
        structured = {count: fleet.structured for count, fleet in fleets.items()}
    return [figure for count in counts for figure in _figures(count, structured[count], windows[count], seconds)]


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class IdleFleet(NamedTuple):
    terminal: BenchTerminal
    own: list[int]
    """The pids of the dashboard and its guard."""
    helpers: list[int]
    """The pids of the hosts, of agents with a host of their own, and of the tmux server."""
    structured: int


@contextlib.contextmanager
def _idle_fleet(count: int) -> Iterator[IdleFleet]:
    structured = count // 2 if count <= MIXED else 0
    with terminals([(f"idle-{number:04d}", IDLE) for number in range(count - structured)]) as (paths, _):
        hosts = asyncio.run(_start_structured(paths, structured))
        with BenchTerminal(KASMON, environment(paths.environment_variables()), columns=COLUMNS, rows=ROWS) as terminal:
            terminal.until(f"{count} sessions".encode())
            own = [process.pid for process in family([terminal.pid])]
            yield IdleFleet(terminal, own, [*below(paths), *hosts], structured)


def _figures(count: int, structured: int, seen: Sequence[tuple[float, float, int]], seconds: float) -> list[Figure]:
    return [
        Figure(
            name=f"{count:,} sessions at rest, all processes",
            value=median(dashboard + others for dashboard, others, _ in seen),
            unit="% of a core",
            target=TARGETS.get(count),
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


async def _start_structured(paths: Paths, count: int) -> list[int]:
    """Start *count* structured sessions without prompts; return the pids of their hosts and agents."""
    hosts = []
    for number in range(count):
        wanted = NewSession(name=f"sdk-{number:04d}", agent="scripted", mode=Mode.SDK, workdir="/")
        hosts.append(lock_holder(paths.host_lock(await create(paths, Config(), wanted))) or 0)
    return [process.pid for process in family([pid for pid in hosts if pid])]


def _observe(fleet: IdleFleet, seconds: float, windows: list[tuple[float, float, int]]) -> None:
    """Add to *windows*: the use of the dashboard and of its helpers in percent of a core, and the bytes written."""
    before, written = _spent_s(fleet.helpers), fleet.terminal.printed_bytes
    dashboard = reading(fleet.terminal, fleet.own, seconds)
    spent_s = _spent_s(fleet.helpers) - before
    windows.append((dashboard, 100.0 * spent_s / seconds, fleet.terminal.printed_bytes - written))


def _spent_s(pids: Sequence[int]) -> float:
    """Return the time of *pids*. Raises `psutil.NoSuchProcess` if one is gone: the figure would be too low."""
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)
