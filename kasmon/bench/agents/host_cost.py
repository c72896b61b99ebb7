"""Measures the host of a structured session: its memory, and its agent's start time, against the agent alone.

The agent gets no prompt. It is measured from the launch command to its `SessionStarted` event, and then idle.
"""

import contextlib
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from kasmon.bench.agents.bare_agent import measure_opening_ms
from kasmon.bench.agents.offline import create_home, program
from kasmon.bench.dashboard.startup import BARE_PYTHON
from kasmon.bench.support.figure import Figure
from kasmon.bench.support.fleet import scratch
from kasmon.bench.support.process_cost import held_mb, memory_mb, run_ms
from kasmon.bench.support.terminal import KASMON, environment
from kasmon.errors import LaunchError, LogMissingError
from kasmon.model.events import Event, SessionCreated, SessionStarted
from kasmon.paths import Paths
from kasmon.store.event_log import EventLog

REAL = ("claude", "codex", "opencode", "gemini")
REST_S = 2.0
"""How long after its start the memory of an agent and its host is measured, in seconds."""
LIMIT_S = 120.0
LOOK_S = 0.003
NAME = "measured"
BARE_AT_REST = [*BARE_PYTHON[:-1], "import sys; print('ready', flush=True); sys.stdin.read()"]

FactT = TypeVar("FactT", bound=Event)


class BenchSession(msgspec.Struct, frozen=True):
    start_ms: float
    limit_ms: float
    """The agent's own time to open a conversation over a pipe; for the scripted agent, the time of a bare Python."""
    host_pid: int
    agent_pid: int | None
    """None if the agent runs inside its host."""


def measure_host(agent: str, rounds: int) -> list[Figure]:
    """Measure memory and start of *agent*'s host: the medians of *rounds* sessions, one after the other.

    Raises:
        AgentNotFoundError: if the agent is not installed.
        LaunchError: if it does not start; with its output.
    """
    path = program(agent) if agent in REAL else None
    starts, limits, hosts, agents = [], [], [], []
    for _ in range(rounds):
        with scratch() as paths, _session(paths, agent, path) as session:
            starts.append(session.start_ms)
            limits.append(session.limit_ms)
            time.sleep(REST_S)
            hosts.append(held_mb(session.host_pid))
            agents.append(memory_mb(session.agent_pid) if session.agent_pid else _bare_mb())
    start, limit = statistics.median(starts), statistics.median(limits)
    host_mb, agent_mb = statistics.median(hosts), statistics.median(agents)
    return [
        Figure(
            name=f"{agent}: start to first event",
            value=start,
            unit="ms",
            limit=limit,
            limit_name=f"{agent} itself" if path else "bare Python",
            samples=rounds,
        ),
        Figure(
            name=f"{agent}: memory of its host",
            value=host_mb,
            unit="MB",
            limit=agent_mb,
            limit_name=f"{agent} itself" if path else "bare Python",
            samples=rounds,
            note="proportional set size, at rest before the first prompt",
        ),
    ]


@contextlib.contextmanager
def _session(paths: Paths, agent: str, path: Path | None) -> Iterator[BenchSession]:
    """Start a session of *agent*; before that, run its program *path* alone in the same environment."""
    root = paths.state.parents[1]
    launcher_variables, own = create_home(agent, root)
    variables = environment(paths.environment_variables() | launcher_variables | own)
    if path is None:
        limit_ms = run_ms(BARE_PYTHON, variables, check=True)
    else:
        variables["PATH"] = f"{path.parent}:{variables['PATH']}"
        limit_ms = measure_opening_ms(agent, path, root / "work", variables)
    named = [word for name in own for word in ("--env", name)]
    new = [*KASMON, "new", NAME, "--agent", agent, "--mode", "sdk", "--dir", str(root / "work"), *named]
    with ThreadPoolExecutor(1) as pool:
        created = pool.submit(_run, new, variables)
        event, start_ms = _wait_for_start(paths, created)
        created.result()
    try:
        host_pid = event.host_pid or 0
        yield BenchSession(start_ms, limit_ms, host_pid, None if event.pid == host_pid else event.pid)
    finally:
        _run([*KASMON, "stop", NAME], variables)


def _wait_for_start(paths: Paths, created: Future[str]) -> tuple[SessionStarted, float]:
    """Return the agent's start event, and the time in ms from the launch command until the event was in the log.

    The time in the event is the start of the agent's process; it was written later.

    Raises:
        LaunchError, TimeoutError: if it does not start.
    """
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        now = time.time()
        for created_event in _read_events(paths.fleet_log, SessionCreated):
            for event in _read_events(paths.log(created_event.launch.session), SessionStarted):
                return event, 1000 * (now - created_event.at)
        if created.done():
            created.result()
        time.sleep(LOOK_S)
    raise TimeoutError(f"nothing was heard of the agent within {LIMIT_S:g} s.")


def _read_events(log: Path, kind: type[FactT]) -> list[FactT]:
    with contextlib.suppress(LogMissingError):
        return [event for event in EventLog(log).events() if isinstance(event, kind)]
    return []


def _run(argv: Sequence[str], variables: dict[str, str]) -> str:
    """Run *argv* and return its output. Raises `LaunchError` or `TimeoutError`."""
    try:
        done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as expired:
        raise TimeoutError(f"{argv[0]!r} did not end within {LIMIT_S:g} s.") from expired
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise LaunchError(lines[0] if lines else f"{argv[0]!r} failed with exit code {done.returncode}.")
    return done.stdout


def _bare_mb() -> float:
    """Return the memory of an idle Python process, in MB."""
    with subprocess.Popen(BARE_AT_REST, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bare:
        assert bare.stdout is not None
        bare.stdout.readline()
        return held_mb(bare.pid)
