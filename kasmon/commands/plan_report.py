"""A plan that runs without a screen: followed line by line, and reported at its end as text, JSON or JUnit."""

import asyncio
import json
import re
from pathlib import Path
from typing import Final, Literal
from xml.etree import ElementTree as ET

from kasmon.clean import clean_block
from kasmon.commands.objects import answer
from kasmon.commands.output import say, say_block
from kasmon.commands.plan_objects import plan_object
from kasmon.errors import KasmonError
from kasmon.model.plan.run import PlanRun, TaskRun, TaskState
from kasmon.model.plan.spec import Plan, Task
from kasmon.paths import write_private
from kasmon.store.plan import PlanBook
from kasmon.supervisor.plans import start

LOOK_S: Final = 0.2
LOST_S: Final = 10.0
"""A plan whose runner is gone for so long is not waited for."""


async def follow(book: PlanBook, *, quiet: bool) -> PlanRun:
    """Wait until the plan of *book* has ended, and print what moves meanwhile.

    Raises:
        KasmonError: if nobody runs it any more.
    """
    told: dict[str, TaskState] = {}
    loop = asyncio.get_running_loop()
    gone_at = loop.time() + LOST_S
    while True:
        await asyncio.to_thread(book.more)
        for id_, task in book.run.tasks.items():
            if told.get(id_) is not task.state:
                told[id_] = task.state
                if not quiet:
                    why = f": {task.why}" if task.why and task.state is not TaskState.RUNNING else ""
                    say(f"task {id_}  {task.state.value}{why}")
        if book.run.state == "ended":
            return book.run
        if await asyncio.to_thread(start.is_run, book):
            gone_at = loop.time() + LOST_S
        elif loop.time() > gone_at:
            raise KasmonError(
                f"nobody runs plan {book.plan!r} any more.",
                hint=f"See {str(book.runner_log)!r}; then `kasmon recover`.",
            )
        await asyncio.sleep(LOOK_S)


def report(plan: Plan, run: PlanRun, form: Literal["text", "json", "junit"], output: str) -> None:
    """Print how *plan* ended, or write that into the file *output*."""
    said = {"text": _text, "json": _json, "junit": _junit}[form](plan, run)
    if output:
        write_private(Path(output).absolute(), said.encode())
    else:
        say_block(said.rstrip("\n"))


def _text(plan: Plan, run: PlanRun) -> str:
    lines = [f"{plan.name} ({run.plan}): {run.outcome}{f', {run.why}' if run.why else ''}"]
    for task in plan.tasks:
        at = run.of(task.id)
        known = "checked" if at.is_checked else "claimed" if at.state is TaskState.DONE else ""
        took = f"{at.took_s:.1f} s" if at.took_s is not None else ""
        words = [at.state.value, known, took, f"{at.attempt} attempts" if at.attempt > 1 else "", at.why]
        lines.append(f"  {task.number:>3} {task.title}: {', '.join(word for word in words if word)}")
    return "\n".join(lines) + "\n"


def _json(plan: Plan, run: PlanRun) -> str:
    return json.dumps(answer(plan=plan_object(plan, run))) + "\n"


def _junit(plan: Plan, run: PlanRun) -> str:
    """One test case for each task, one suite for each wave, in the form that CI systems read."""
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
            _add_case(suite, plan, task, run.of(task.id))
    ET.indent(top)
    return ET.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


_RAN: Final = (TaskState.DONE, TaskState.FAILED)


def _add_case(suite: ET.Element, plan: Plan, task: Task, at: TaskRun) -> None:
    name = _xml(f"{task.number} {task.title}")
    case = ET.SubElement(suite, "testcase", classname=_xml(plan.name), name=name, time=f"{at.took_s or 0:.3f}")
    if at.state is TaskState.FAILED:
        failure = ET.SubElement(case, "failure", message=_xml(at.why))
        failure.text = _xml(at.check.output) if at.check is not None else ""
    elif at.state is not TaskState.DONE:
        ET.SubElement(case, "skipped", message=_xml(at.why or at.state.value))
    elif not at.is_checked:
        ET.SubElement(case, "system-out").text = _xml(f"claimed by its agent, not checked: {at.why}")


_NO_XML: Final = re.compile("[\ud800-\udfff\ufffe\uffff]")


def _xml(text: str) -> str:
    """*text* without what XML 1.0 cannot hold."""
    return "".join(c for c in clean_block(text) if c in "\t\n" or (c >= " " and not _NO_XML.match(c)))
