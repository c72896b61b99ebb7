"""Runs `kasmon demo`: creates the scratch folders, starts the agents, shows the dashboard, and removes everything.

This process only supervises. The dashboard is its child: if the dashboard is killed, the agents continue, and the user
can reopen it on the same fleet.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kasmon.demo.populate import start_demo
from kasmon.demo.scratch import Scratch
from kasmon.paths import Paths, user_paths

KILLED = 128
TOLD_TO_END = frozenset(KILLED + number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
"""Exit codes of a dashboard that was ended on purpose, which also ends the demo."""
RunDashboard = Callable[[Paths], int]
"""Shows the dashboard of the given paths and returns its exit code."""


def main(
    agents: int,
    seed: int,
    headless_s: float | None,
    svg: Path | None,
    dashboard: RunDashboard,
    ls: Callable[[Paths], str],
    *,
    fleet: bool = False,
) -> int:
    """Run the demo. With *headless_s*, run that many seconds without a screen and print *ls*'s object as last line.

    With *fleet*, its agents are on three machines, which are folders here.
    """
    with exit_on_signals():
        scratch = Scratch(user_paths())
        try:
            os.environ.update(scratch.paths.environment_variables())
            variables = " ".join(f"{name}={value}" for name, value in scratch.paths.environment_variables().items())
            print(f"Look in from another terminal:\n  {variables} kasmon ls", flush=True)
            if headless_s is None:
                code = run_with_dashboard(scratch.paths, agents, seed, dashboard, fleet=fleet)
            else:
                code = run_headless(scratch.paths, agents, seed, headless_s, fleet=fleet)
            if svg is not None:
                save(scratch.paths, svg)
            if headless_s is not None:
                print(ls(scratch.paths))
            return code
        finally:
            scratch.close()


def run_with_dashboard(scratch: Paths, agents: int, seed: int, dashboard: RunDashboard, *, fleet: bool = False) -> int:
    """Start the agents and the dashboard; if the dashboard is killed, offer to reopen it."""
    builder = os.fork()
    if builder == 0:
        start_agents(scratch, agents, seed, fleet=fleet)
    try:
        while True:
            code = dashboard(scratch)
            if code < KILLED or code in TOLD_TO_END or not ask_to_reopen():
                return code
    finally:
        with contextlib.suppress(OSError):
            os.kill(builder, signal.SIGTERM)
            os.waitpid(builder, 0)


def run_headless(scratch: Paths, agents: int, seed: int, headless_s: float, *, fleet: bool = False) -> int:
    """Run the agents for *headless_s* seconds; failures are printed to stderr and make the exit code 1."""
    until = time.monotonic() + headless_s
    failures = asyncio.run(start_demo(scratch, agents, seed, fleet=fleet))
    for failure in failures:
        print(f"kasmon demo: {failure}", file=sys.stderr)
    time.sleep(max(0.0, until - time.monotonic()))
    return 1 if failures else 0


def save(scratch: Paths, svg: Path) -> None:
    from kasmon.demo.screenshot import picture  # imports the dashboard, which is heavy and only needed here

    svg.write_text(picture(scratch), "utf-8")


def start_agents(scratch: Paths, agents: int, seed: int, *, fleet: bool = False) -> None:
    """Start the agents and exit; runs in a child process. Failures are in the sessions' own logs."""
    code = 1
    with contextlib.suppress(BaseException):
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        code = bool(asyncio.run(start_demo(scratch, agents, seed, with_sandboxes=True, fleet=fleet)))
    os._exit(code)


def ask_to_reopen() -> bool:
    """Ask whether to reopen the killed dashboard on the running fleet."""
    if not sys.stdin.isatty():
        return False
    print("The demo's agents work on. Enter opens the dashboard again, q ends the demo: ", end="", flush=True)
    return not sys.stdin.readline().strip().lower().startswith("q")


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Make TERM and HUP end the demo as Ctrl+C does, so that it cleans up."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
