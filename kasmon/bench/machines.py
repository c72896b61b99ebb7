"""Measures sessions of other machines, which are folders of this one, against the same sessions of this machine."""

import asyncio
import contextlib
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Final

from kasmon.bench.dashboard.event_latency import change_states
from kasmon.bench.dashboard.focus_latency import type_in_focus
from kasmon.bench.dashboard.permission_latency import let_cards_open, open_card
from kasmon.bench.support.figure import Figure, percentile, ratio, timed
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.machine_links import Transport, joined
from kasmon.bench.support.process_cost import family, run_ms, share_of_a_core
from kasmon.bench.support.terminal import BenchTerminal, environment, open_dashboard, read_for, reading
from kasmon.bench.support.tmux_sessions import program, terminals
from kasmon.config import Config
from kasmon.model.commands import Answer, Mode
from kasmon.model.permission import Decision, SessionId
from kasmon.paths import Paths
from kasmon.supervisor.fleet.snapshot import read_session
from kasmon.supervisor.search.index_writer import update_all
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create, execute, send

MACHINES: Final = 20
SESSIONS: Final = 50
SIMULATED: Final = 200
"""How many machines are simulated, by a program that writes the files of their links."""
RUNNING: Final = 10
"""How many of the sessions of a simulated machine work."""
RATE_HZ: Final = 100.0
SETTLE_S: Final = 10.0
WRITER: Final = [sys.executable, "-P", "-m", "kasmon.bench.simulated_machines"]
LAG: Final = [sys.executable, "-P", "-m", "kasmon.bench.dashboard.loop_lag"]
CHANGING: Final = 20
KEYS: Final = 120
LS: Final = [sys.executable, "-P", "-m", "kasmon", "ls"]
ASKS_S: Final = 20.0


def measure_machines(rounds: int, seconds: float) -> list[Figure]:
    """Measure the delays without ssh and NATS, the list of many machines, and what many machines cost."""
    return [
        measure_keys(max(1, rounds // 3)),
        *measure_events(4 * rounds),
        *_measure_many(rounds, seconds),
        *_measure_load(seconds),
    ]


def measure_keys(rounds: int, transport: Transport = "direct", keys: int = KEYS) -> Figure:
    """Measure the delay of keys to a session of another kasmon, reached over *transport*: *keys* in each of *rounds*.

    A round takes some 13 s on a quiet machine.

    Raises:
        UnavailableError: if what *transport* requires is missing here.
    """
    local_ms, remote_ms = list[float](), list[float]()
    with (
        terminals([("echo", program("echo"))]) as (remote, ids),
        scratch() as near,
        joined(near, [remote], ids, transport),
    ):
        letters = itertools.cycle(b"abcdefghijklmnopqrstuvwxyz")
        for _ in range(rounds):
            for paths, times in ((remote, local_ms), (near, remote_ms)):
                times += type_in_focus(environment(paths.environment_variables()), letters, keys, b"echo ")
    return Figure(
        name=f"focus on another machine{_over(transport)}, key to glyph, p95",
        value=percentile(remote_ms, 0.95),
        unit="ms",
        target=2,
        limit=percentile(local_ms, 0.95),
        limit_name="on that machine",
        samples=len(remote_ms),
    )


def measure_events(requests: int, transport: Transport = "direct", changing: int = CHANGING) -> list[Figure]:
    """Measure the delays of state changes, *requests* and answers of another kasmon, reached over *transport*.

    *changing*: how many sessions take part; the first one only is selected. A request takes some 5 s: a card opens only
    after a while without keys.

    Raises:
        UnavailableError: if what *transport* requires is missing here.
    """
    over = _over(transport)
    return [*_measure_states(transport, over, changing), *_measure_requests(requests, transport, over, changing)]


def _over(transport: Transport) -> str:
    return "" if transport == "direct" else f" over {transport}"


def _measure_states(transport: Transport, over: str, changing: int) -> Iterator[Figure]:
    delays = list[list[float]]()
    with (
        scratch() as remote,
        create_sessions(remote, changing) as ids,
        scratch() as near,
        joined(near, [remote], ids, transport),
    ):
        for paths in (remote, near):
            times = list[float]()
            with open_dashboard(environment(paths.environment_variables())) as terminal:
                terminal.until(b"session-0000")
                read_for(terminal, 2.0)
                for number, session in enumerate(ids[1:], 1):
                    times += change_states(terminal, remote, session, number)
            delays.append(times)
    local = percentile(delays[0], 0.95)
    note = f"on that machine, in the same run: {local:.1f} ms; p50 {percentile(delays[1], 0.5):.1f} ms"
    yield timed(f"state change there to row here{over}, p95", delays[1], local + 30, note, share=0.95)


def _measure_requests(requests: int, transport: Transport, over: str, changing: int) -> Iterator[Figure]:
    delays = list[list[float]]()
    with (
        scratch() as remote,
        create_sessions(remote, changing) as ids,
        scratch() as near,
        contextlib.ExitStack() as stack,
    ):
        for paths in (remote, near):
            let_cards_open(paths)
        stack.enter_context(joined(near, [remote], ids, transport))
        for paths in (remote, near):
            with open_dashboard(environment(paths.environment_variables())) as terminal:
                terminal.until(b"session-0000")
                read_for(terminal, 2.0)
                turns = enumerate(itertools.islice(itertools.cycle(ids[1:]), requests))
                delays.append([open_card(terminal, remote.log(each), each, number) for number, each in turns])
    note = f"on that machine, in the same run: {percentile(delays[0], 0.95):.1f} ms; "
    note += f"p50 {percentile(delays[0], 0.5):.1f} and {percentile(delays[1], 0.5):.1f} ms"
    yield timed(f"request there to its dialog here{over}, p95", delays[1], 150, note, share=0.95)
    with scratch() as remote, scratch() as near:
        new = NewSession(name="asks", agent="scripted", mode=Mode.SDK, workdir="/")
        session = asyncio.run(create(remote, Config(), new))
        with joined(near, [remote], [session], transport):
            times = [asyncio.run(_answer(paths, session, requests)) for paths in (remote, near)]
    note = f"on that machine, in the same run: {percentile(times[0], 0.95):.1f} ms; "
    note += f"p50 {percentile(times[1], 0.5):.1f} ms"
    yield timed(f"an answer here to the agent there{over}, p95", times[1], 50, note, share=0.95)


async def _answer(paths: Paths, session: SessionId, requests: int) -> list[float]:
    """Let the agent of *session* ask; return how long each answer from *paths* takes until its host gave it, in ms.

    The first one is left out, as it imports what it needs.

    Raises:
        TimeoutError: if the agent does not ask in time.
    """
    taken_ms = list[float]()
    async with asyncio.timeout(ASKS_S * requests):
        for _ in range(requests + 1):
            await send(paths, read_session(paths, session), "ask make")
            while not (shown := read_session(paths, session)).requests:  # noqa: ASYNC110 - files are what it waits for
                await asyncio.sleep(0.02)
            request = shown.requests[0]
            began = time.perf_counter()
            await execute(paths, shown, Answer(request=request.id, digest=request.digest, decision=Decision.ALLOW))
            taken_ms.append(1000 * (time.perf_counter() - began))
            while read_session(paths, session).requests:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.02)
    return taken_ms[1:]


def _measure_many(rounds: int, seconds: float) -> Iterator[Figure]:
    with contextlib.ExitStack() as stack:
        alone = stack.enter_context(scratch())
        stack.enter_context(create_sessions(alone, MACHINES * SESSIONS, alive=0))
        remote = [stack.enter_context(scratch()) for _ in range(MACHINES)]
        ids = [
            session
            for number, paths in enumerate(remote)
            for session in stack.enter_context(create_sessions(paths, SESSIONS, alive=2, first=number * SESSIONS))
        ]
        near = stack.enter_context(scratch())
        began = time.perf_counter()
        links = stack.enter_context(joined(near, remote, ids))
        joined_s = time.perf_counter() - began
        times = [
            [run_ms(LS, environment(paths.environment_variables())) for _ in range(rounds + 1)][1:]
            for paths in (alone, near)
        ]
        note = f"all were copied {joined_s:.1f} s after the links started"
        name = f"ls of {MACHINES} machines with {SESSIONS} sessions each"
        yield ratio(name, times[1], times[0], "as many sessions here", 1.5, note)
        pids = [process.pid for process in family(links)]
        yield Figure(
            name="links at rest, each with the process that serves it",
            value=share_of_a_core(pids, seconds) / MACHINES,
            unit="% of a core",
            target=0.3,
            samples=MACHINES,
            note=f"{len(pids)} processes",
        )
        with open_dashboard(environment(near.environment_variables())) as terminal:
            terminal.until(b"session-0")
            read_for(terminal, SETTLE_S)
            share = reading(terminal, [process.pid for process in family([terminal.pid])], seconds)
        yield Figure(
            name=f"a dashboard of {MACHINES} machines at rest", value=share, unit="% of a core", target=1.5, samples=1
        )


def _measure_load(seconds: float) -> Iterator[Figure]:
    with scratch() as near, tempfile.NamedTemporaryFile("r") as lags, simulated(near, RATE_HZ) as own:
        with open_dashboard(own) as terminal:
            terminal.until(b"session-0")
            read_for(terminal, SETTLE_S)
            share = reading(terminal, [process.pid for process in family([terminal.pid])], seconds)
        with BenchTerminal([*LAG, lags.name], own, 160, 50) as terminal:
            terminal.until(b"session-0")
            read_for(terminal, SETTLE_S)
            first = len(lags.readlines())
            read_for(terminal, seconds)
        stalls = [float(line) for line in lags.readlines()]
    note = f"{RUNNING} of {SESSIONS} sessions of each work; {first} seconds before are left out of the stall"
    name = f"{SIMULATED} simulated machines, {SIMULATED * SESSIONS:,} rows, {RATE_HZ:g} changes/s"
    yield Figure(name=name, value=share, unit="% of a core", target=12, samples=1, note=note)
    yield Figure(name="the longest stall meanwhile", value=max(stalls), unit="ms", target=100, samples=len(stalls))


@contextlib.contextmanager
def simulated(near: Paths, rate_hz: float) -> Iterator[dict[str, str]]:
    """Simulate `SIMULATED` machines in *near*, with *rate_hz* changes a second; yield the environment of its programs.

    Raises:
        RuntimeError: if that ends.
    """
    own = environment(near.environment_variables())
    argv = [*WRITER, str(SIMULATED), str(SESSIONS), str(RUNNING), str(rate_hz)]
    with subprocess.Popen(argv, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdin is not None
            assert writer.stdout is not None
            if writer.stdout.readline() != b"ready\n":
                raise RuntimeError("the simulated machines have ended.")
            update_all(near)  # a dashboard that ran before did that
            writer.stdin.close()
            yield own
        finally:
            writer.kill()
