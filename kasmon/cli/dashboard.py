"""`kasmon` and `kasmon demo`: the dashboard on this terminal, and the check whether the terminal can show it."""

import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from kasmon.errors import UsageError
from kasmon.paths import Paths, places


def no_screen(environment: Mapping[str, str]) -> str:
    """Return why the dashboard cannot open here; empty if it can."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "this is not a terminal"
    if environment.get("TERM", "") in ("", "dumb", "unknown"):
        return f"TERM is {environment.get('TERM') or 'not set'}, which cannot draw a screen"
    return ""


def dashboard() -> int:
    """Show the dashboard until the user quits it; agents keep running.

    Raises:
        UsageError: if the terminal cannot show it.
    """
    if why := no_screen(os.environ):
        raise UsageError(f"the dashboard cannot open here: {why}.", hint="`kasmon ls --watch` works anywhere.")
    return show(places(), last=True)


def demo(agents: int, seed: int, headless_s: float | None, svg: str | None) -> int:
    """Run the demo, on this terminal or headless; return its exit code.

    Raises:
        UsageError: if a number is out of range, or the terminal cannot show it.
    """
    from kasmon.cli.ls import ls_object
    from kasmon.demo.run import main

    if agents < 1:
        raise UsageError(f"cannot run a demo with {agents} agents.", hint="--agents must be at least 1.")
    if headless_s is not None and not 0 <= headless_s <= 86400:
        raise UsageError(
            f"{headless_s:g} is not a valid number of seconds.", hint="--headless must be from 0 to 86400."
        )
    if headless_s is None and (why := no_screen(os.environ)):
        raise UsageError(f"the demo cannot open here: {why}.", hint="`kasmon demo --headless 5` runs without a screen.")
    return main(agents, seed, headless_s, Path(svg) if svg else None, show, ls_object)


def show(where: Paths, *, last: bool = False) -> int:
    """Run the dashboard of *where* in a child of a guard that restores the terminal however the child ends.

    With *last*, nothing is done afterwards and this may never return; otherwise the agents end after it.
    """
    from kasmon.tui.process.terminal_guard import run_guarded

    def child() -> int:
        gc.disable()  # until the first frame: objects imported before it are permanent
        from kasmon.tui.process.run import run  # heavy: imported behind the fork, so that the guard stays small

        return run(where, agents_go_on=last)

    return run_guarded(child, again=("-P", "-m", "kasmon"), variables=where.environment_variables(), asleep=last)
