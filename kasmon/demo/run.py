"""`kasmon demo`: make the scratch places, bring the cast on, show the dashboard, leave nothing behind.

This process only looks after the stage. The dashboard is its child: when that is killed, the agents work on, and it can
be opened again on the same fleet.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kasmon.demo.populate import perform
from kasmon.demo.scratch import Scratch
from kasmon.paths import Paths, places

KILLED = 128
TOLD_TO_END = frozenset(KILLED + number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
"""Exit codes of a dashboard that somebody ended on purpose, and the demo with it."""
Dashboard = Callable[[Paths], int]
"""Shows the dashboard of these places and returns the exit code."""


def main(
    agents: int,
    seed: int,
    headless_s: float | None,
    svg: Path | None,
    dashboard: Dashboard,
    ls: Callable[[Paths], str],
) -> int:
    """Run the demo; *headless_s* seconds without a screen where given, then *ls*'s object is the last line printed."""
    with ended_by_signals():
        scratch = Scratch(places())
        try:
            os.environ.update(scratch.places.environment_variables())
            say_where(scratch)
            if headless_s is None:
                code = on_screen(scratch.places, agents, seed, dashboard)
            else:
                code = without_screen(scratch.places, agents, seed, headless_s)
            if svg is not None:
                save(scratch.places, svg)
            if headless_s is not None:
                print(ls(scratch.places))
            return code
        finally:
            scratch.close()


def on_screen(scratch: Paths, agents: int, seed: int, dashboard: Dashboard) -> int:
    """Start the cast beside the dashboard, and open the dashboard again after it was killed, if that is wanted."""
    builder = os.fork()
    if builder == 0:
        bring_on(scratch, agents, seed)
    try:
        while True:
            code = dashboard(scratch)
            if code < KILLED or code in TOLD_TO_END or not asks_again():
                return code
    finally:
        with contextlib.suppress(OSError):
            os.kill(builder, signal.SIGTERM)
            os.waitpid(builder, 0)


def without_screen(scratch: Paths, agents: int, seed: int, headless_s: float) -> int:
    """Let the cast play for *headless_s* seconds; its failures go to stderr and make the exit code 1."""
    until = time.monotonic() + headless_s
    failures = asyncio.run(perform(scratch, agents, seed))
    for failure in failures:
        print(f"kasmon demo: {failure}", file=sys.stderr)
    time.sleep(max(0.0, until - time.monotonic()))
    return 1 if failures else 0


def save(scratch: Paths, svg: Path) -> None:
    """Save the dashboard's picture of this moment."""
    from kasmon.demo.screenshot import picture  # the dashboard is heavy, and only a picture needs it here

    svg.write_text(picture(scratch), "utf-8")


def bring_on(scratch: Paths, agents: int, seed: int) -> None:
    """In a child process: start the cast, and end. What failed is in the sessions' own logs."""
    code = 1
    with contextlib.suppress(BaseException):
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        code = bool(asyncio.run(perform(scratch, agents, seed, with_sandboxes=True)))
    os._exit(code)


def asks_again() -> bool:
    """Whether the dashboard, which was killed, shall be opened again on the fleet that works on."""
    if not sys.stdin.isatty():
        return False
    print("The demo's agents work on. Enter opens the dashboard again, q ends the demo: ", end="", flush=True)
    return not sys.stdin.readline().strip().lower().startswith("q")


def say_where(scratch: Scratch) -> None:
    """Print how another terminal can look in."""
    variables = " ".join(f"{name}={value}" for name, value in scratch.places.environment_variables().items())
    print(f"Look in from another terminal:\n  {variables} kasmon ls", flush=True)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """TERM and HUP end the demo the way Ctrl+C does, so that it cleans up."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
