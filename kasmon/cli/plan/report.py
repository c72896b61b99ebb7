"""Run a plan without a screen: follow it line by line, and report its end as text, JSON or JUnit."""

import asyncio
import json
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal
from xml.etree import ElementTree as ET

from kasmon.cli.output.console import INTERRUPTED, say, say_block
from kasmon.cli.output.json_objects import answer, error_object
from kasmon.cli.plan.json_objects import plan_object
from kasmon.errors import KasmonError
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.progress import PlanRun, TaskRun, TaskState
from kasmon.paths import Paths, write_private
from kasmon.sanitize import clean_block
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans import start

LOOK_S: Final = 0.2
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""The signals that stop a plan that a command waits for."""
STOPPING_S: Final = 30.0
"""How long the agents of a stopped plan may take to end before the waiting command exits."""
LOST_S: Final = 10.0
"""How long a plan may be without a runner before the command stops waiting."""


class PlanStoppedError(KasmonError):
    """A signal ended the command that waited for a plan, and it stopped the plan."""

    exit_code, code = INTERRUPTED, "interrupted"


async def follow(paths: Paths, plan_log: PlanLog, *, quiet: bool) -> PlanRun:
    """Run the plan of *plan_log* until it has ended, and print its progress.

    SIGINT or SIGTERM stops the plan: no task starts, its sessions and checks end. A second one ends only this command.

    Raises:
        PlanStoppedError: if a signal stopped it; names how to resume it.
        KasmonError: if it has no runner any more.
    """
    received: list[signal.Signals] = []
    loop = asyncio.get_running_loop()

    def receive(number: signal.Signals) -> None:
        received.append(number)
        for each in SIGNALS:
            loop.remove_signal_handler(each)

    for each in SIGNALS:
        loop.add_signal_handler(each, receive, each)
    try:
        await asyncio.to_thread(start.run, paths, plan_log)
        return await _follow(paths, plan_log, received, quiet=quiet)
    finally:
        for each in SIGNALS:
            loop.remove_signal_handler(each)


async def _follow(paths: Paths, plan_log: PlanLog, received: Sequence[signal.Signals], *, quiet: bool) -> PlanRun:
    states: dict[str, TaskState] = {}
    loop = asyncio.get_running_loop()
    gone_at = loop.time() + LOST_S
    while True:
        await asyncio.to_thread(plan_log.more)
        for id_, task in plan_log.run.tasks.items():
            if states.get(id_) is not task.state:
                states[id_] = task.state
                if not quiet:
                    why = f": {task.why}" if task.why and task.state is not TaskState.RUNNING else ""
                    say(f"task {id_}  {state_label(task)}{why}")
        if plan_log.run.state == "ended":
            return plan_log.run
        if received:
            raise await _stop(paths, plan_log, received[0])
        if await asyncio.to_thread(start.is_run, plan_log):
            gone_at = loop.time() + LOST_S
        elif loop.time() > gone_at:
            raise KasmonError(
                f"plan {plan_log.plan!r} has lost its runner.",
                hint=f"See {str(plan_log.runner_log)!r}, then run `kasmon recover`.",
            )
        await asyncio.sleep(LOOK_S)


async def _stop(paths: Paths, plan_log: PlanLog, received: signal.Signals) -> PlanStoppedError:
    """Stop the plan of *plan_log* for the signal *received*; return the error to raise, once its runner has ended."""
    await asyncio.to_thread(plan_log.record_decision, "stop")
    await asyncio.to_thread(start.run, paths, plan_log)
    how = "Its agents and checks were ended; its worktrees are kept."
    deadline = time.monotonic() + STOPPING_S
    while await asyncio.to_thread(start.is_run, plan_log):
        if time.monotonic() > deadline:
            how = f"Its agents are still stopping after {STOPPING_S:g} s; see {str(plan_log.runner_log)!r}."
            break
        await asyncio.sleep(LOOK_S)
    return PlanStoppedError(
        f"plan {plan_log.plan!r} was stopped by {received.name}. {how}",
        hint=f"`kasmon plan resume {plan_log.plan}` starts the interrupted tasks again, in the same folders.",
    )


def report(
    plan: Plan,
    run: PlanRun,
    form: Literal["text", "json", "junit"],
    output: str,
    stopped: PlanStoppedError | None = None,
) -> None:
    """Print how *plan* ended, or its progress when it was *stopped*; or write that into the file *output*."""
    if form == "json":
        failure = {} if stopped is None else error_object(stopped)
        text = json.dumps(failure | answer(plan=plan_object(plan, run))) + "\n"
    else:
        text = {"text": _text, "junit": _junit}[form](plan, run)
    if output:
        write_private(Path(output).absolute(), text.encode())
    else:
        say_block(text.rstrip("\n"))


def _text(plan: Plan, run: PlanRun) -> str:
    outcome = "stopped" if run.is_stopped else run.outcome
    lines = [f"{plan.name} ({run.plan}): {outcome}{f', {run.why}' if run.why else ''}"]
    for task in plan.tasks:
        at = run.of(task.id)
        known = "checked" if at.is_checked else "not checked" if at.state is TaskState.DONE else ""
        took = f"{at.duration_s:.1f} s" if at.duration_s is not None else ""
        facts = [
            _state(run, at),
            f"on {at.machine}" if at.machine else "",
            known,
            took,
            f"{at.attempt} attempts" if at.attempt > 1 else "",
            at.why,
        ]
        lines.append(f"  {task.number:>3} {task.title}: {', '.join(word for word in facts if word)}")
    return "\n".join(lines) + "\n"


def _state(run: PlanRun, at: TaskRun) -> str:
    """Return the progress of a task of *run*; for a stopped plan, whether the task ran at all."""
    if at.state is TaskState.WAITING and run.is_stopped:
        return "stopped while running" if at.attempt else "did not run"
    return state_label(at)


def state_label(at: TaskRun) -> str:
    """Return the state of a task for people, as on the board."""
    return "done?" if at.state is TaskState.CLAIMED else at.state.value


def _junit(plan: Plan, run: PlanRun) -> str:
    """Return one test case for each task, one suite for each wave, in the format of CI systems."""
    top = ET.Element("testsuites", name=_xml(plan.name))
    for wave in range(1, plan.waves + 1):
        states = [run.of(task.id).state for task in plan.wave(wave)]
        counts = {
            "tests": len(states),
            "failures": states.count(TaskState.FAILED),
            "errors": 0,
            "skipped": sum(state not in _RAN for state in states),
        }
        suite = ET.SubElement(
            top, "testsuite", {"name": f"wave {wave}"} | {name: str(count) for name, count in counts.items()}
        )
        for task in plan.wave(wave):
            _add_case(suite, plan, task, run)
    ET.indent(top)
    return ET.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


_RAN: Final = (TaskState.DONE, TaskState.FAILED)


def _add_case(suite: ET.Element, plan: Plan, task: Task, run: PlanRun) -> None:
    at = run.of(task.id)
    name = _xml(f"{task.number} {task.title}")
    case = ET.SubElement(suite, "testcase", classname=_xml(plan.name), name=name, time=f"{at.duration_s or 0:.3f}")
    if at.state is TaskState.FAILED:
        failure = ET.SubElement(case, "failure", message=_xml(at.why))
        failure.text = _xml(at.check.output) if at.check is not None else ""
    elif at.state is not TaskState.DONE:
        ET.SubElement(case, "skipped", message=_xml(at.why or _state(run, at)))
    elif not at.is_checked:
        ET.SubElement(case, "system-out").text = _xml(f"reported as done by its agent, not checked: {at.why}")


_NO_XML: Final = re.compile("[\ud800-\udfff\ufffe\uffff]")


def _xml(text: str) -> str:
    """Return *text* without characters that XML 1.0 excludes."""
    return "".join(c for c in clean_block(text) if c in "\t\n" or (c >= " " and not _NO_XML.match(c)))
