"""Measures the cost of a fleet of 200 terminals, 20 of them working, and the delay of their output on the screen."""

import re
import time
from collections.abc import Sequence

from kasmon.bench.support.figure import Figure, percentile, timed
from kasmon.bench.support.fleet import scratch, session_id
from kasmon.bench.support.process_cost import family, share_of_a_core
from kasmon.bench.support.terminal import BenchTerminal, environment, open_dashboard, read_for, reading
from kasmon.bench.support.tmux_sessions import below, program, terminals
from kasmon.tmux.server import TmuxServer

FLEET = 200
BUSY = 20
STAMP = re.compile(rb"T(\d{9,20})T")
IDLE = ("cat",)
SETTLE_S = 2.0


def measure_busy_fleet(seconds: float) -> list[Figure]:
    """Measure 200 sessions: 20 print ten lines a second; one of them, in the preview, puts timestamps in its lines."""
    programs = [("a-stamped", program("talk", "10", "stamp"))]
    programs += [(f"busy-{n:03d}", program("talk", "10")) for n in range(1, BUSY)]
    programs += [(f"idle-{n:03d}", list(IDLE)) for n in range(FLEET - BUSY)]
    with terminals(programs) as (paths, _), open_dashboard(environment(paths.environment_variables())) as terminal:
        terminal.until(b"idle-0")  # working sessions are listed below sessions of uncertain state
        read_for(terminal, 4.0)
        terminal.press(b"/a-stamped\r")
        read_for(terminal, 2.0)
        pids = [*(process.pid for process in family([terminal.pid])), *below(paths)]
        delays = _delays(terminal, seconds)
        terminal.press(b"/\x1b")
        read_for(terminal, 1.0)
        share = reading(terminal, pids, seconds)
    note = f"p50 {percentile(delays, 0.5):.1f} ms; from the write in the pane to the write on our terminal"
    alone = _alone([argv for _, argv in programs], seconds)
    return [
        timed("output to preview, p95", delays, 50, note, share=0.95),
        Figure(
            name="20 busy of 200",
            value=share,
            unit="% of a core",
            target=12,
            samples=1,
            note="ten lines a second each; dashboard, tmux host and tmux server together",
        ),
        Figure(name="the same panes in a tmux without a client", value=alone, unit="% of a core", samples=1),
    ]


def _alone(commands: Sequence[Sequence[str]], seconds: float) -> float:
    """Return the share of a core of a tmux server with our config that runs *commands* without any client."""
    with scratch() as paths:
        server = TmuxServer(paths.tmux_socket)
        pid = server.start()
        for number, argv in enumerate(commands):
            server.create(session_id(number), argv)
        time.sleep(SETTLE_S)
        return share_of_a_core([pid], seconds)


def _delays(terminal: BenchTerminal, seconds: float) -> list[float]:
    delays: list[float] = []
    seen: set[bytes] = set()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        data = terminal.read(0.1)
        now = time.monotonic_ns()
        new = [stamp for stamp in STAMP.findall(data) if stamp not in seen]
        seen.update(new)
        if new:
            delays.append((now - max(int(stamp) for stamp in new)) / 1e6)
    return delays
