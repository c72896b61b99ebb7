"""Measures the cost of running a plan of many tasks, the delay before a next task, and reading a large plan."""

import bisect
import time
from typing import Final

import psutil

from kasmon.bench.support.figure import Figure, percentile, timed, took_ms
from kasmon.bench.support.fleet import scratch
from kasmon.errors import TimedOutError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import TurnEnded
from kasmon.model.plan import graph
from kasmon.model.plan.events import TaskBegan, decode
from kasmon.model.plan.parser import read
from kasmon.paths import Paths, write_private
from kasmon.store.event_log import EventLog
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans import start

TASKS, WAVES = 200, 20
LARGE: Final = 10_000
LIMIT_S: Final = 600.0
NAME: Final = "plan.toml"


def measure_run(tasks: int = TASKS, waves: int = WAVES) -> list[Figure]:
    """Measure a plan of scripted agents from its first task to its end."""
    text = _build_text(tasks, waves)
    with scratch() as paths:
        file = paths.state / NAME
        write_private(file, text.encode())
        plan_log = start.store_approved_plan(paths, read(text, NAME), text, file, paths.state, headless=True)
        start.run(paths, plan_log)
        spent_s, took_s = _measure_runner(plan_log)
        delays = _measure_delays(paths, plan_log)
    what = f"{tasks} tasks in {waves} waves"
    return [
        Figure(
            name=f"the runner of {what}",
            value=100 * spent_s / took_s,
            unit="% of a core",
            target=15,
            samples=1,
            note=f"{spent_s:.1f} s of processor in {took_s:.0f} s",
        ),
        timed(
            "an agent's turn ends to the next task begins, p95",
            delays,
            300,
            f"p50 {percentile(delays, 0.5):.0f} ms",
            share=0.95,
        ),
    ]


def measure_reading(rounds: int) -> Figure:
    """Measure a large plan from its text to the lines of its graph."""
    text = "\n".join(
        f'[[task]]\nid = "t{n}"\nprompt = "x"\nneeds = {[f"t{n - back}" for back in (7, 11) if n > back]}'
        for n in range(1, LARGE + 1)
    )
    times = [took_ms(lambda: graph.text(read(text, NAME))) for _ in range(rounds)]
    return timed(f"a plan of {LARGE:,} tasks, read and drawn", times, 1000)


def _build_text(tasks: int, waves: int) -> str:
    head = 'name = "bench"\nagent = "scripted"\nmode = "sdk"\nworktree = "folder"\nadvance = "auto"\nlimit = 10\n'
    of_wave = tasks // waves
    return head + "\n".join(
        f'[[task]]\nwave = {n // of_wave + 1}\nprompt = """\nsay Hello.\nslow 0.5\nsay Done.\n"""' for n in range(tasks)
    )


def _measure_runner(plan_log: PlanLog) -> tuple[float, float]:
    """Return the processor time of the plan's runner and the duration of the plan, in seconds."""
    began = time.monotonic()
    runner: psutil.Process | None = None
    spent_s = 0.0
    while plan_log.run.state != "ended":
        if time.monotonic() > began + LIMIT_S:
            raise TimedOutError(f"the plan did not end within {LIMIT_S:g} s.")
        holder = lock_holder(plan_log.lock)
        if runner is None and holder:
            runner = psutil.Process(holder)
        if runner is not None and runner.is_running():
            try:
                times = runner.cpu_times()
            except psutil.Error:
                break
            spent_s = float(times.user + times.system)
        time.sleep(0.2)
        plan_log.more()
    return spent_s, time.monotonic() - began


def _measure_delays(paths: Paths, plan_log: PlanLog) -> list[float]:
    """Return, for each task but the first, the delay in ms from the last end of a turn before it to its beginning."""
    ended: list[float] = []
    for task in plan_log.run.tasks.values():
        events = EventLog(paths.log(task.session)).events()
        ended += [event.at for event in events if isinstance(event, TurnEnded)]
    ended.sort()
    delays = []
    for line, _ in EventLog(plan_log.folder / "events.jsonl").lines():
        event = decode(line)
        if isinstance(event, TaskBegan) and (at := bisect.bisect_right(ended, event.at)):
            delays.append(1000 * (event.at - ended[at - 1]))
    return delays
