"""Measures the start and the end of sessions by the command line, one and fifty, and ten structured hosts."""

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import psutil

from kasmon.bench.support.figure import Figure, ratio, timed, took_ms
from kasmon.bench.support.fleet import scratch, session_id
from kasmon.bench.support.process_cost import held_mb, processor_s
from kasmon.bench.support.terminal import KASMON, environment
from kasmon.bench.support.tmux_sessions import below
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import SessionCreated, SessionStarted
from kasmon.paths import Paths
from kasmon.store.event_log import EventLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.tmux.server import TmuxServer

KINDS: Final[Mapping[str, tuple[Sequence[str], Sequence[str]]]] = {
    "tmux": (("--mode", "tmux"), ("--", "cat")),
    "structured": (("--mode", "sdk", "--agent", "scripted"), ()),
}
"""The options and the last words of `kasmon new` for each kind of session."""
MANY, HOSTS = 50, 10
REST_S = 2.0


def measure_new(rounds: int) -> list[Figure]:
    """Measure `kasmon new` for each kind, with one session of each running, and its own processor time."""
    with scratch() as paths:
        own = environment(paths.environment_variables())
        times: dict[str, list[float]] = {kind: [] for kind in KINDS}
        spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
        alone, server = list[float](), TmuxServer(paths.tmux_socket)
        for number in range(rounds + 1):
            for kind in KINDS:
                took_s, spent_s = run_command(new_command(kind, f"{kind}-{number}"), own)
                if number:
                    times[kind].append(1000 * took_s)
                    spent[kind].append(1000 * spent_s)
            alone.append(took_ms(partial(server.create, session_id(number), ["cat"])))
    note = f"`tmux new-session` alone: {statistics.median(alone):.0f} ms"
    return [
        figure
        for kind in KINDS
        for figure in (
            _median(f"kasmon new, {kind}", times[kind], 200.0, note if kind == "tmux" else ""),
            _median(f"kasmon new, {kind}: processor time of the command", spent[kind], 120.0),
        )
    ]


def measure_many() -> list[Figure]:
    """Measure 50 sessions of each kind: one command, or 50 at once, start them; one stops them."""
    return [figure for kind in KINDS for figure in (*_many(kind), _many_commands(kind))]


def _many(kind: str) -> list[Figure]:
    with scratch() as paths:
        own = environment(paths.environment_variables())
        started_s, command_s = run_command(new_command(kind, "fix-{n}", "--count", str(MANY)), own)
        others = _processes(paths)
        spent_s = command_s + sum(map(processor_s, others))
        count = len(read_fleet(paths).sessions)
        stopped_s, _ = run_command([*KASMON, "stop", "--all", "--yes"], own)
    name = f"{MANY} {kind} sessions"
    return [
        timed(f"{name} by one command", [1000 * started_s], 2500.0, f"{count} were started"),
        timed(f"{name}: processor time of all", [1000 * spent_s], 4000.0, "the command, the hosts, the tmux server"),
        timed(f"{name} stopped", [1000 * stopped_s], 1500.0),
    ]


def _many_commands(kind: str) -> Figure:
    with scratch() as paths:
        own = environment(paths.environment_variables())
        began = time.perf_counter()
        commands = [_start(new_command(kind, f"fix-{number}"), own) for number in range(MANY)]
        failed = sum(command.wait() != 0 for command in commands)
        took_s = time.perf_counter() - began
        run_command([*KASMON, "stop", "--all", "--yes"], own)
    return timed(f"{MANY} {kind} sessions by {MANY} commands at once", [1000 * took_s], 9000.0, f"{failed} failed")


def measure_hosts() -> list[Figure]:
    """Measure ten structured hosts: the start of each, and the memory of each at rest.

    The fork server, which they share, is there before the first that counts. Its memory is divided among them.
    """
    with scratch() as paths:
        own = environment(paths.environment_variables())
        for number in range(HOSTS):
            run_command(new_command("structured", f"host-{number}"), own)
        time.sleep(REST_S)
        values = [held_mb(pid) for pid in _processes(paths)]
        events = [*EventLog(paths.fleet_log).events()]
        starts = [_start_ms(paths, event) for event in events if isinstance(event, SessionCreated)]
        run_command([*KASMON, "stop", "--all", "--yes"], own)
    note = "from the session's creation to its first event, with the fork server that is there"
    memory = Figure(
        name=f"memory of a structured host, at {HOSTS}",
        value=sum(values) / HOSTS,
        unit="MB",
        target=9.0,
        samples=HOSTS,
        note="proportional set size, with a tenth of the fork server",
    )
    return [_median("start of a structured host", starts[1:], 100.0, note), memory]


def _start_ms(paths: Paths, created: SessionCreated) -> float:
    log = EventLog(paths.log(created.launch.session))
    return next(1000 * (event.at - created.at) for event, _ in log.read() if isinstance(event, SessionStarted))


def new_command(kind: str, name: str, *more: str) -> list[str]:
    options, arguments = KINDS[kind]
    return [*KASMON, "new", name, "--dir", "/", *options, *more, *arguments]


def _processes(paths: Paths) -> list[int]:
    """Return the pids of all hosts, of the fork server and of the tmux server."""
    hosts = {pid for one in read_fleet(paths).sessions if (pid := lock_holder(paths.host_lock(one.id)))}
    parents = {psutil.Process(pid).ppid() for pid in hosts} - {0, 1, os.getpid()}
    servers = {pid for pid in parents if "fork" in " ".join(psutil.Process(pid).cmdline())}
    return [*{*hosts, *servers, *below(paths)}]


def run_command(argv: Sequence[str], own: Mapping[str, str]) -> tuple[float, float]:
    """Run *argv*; return how long it took, and its processor time, in seconds."""
    began = time.perf_counter()
    process = _start(argv, own)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def _start(argv: Sequence[str], own: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(argv, env=dict(own), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _median(name: str, values: Sequence[float], target: float, note: str = "") -> Figure:
    return ratio(name, values, None, "", target, note)
