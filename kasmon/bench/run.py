"""Measure what was asked for, and print it."""

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import psutil

from kasmon.bench import (
    asking,
    curve,
    delivery,
    evidence,
    flood,
    focus,
    hosts,
    jails,
    keeping,
    load,
    long,
    memories,
    plans,
    radar,
    rows,
    runs,
    search,
    startup,
    talk,
)
from kasmon.bench.figure import Figure, table
from kasmon.errors import KasmonError, UsageError

Scene = Callable[[], Figure | list[Figure]]


def scenes(rounds: int, seconds: float) -> dict[str, Scene]:
    """Everything that can be measured, by name: *rounds* of what is timed, *seconds* of what is watched."""
    return {
        "first-frame": partial(startup.first_frame, rounds),
        "ls": partial(startup.ls, rounds),
        "memory": partial(startup.memory, 3),
        "focus": partial(focus.key_to_glyph, 3),
        **{f"rest-{count}": partial(curve.resting, count, seconds) for count in (10, 50, 200, 1000)},
        "busy": partial(load.busy, seconds),
        "evidence": partial(evidence.observing, seconds),
        "evidence-late": partial(evidence.changes, seconds),
        "delivery": partial(delivery.delivered, 1000),
        "rows": partial(rows.changing, seconds),
        "flood": partial(flood.stall, seconds),
        "talk": partial(talk.event_to_screen, seconds),
        "last-page": partial(long.last_page, rounds),
        "dialog": partial(asking.event_to_dialog, 4 * rounds),
        "plan": plans.running,
        "plan-file": partial(plans.reading, rounds),
        "search": partial(search.searching, rounds),
        "radar": partial(radar.sweeping, rounds),
        "jail": partial(jails.ready, 3 * rounds),
        "jails": partial(jails.many, seconds),
        "run": partial(runs.requests, 30 * rounds),
        "standby": partial(runs.standby, 4 * rounds),
        "run-host": partial(runs.through_host, 20 * rounds),
        "checkpoint": partial(keeping.keeping, rounds),
        "microvm-boot": partial(memories.booted, 3),
        "microvm-clone": partial(memories.copied, rounds),
        "microvm-pause": partial(memories.paused, "microvm", rounds),
        "microvm-resume": partial(memories.resumed, "microvm", rounds),
        "microvm-clones": memories.many,
        "gvisor-checkpoint": partial(memories.paused, "gvisor", rounds),
        "gvisor-restore": partial(memories.resumed, "gvisor", rounds),
        **{f"host-{agent}": partial(hosts.host, agent, 3) for agent in ("scripted", *hosts.REAL)},
    }


def main(names: Sequence[str] = (), *, rounds: int = 9, seconds: float = 10.0, json: bool = False) -> int:
    """Measure *names* (all where there are none), print a table or one JSON object; 0 also where a target is missed.

    What cannot be measured here (an agent is not installed, say) is left out, and the output says why.

    Raises:
        UsageError: if a name is none of ours.
    """
    known = scenes(rounds, seconds)
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"there is nothing called {unknown[0]!r} to measure.", hint=f"There is: {', '.join(known)}.")
    figures: list[Figure] = []
    left_out: dict[str, str] = {}
    for name in names or known:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        try:
            found = known[name]()
        except (KasmonError, TimeoutError, OSError) as error:
            left_out[name] = error.message if isinstance(error, KasmonError) else str(error)
            continue
        figures += found if isinstance(found, list) else [found]
    if json:
        told = [msgspec.to_builtins(figure) | {"judged": figure.judged} for figure in figures]
        found_here = {"schema": 1, "machine": machine(), "figures": told, "left_out": left_out}
        print(msgspec.json.encode(found_here).decode())
    else:
        print("\n".join([machine(), "", table(figures), *_left_out(left_out)]))
    return 0


def _left_out(left_out: Mapping[str, str]) -> list[str]:
    """Lines that say what was not measured, and why."""
    return ["", *(f"{name}: not measured: {why}" for name, why in left_out.items())] if left_out else []


def machine() -> str:
    """What this was measured on, in one line."""
    memory_gb = psutil.virtual_memory().total / 1e9
    return (
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}"
    )
