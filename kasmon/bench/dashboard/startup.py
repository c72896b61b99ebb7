"""Measures the time until output appears: the dashboard's first frame, and `kasmon ls`."""

import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial

from kasmon.bench.support.figure import Figure, ratio, run_in_turn
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.process_cost import memory_mb, run_ms
from kasmon.bench.support.terminal import KASMON, BenchTerminal, environment
from kasmon.bench.support.tmux_sessions import terminals
from kasmon.paths import Paths
from kasmon.store.fleet_cache import load_cache
from kasmon.store.fleet_index import FleetIndex

WARM_S = 30.0
IDLE = ("cat",)
BARE_PYTHON = [sys.executable, "-P", "-c", "print('ready')"]
BARE_TEXTUAL = [
    sys.executable,
    "-P",
    "-c",
    "from textual.app import App\n"
    "from textual.widgets import Static\n"
    "class Bare(App):\n"
    "    def compose(self): yield Static('bare-and-ready')\n"
    "Bare().run()\n",
]

TEXTUAL_TABLE = [
    sys.executable,
    "-P",
    "-c",
    "from textual.app import App\n"
    "from textual.widgets import DataTable\n"
    "class Table(App):\n"
    "    def compose(self): yield DataTable()\n"
    "    def on_mount(self):\n"
    "        table = self.query_one(DataTable)\n"
    "        table.add_columns('state', 'name', 'agent', 'age')\n"
    "        for n in range(10): table.add_row('idle', f'row-{n}', 'cat', '1 s')\n"
    "Table().run()\n",
]


def measure_first_frame(rounds: int) -> list[Figure]:
    """Measure from spawn to a live list on the screen: 20 structured sessions, then 10 terminals.

    The limit is a bare Textual app's only line, and a Textual app with a table of ten rows.
    """
    with scratch() as paths, create_sessions(paths, 20):
        own = environment(paths.environment_variables())
        structured = _first_frames(rounds, own, b"session-0019", BARE_TEXTUAL, b"bare-and-ready")
    with terminals([(f"terminal-{number}", IDLE) for number in range(10)]) as (paths, _):
        own = environment(paths.environment_variables())
        terminal = _first_frames(rounds, own, b"terminal-9", TEXTUAL_TABLE, b"row-9")
    return [
        ratio("first frame, live list of 20", *structured, "bare Textual", 1.5),
        ratio("first frame, 10 terminals", *terminal, "Textual with a table of 10", 1.35),
    ]


def _first_frames(
    rounds: int, own: dict[str, str], row: bytes, other: Sequence[str], text: bytes
) -> tuple[list[float], list[float]]:
    """Return the times until the dashboard shows *row*, and until the app *other* shows *text*, in turn, in ms."""
    shown = run_in_turn(rounds, partial(until_shown, other, own, text), partial(until_shown, KASMON, own, row))
    return shown[1], shown[0]


def measure_ls(rounds: int, rows: int = 200) -> Figure:
    """Measure `kasmon ls` of 200 live sessions, with the index that a dashboard leaves, against bare Python."""
    with scratch() as paths, create_sessions(paths, rows):
        own = environment(paths.environment_variables())
        warm(paths, own)
        limits, values = run_in_turn(
            rounds, *(partial(run_ms, argv, own, check=True) for argv in (BARE_PYTHON, [*KASMON, "ls"]))
        )
        return ratio(f"kasmon ls, {rows} sessions", values, limits, "bare Python", 10)


def measure_memory(rounds: int) -> Figure:
    """Measure the dashboard's memory with 200 sessions, against a bare Textual app's."""
    with scratch() as paths, create_sessions(paths, 200):
        own = environment(paths.environment_variables())
        limits, values = run_in_turn(
            rounds, partial(_weigh, BARE_TEXTUAL, own, b"bare-and-ready"), partial(_weigh, KASMON, own, b"session-00")
        )
    value, limit = statistics.median(values), statistics.median(limits)
    return Figure(
        name="memory with 200 sessions",
        value=value,
        unit="MB",
        target=1.6,
        limit=limit,
        limit_name="bare Textual",
        samples=rounds,
        note="proportional set size; the guard process included",
    )


def warm(paths: Paths, own: dict[str, str]) -> None:
    """Run a dashboard until it has written the index, which it does after a few seconds.

    Raises:
        TimeoutError: if it does not.
    """
    deadline = time.monotonic() + WARM_S
    with BenchTerminal(KASMON, own) as terminal:
        while not load_cache(paths.index, FleetIndex(paths)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the dashboard wrote no index within {WARM_S:g} s.")
            terminal.read(0.05)


def until_shown(argv: Sequence[str], own: dict[str, str], text: bytes) -> float:
    """Return the time from the start of *argv* to *text* on its terminal, in ms."""
    with BenchTerminal(argv, own, columns=160, rows=50) as terminal:
        return 1000 * (terminal.until(text) - terminal.started_at)


def _weigh(argv: Sequence[str], own: dict[str, str], text: bytes) -> float:
    with BenchTerminal(argv, own, columns=160, rows=50) as terminal:
        terminal.until(text)
        terminal.drain(1.0, 5.0)
        return memory_mb(terminal.pid)
