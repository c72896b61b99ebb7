"""Measures a list of 5,000 rows, 200 of them alive, of which 40 change ten times a second."""

import sys

from kasmon.bench.support.figure import Figure
from kasmon.bench.support.process_cost import family
from kasmon.bench.support.terminal import BenchTerminal, environment, reading, settle

ROWS, ALIVE, CHANGES, RATE_HZ = 5000, 200, 40, 10.0
FLEET = [sys.executable, "-P", "-m", "kasmon.bench.dashboard.moving_fleet"]


def measure_changes(seconds: float) -> Figure:
    """Measure the dashboard's processor time over *seconds*; the same process generates the fleets."""
    terminal = BenchTerminal([*FLEET, str(ROWS), str(ALIVE), str(CHANGES), str(RATE_HZ)], environment({}), 160, 50)
    try:
        terminal.until(b"row-0")
        settle(terminal, 3.0)
        share = reading(terminal, [process.pid for process in family([terminal.pid])], seconds)
    finally:
        terminal.close()
    return Figure(
        name="5,000 rows, 40 changes at 10 Hz",
        value=share,
        unit="% of a core",
        target=6,
        samples=1,
        note="200 alive; making the changed values is part of it",
    )
