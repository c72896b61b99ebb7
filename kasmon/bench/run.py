"""Runs the requested measurements and prints their figures."""

import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil

from kasmon.bench import commands, files, machines, peers, plans
from kasmon.bench.agents import detection_cost, hibernation, host_cost, many_sessions
from kasmon.bench.dashboard import (
    busy_fleet,
    event_latency,
    focus_latency,
    idle_cost,
    long_transcript,
    memory_growth,
    permission_latency,
    prompt_delivery,
    prompt_input,
    review,
    search,
    startup,
)
from kasmon.bench.phone import flood, page, push
from kasmon.bench.sandboxes import jails, runs, snapshots
from kasmon.bench.support.figure import Figure, table
from kasmon.bench.support.fleet import scratch
from kasmon.bench.support.process_cost import family
from kasmon.bench.support.terminal import BenchTerminal, environment, read_for, reading
from kasmon.bench.support.tmux_sessions import terminals
from kasmon.errors import KasmonError, UsageError

Scene = Callable[[], Figure | list[Figure]]
OURS = Path(__file__).parents[1]

ROWS, ALIVE, CHANGES, RATE_HZ = 5000, 200, 40, 10.0
FLEET = [sys.executable, "-P", "-m", "kasmon.bench.dashboard.moving_fleet"]


def scenes(rounds: int, seconds: float) -> dict[str, Scene]:
    """Return all measurements by name: *rounds* for timed ones, *seconds* for observed ones."""
    return {
        "first-frame": partial(startup.measure_first_frame, rounds),
        "ls": partial(startup.measure_ls, rounds),
        "fleet-list": partial(commands.measure_list, 5 * rounds),
        "commands": partial(commands.measure_commands, rounds),
        "new": partial(many_sessions.measure_new, rounds),
        "many": many_sessions.measure_many,
        "hosts": many_sessions.measure_hosts,
        "memory": partial(startup.measure_memory, 3),
        "focus": partial(focus_latency.measure_key_to_glyph, 3),
        "rest": partial(idle_cost.measure_idle_fleets, (10, 50, 200, 1000), seconds),
        "busy": partial(busy_fleet.measure_busy_fleet, seconds),
        "evidence": partial(detection_cost.measure_observation, seconds),
        "evidence-late": partial(detection_cost.measure_changes, seconds),
        "delivery": partial(prompt_delivery.measure_delivery, 1000),
        "rows": partial(measure_changes, seconds),
        "flood": partial(measure_stall, seconds),
        "growth": memory_growth.measure_memory_growth,
        "talk": partial(event_latency.measure_event_to_screen, seconds),
        "last-page": partial(long_transcript.measure_last_page, rounds),
        "slash": partial(prompt_input.measure_completion, 5 * rounds),
        "picture": partial(prompt_input.measure_picture, rounds),
        "machines": partial(machines.measure_machines, rounds, seconds),
        "machines-ssh": partial(machines.measure_keys, 2, "ssh"),
        "machines-nats": partial(machines.measure_keys, 2, "nats"),
        "machines-ssh-events": partial(machines.measure_events, 4 * rounds, "ssh"),
        "machines-nats-events": partial(machines.measure_events, 4 * rounds, "nats"),
        "review": partial(review.measure_review, rounds),
        "state": partial(event_latency.measure_state_to_row, 3),
        "dialog": partial(permission_latency.measure_event_to_dialog, 4 * rounds),
        "plan": plans.measure_run,
        "plan-file": partial(plans.measure_reading, rounds),
        "search": partial(search.measure_search, rounds),
        "radar": partial(files.measure_sweep, rounds),
        "worktree": partial(files.measure_new_worktree, rounds),
        "branches": files.measure_branch_states,
        "jail": partial(jails.measure_start, 3 * rounds),
        "jails": partial(jails.measure_many, seconds),
        "run": partial(runs.measure_runs, 30 * rounds),
        "standby": partial(runs.measure_standby, 4 * rounds),
        "hibernated": partial(hibernation.measure_resume, rounds),
        "usage": partial(hibernation.measure_usage, rounds),
        "push": partial(push.measure_push, rounds),
        "request-page": partial(page.measure_page, rounds),
        "web-flood": partial(flood.measure_flood, 10 * rounds),
        "run-host": partial(runs.measure_host_runs, 20 * rounds),
        "checkpoint": partial(files.measure_checkpoints, rounds),
        "microvm-boot": partial(snapshots.measure_boot, 3),
        "microvm-clone": partial(snapshots.measure_copy, rounds),
        "microvm-pause": partial(snapshots.measure_pause, rounds),
        "microvm-resume": partial(snapshots.measure_resume, rounds),
        "microvm-clones": snapshots.measure_many,
        **{f"host-{agent}": partial(host_cost.measure_host, agent, 3) for agent in ("scripted", *host_cost.REAL)},
    }


def peer_scenes(rounds: int, seconds: float) -> dict[str, Scene]:
    """Return the measurements of other programs for many agents, by name."""
    return {f"peer-{name}": partial(peers.measure_peer, name, rounds, seconds) for name in peers.PEERS}


class Report(msgspec.Struct):
    """What a table is compared with: the output of `--json` of another run."""

    figures: list[dict[str, Any]]


def read_report(path: Path) -> dict[str, float]:
    """Return `judged` of each figure in the report at *path*, by name.

    Raises:
        UsageError: if it cannot be read, or is no report.
    """
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
        return {str(figure["name"]): float(figure["judged"]) for figure in report.figures}
    except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"cannot compare with {str(path)!r}: {error}.", hint="Give it the output of `kasmon bench --json`."
        ) from error


def main(
    names: Sequence[str] = (),
    *,
    rounds: int = 9,
    seconds: float = 10.0,
    json: bool = False,
    compare: Path | None = None,
    with_peers: bool = False,
) -> int:
    """Measure *names* (all if empty) and print a table or one JSON object; return 0 even if a target is missed.

    *compare*: the output of `--json` of another run; the table shows the changes since. *with_peers*: then measure
    other programs too.

    What cannot be measured here (an agent is not installed, say) is left out, as is what fails, and the output contains
    the reason.

    Raises:
        UsageError: if a name is unknown, or *compare* cannot be read.
    """
    known = scenes(rounds, seconds)
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"there is nothing called {unknown[0]!r} to measure.", hint=f"There is: {', '.join(known)}.")
    earlier = None if compare is None else read_report(compare)
    wanted = {name: known[name] for name in names or known} | (peer_scenes(rounds, seconds) if with_peers else {})
    figures: list[Figure] = []
    left_out: dict[str, str] = {}
    try:
        for name, measure in wanted.items():
            print(f"measuring {name} ...", end="", file=sys.stderr, flush=True)
            began = time.monotonic()
            try:
                found = measure()
            except Exception as error:  # noqa: BLE001  # of a run of an hour, one fault must not cost the other rows
                left_out[name] = _why(error)
                continue
            finally:
                print(f" {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            figures += found if isinstance(found, list) else [found]
    finally:  # what was measured before a fault or Ctrl+C is not lost
        if json:
            rows = [msgspec.to_builtins(figure) | {"judged": figure.judged} for figure in figures]
            report = {"schema": 1, "machine": machine(), "figures": rows, "left_out": left_out}
            print(msgspec.json.encode(report).decode())
        else:
            missing = ["", *(f"{name}: not measured: {why}" for name, why in left_out.items())] if left_out else []
            print("\n".join([machine(), "", table(figures, earlier), *missing]), flush=True)
    return 0


def _why(error: Exception) -> str:
    """Return why something was not measured; for an error that no measurement expects, with its place."""
    if isinstance(error, KasmonError):
        return error.message
    if isinstance(error, TimeoutError | OSError) and str(error):
        return str(error)
    ours = [each for each in traceback.extract_tb(error.__traceback__) if OURS in Path(each.filename).parents]
    return f"{type(error).__name__} in {Path(ours[-1].filename).name}:{ours[-1].lineno}: {error}"


def machine() -> str:
    memory_gb = psutil.virtual_memory().total / 1e9
    return (
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}"
    )


def measure_stall(seconds: float) -> Figure:
    """Measure the longest stall of the dashboard's event loop in *seconds*, with `yes` running in the preview."""
    with terminals([("flood", ["yes", "a line of a flood that never ends"])]) as (paths, _):
        file = paths.state / "lag"
        with BenchTerminal([*machines.LAG, str(file)], environment(paths.environment_variables()), 160, 50) as terminal:
            terminal.until(b"a line of a flood")
            until = time.monotonic() + seconds + 2.0
            while time.monotonic() < until:
                terminal.read(0.05)
            lags = [float(line) for line in file.read_text().splitlines()][1:]
    return Figure(
        name="longest stall under a `yes` flood",
        value=max(lags),
        unit="ms",
        target=100,
        samples=len(lags),
        note="the longest turn of the screen's loop, its first second left out",
    )


def measure_changes(seconds: float) -> Figure:
    """Measure the dashboard's processor time over *seconds*; the same process generates the fleets."""
    argv = [*FLEET, str(ROWS), str(ALIVE), str(CHANGES), str(RATE_HZ)]
    with scratch() as paths, BenchTerminal(argv, environment(paths.environment_variables()), 160, 50) as terminal:
        terminal.until(b"row-0")
        read_for(terminal, 3.0)
        share = reading(terminal, [process.pid for process in family([terminal.pid])], seconds)
    return Figure(
        name="5,000 rows, 40 changes at 10 Hz",
        value=share,
        unit="% of a core",
        target=6,
        samples=1,
        note="200 alive; making the changed values is part of it",
    )
