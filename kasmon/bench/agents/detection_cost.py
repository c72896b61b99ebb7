"""Measures the cost and the delay of detecting the state of agents in terminals."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from kasmon.bench.support.figure import Figure, percentile, timed
from kasmon.bench.support.fleet import scratch
from kasmon.bench.support.process_cost import share_of_a_core
from kasmon.bench.support.tmux_sessions import agent_program, below, terminals
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.supervisor.fleet.watch import FleetWatch

AGENTS: Final = 50
TURN_S: Final = 2.0
"""How long an agent works and then rests, where changes are timed."""
WATCHED: Final = 6
SETTLE_S: Final = 8.0
AGENT: Final = "codex"
"""The agent whose rules are used; the program draws one of its screens."""
SOURCES: Final = {"program": 150.0, "title": 150.0, "screen": 600.0}
"""The sources of a state, each with its target in ms. A title shows only working; idle shows on the screen."""


def measure_observation(seconds: float) -> list[Figure]:
    """Measure 50 working agents that draw ten frames a second with a spinner on the screen, with and without titles."""
    return [
        _measure_observer("spinner", "with titles", seconds),
        _measure_observer("screen", "by their screens alone", seconds),
    ]


def _measure_observer(source: str, how: str, seconds: float) -> Figure:
    with scratch() as own:
        programs = [(f"agent-{n:02d}", agent_program(own.state, AGENT, "spinner", source)) for n in range(AGENTS)]
        with terminals(programs) as (paths, _):
            asyncio.run(_wait_until_working(paths, AGENTS))
            time.sleep(SETTLE_S)
            host, server = below(paths)
            share, server_share = share_of_a_core([host], seconds), share_of_a_core([server], seconds)
    return Figure(
        name=f"{AGENTS} agents at work, observed {how}",
        value=share,
        unit="% of a core",
        target=10,
        samples=1,
        note=f"the tmux host; the tmux server, which draws all of it, takes {server_share:.1f} %",
    )


def measure_changes(seconds: float) -> list[Figure]:
    """Measure from an agent's change of state to the fleet that a dashboard receives, by source."""
    return [_change(source, max(seconds, 3 * TURN_S)) for source in SOURCES]


def _change(source: str, seconds: float) -> Figure:
    kinds = (SessionState.WORKING,) if source == "title" else (SessionState.WORKING, SessionState.IDLE)
    offsets = {f"{source}-{n}": n * TURN_S / WATCHED for n in range(WATCHED)}
    with scratch() as own:
        programs = [
            (name, agent_program(own.state, AGENT, "spinner", source, str(TURN_S), str(at)))
            for name, at in offsets.items()
        ]
        with terminals(programs) as (paths, _):
            delays = asyncio.run(_delays(paths, offsets, kinds, seconds))
    note = f"p50 {percentile(delays, 0.5):.0f} ms; from the agent's write to the fleet that the dashboard shows"
    return timed(f"state change to row, by {source}, p95", delays, SOURCES[source], note, share=0.95)


async def _delays(
    paths: Paths, offsets: dict[str, float], kinds: Sequence[SessionState], seconds: float
) -> list[float]:
    """Return the detection delay of each change to one of *kinds*, in ms. The times of change follow from the clock."""
    delays: list[float] = []
    states: dict[str, SessionState] = {}
    began = time.time()
    async for fleet in FleetWatch(paths, writes=False).changes():
        now = time.time()
        for session in fleet.sessions:
            if states.get(session.name) is not session.state:
                expected = int((now - offsets[session.name]) // TURN_S) % 2 == 0
                if now > began + SETTLE_S and session.state in kinds:
                    is_right = (session.state is SessionState.WORKING) is expected
                    delay_s = (now - offsets[session.name]) % TURN_S
                    delays.append(1000 * (delay_s if is_right else delay_s + TURN_S))
                states[session.name] = session.state
        if now > began + SETTLE_S + seconds:
            return delays
    return delays


async def _wait_until_working(paths: Paths, count: int) -> None:
    async for fleet in FleetWatch(paths, writes=False).changes():
        if sum(session.state is SessionState.WORKING for session in fleet.sessions) >= count:
            return
