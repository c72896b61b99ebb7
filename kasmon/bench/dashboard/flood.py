"""Measures the effect of a pane with endless output on the dashboard that shows it."""

import sys
import time

from kasmon.bench.support.figure import Figure
from kasmon.bench.support.terminal import BenchTerminal, environment
from kasmon.bench.support.tmux_sessions import terminals

LAG = [sys.executable, "-P", "-m", "kasmon.bench.dashboard.loop_lag"]


def measure_stall(seconds: float) -> Figure:
    """Measure the longest stall of the dashboard's event loop in *seconds*, with `yes` running in the preview."""
    with terminals([("flood", ["yes", "a line of a flood that never ends"])]) as (paths, _):
        file = paths.state / "lag"
        terminal = BenchTerminal([*LAG, str(file)], environment(paths.environment_variables()), 160, 50)
        try:
            terminal.until(b"a line of a flood")
            until = time.monotonic() + seconds + 2.0
            while time.monotonic() < until:
                terminal.read(0.05)
            lags = [float(line) for line in file.read_text().splitlines()][1:]
        finally:
            terminal.close()
    worst = max(lags)
    return Figure(
        name="longest stall under a `yes` flood",
        value=worst,
        unit="ms",
        target=100,
        samples=len(lags),
        note="the longest turn of the screen's loop, its first second left out",
    )
