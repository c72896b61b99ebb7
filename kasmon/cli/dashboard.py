"""`kasmon`, `kasmon demo` and `kasmon bench`: the dashboard on this terminal, and whether the terminal can show it."""

import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from kasmon import system
from kasmon.cli.arguments import Arg, Json, OnMachine
from kasmon.errors import UsageError
from kasmon.paths import Paths, user_paths


def no_screen(environment: Mapping[str, str]) -> str:
    """Return why the dashboard cannot open here; empty if it can."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "this is not a terminal"
    if environment.get("TERM", "") in ("", "dumb", "unknown"):
        return f"TERM is {environment.get('TERM') or 'not set'}, which cannot draw a screen"
    return ""


def dashboard() -> int:
    """Open the dashboard."""
    if why := no_screen(os.environ):
        raise UsageError(f"the dashboard cannot open here: {why}.", hint="`kasmon ls --watch` works anywhere.")
    return show(user_paths(), last=True)


def demo(
    *,
    agents: Annotated[int, Arg("Number of simulated agents.")] = 12,
    seed: Annotated[int, Arg("Number from which the agents draw what they do; the same one repeats a demo.")] = 1,
    headless: Annotated[float | None, Arg("Open no screen; run for this many seconds, then print `ls --json`.")] = None,
    svg: Annotated[str | None, Arg("Save an SVG picture of the dashboard to this file.")] = None,
    fleet: Annotated[bool, Arg("Run the agents on three machines, which are folders of this one.")] = False,
) -> int:
    """Run a live demo with simulated agents; cleans up on exit."""
    from kasmon.cli.ls import ls_object
    from kasmon.demo.run import main

    if agents < 1:
        raise UsageError(f"cannot run a demo with {agents} agents.", hint="--agents must be at least 1.")
    if headless is not None and not 0 <= headless <= 86400:
        raise UsageError(f"{headless:g} is not a valid number of seconds.", hint="--headless must be from 0 to 86400.")
    if headless is None and (why := no_screen(os.environ)):
        raise UsageError(f"the demo cannot open here: {why}.", hint="`kasmon demo --headless 5` runs without a screen.")
    return main(agents, seed, headless, Path(svg) if svg else None, show, ls_object, fleet=fleet)


def bench(
    *names: Annotated[str, Arg("Measurements to run (default: all).")],
    rounds: Annotated[int, Arg("Number of measurements of each time.")] = 9,
    seconds: Annotated[float, Arg("Seconds to measure each load.")] = 10.0,
    compare: Annotated[str | None, Arg("Output of an earlier --json; the table shows the changes since.")] = None,
    peers: Annotated[bool, Arg("Measure other dashboards on PATH too, by the same clock.")] = False,
    machine: OnMachine = "",
    wants_json: Json = False,
) -> int:
    """Measure kasmon on this machine, as ratios."""
    from kasmon.cli.output.console import check_machine

    check_machine(machine)
    from kasmon.bench.run import main

    if rounds < 1 or seconds <= 0:
        raise UsageError(
            f"cannot measure with --rounds {rounds} and --seconds {seconds:g}.",
            hint="--rounds must be at least 1 and --seconds greater than 0.",
        )
    report = None if compare is None else Path(compare)
    return main(names, rounds=rounds, seconds=seconds, json=wants_json, compare=report, with_peers=peers)


def show(where: Paths, *, last: bool = False) -> int:
    """Run the dashboard of *where* in a child of a guard that restores the terminal however the child ends.

    With *last*, nothing is done afterwards and this may never return; otherwise the agents end after it.
    """
    from kasmon.tui.process.terminal_guard import run_guarded

    def child() -> int:
        gc.disable()  # until the first frame: objects imported before it are permanent
        from kasmon.tui.process.run import run  # heavy: imported behind the fork, so that the guard stays small

        return run(where, agents_go_on=last)

    return run_guarded(
        child,
        starts_python=not system.HERE.can_continue_after_fork,
        again=("-P", "-m", "kasmon"),
        variables=where.environment_variables(),
        asleep=last,
    )
