"""Measure what was asked for, and print it."""

import os
import platform
import sys
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import psutil

from kasmon.bench import flood, focus, load, rows, startup
from kasmon.bench.figure import Figure, table
from kasmon.errors import UsageError

Scene = Callable[[], Figure | list[Figure]]


def scenes(rounds: int, seconds: float) -> dict[str, Scene]:
    """Everything that can be measured, by name: *rounds* of what is timed, *seconds* of what is watched."""
    return {
        "first-frame": partial(startup.first_frame, rounds),
        "ls": partial(startup.ls, rounds),
        "memory": partial(startup.memory, 3),
        "focus": partial(focus.key_to_glyph, 3),
        "idle": partial(load.idle, seconds),
        "busy": partial(load.busy, seconds),
        "rows": partial(rows.changing, seconds),
        "flood": partial(flood.stall, seconds),
    }


def main(names: Sequence[str] = (), *, rounds: int = 9, seconds: float = 10.0, json: bool = False) -> int:
    """Measure *names* (all where there are none), print a table or one JSON object; 0 also where a target is missed.

    Raises:
        UsageError: if a name is none of ours.
    """
    known = scenes(rounds, seconds)
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"there is nothing called {unknown[0]!r} to measure.", hint=f"There is: {', '.join(known)}.")
    figures: list[Figure] = []
    for name in names or known:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        try:
            found = known[name]()
        except (TimeoutError, OSError) as error:
            print(f"kasmon bench: {name} could not be measured: {error}", file=sys.stderr)
            continue
        figures += found if isinstance(found, list) else [found]
    if json:
        print(msgspec.json.encode({"schema": 1, "machine": machine(), "figures": figures}).decode())
    else:
        print(f"{machine()}\n\n{table(figures)}")
    return 0


def machine() -> str:
    """What this was measured on, in one line."""
    memory_gb = psutil.virtual_memory().total / 1e9
    return (
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}"
    )
