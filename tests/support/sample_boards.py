"""Builders of wave boards: a plan in the middle of its run, on the clock of `fleets`."""

from typing import Any

import msgspec

from kasmon.model.fleet import Fleet
from kasmon.model.plan.events import TaskChecked
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.progress import PlanRun, TaskRun, TaskState
from kasmon.model.plan.scheduler import next_steps
from kasmon.model.session import Session
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.supervisor.plans.edit import PlanEdit
from tests.support.sample_fleet import NOW, asking, ended, fleet, working

T = TaskState


def task(number: int, title: str, wave: int, *needs: int, **fields: Any) -> Task:
    base: dict[str, Any] = {"id": str(number), "number": number, "title": title, "wave": wave}
    return Task(
        **{**base, "needs": tuple(str(need) for need in needs), "body": f"{title}.\n\nMind the tests.", **fields}
    )


def at(state: TaskState, *, ago: float = 300.0, **fields: Any) -> TaskRun:
    """A task that began so long ago and is in this state."""
    base: dict[str, Any] = {"state": state, "attempt": 1, "since": NOW - ago / 2, "began_at": NOW - ago}
    return TaskRun(**{**base, **fields})


def checked(number: int, code: int = 0, output: str = "") -> TaskChecked:
    return TaskChecked(at=NOW - 30, task=str(number), attempt=1, ok=not code, exit_code=code, output=output, took_s=3.2)


TASKS = (
    task(1, "Write the lexer", 1, check="pytest -q tests/test_lex.py"),
    task(2, "Collect the grammar's examples", 1),
    task(3, "Write the parser", 2, 1, agent="codex", check="pytest -q"),
    task(4, "Explain a syntax error by its line", 2, 1, check="pytest -q"),
    task(5, "Read the old files", 2, 2, agent="gemini", check="make check"),
    task(6, "Format what was read", 3, 3, check="pytest -q"),
    task(7, "Document the grammar", 3),
)
PLAN = Plan(
    name="parser", goal="A parser of our own", agent="claude", advance="ask", without_check="ask", limit=4, tasks=TASKS
)
SESSIONS: tuple[Session, ...] = (
    ended("parser-W1-T1", plan="parser", cost_usd=0.42, agent="claude"),
    ended("parser-W1-T2", plan="parser", cost_usd=0.08, agent="claude"),
    working("parser-W2-T3", "Edit  src/parse.py", plan="parser", cost_usd=1.07, agent="codex", ago=20),
    asking("parser-W2-T4", plan="parser", cost_usd=0.31),
    ended("parser-W2-T5", 1, plan="parser", agent="gemini"),
)
DONE = {
    "1": at(
        T.DONE, session="parser-W1-T1", duration_s=540.0, why="its check passed", is_checked=True, check=checked(1)
    ),
    "2": at(T.DONE, session="parser-W1-T2", duration_s=75.0, why="accepted by user"),
}
RUNNING = DONE | {
    "3": at(T.RUNNING, session="parser-W2-T3", attempt=2, ago=1260, failures=("check failed (exit 1",)),
    "4": at(T.RUNNING, session="parser-W2-T4", ago=95),
    "5": at(
        T.FAILED,
        session="parser-W2-T5",
        duration_s=210.0,
        why="check failed (exit 2",
        check=checked(5, 2, "2 failed\nE  AssertionError: 3 != 4\n"),
        failures=("check failed (exit 2",),
        tries=1,
    ),
}


def board(tasks: dict[str, TaskRun] | None = None, plan: Plan = PLAN, *, gate: int = 2, **fields: Any) -> PlanBoard:
    """*plan* with its tasks as *tasks* says; what is next is worked out of that."""
    own = {name: fields.pop(name) for name in PlanRun.__struct_fields__ if name in fields}
    base: dict[str, Any] = {"plan": plan.name, "name": plan.name, "file": f"/home/you/{plan.name}.md"}
    run = PlanRun(**{**base, "began_at": NOW - 2400, "gate": gate, "tasks": RUNNING if tasks is None else tasks, **own})
    sessions = {str(session.id): session for session in SESSIONS}
    return PlanBoard(
        id=plan.name,
        plan=plan,
        run=run,
        ahead=next_steps(plan, run, sessions, plan.limit, NOW),
        sessions=sessions,
        **fields,
    )


def asked() -> PlanBoard:
    """A plan that asks whether its second wave may begin."""
    return board(DONE, gate=1)


def claimed() -> PlanBoard:
    """One that asks about a task that nothing checked."""
    two = at(T.CLAIMED, session="parser-W1-T2", claim="turn", why="34 examples in 9 files.", changed=0)
    return board(DONE | {"2": two}, gate=1)


def over() -> PlanBoard:
    return board(
        {each.id: at(T.DONE, duration_s=60.0, why="its check passed") for each in TASKS},
        state="ended",
        outcome="done",
        ended_at=NOW - 60,
    )


def edited(*refused: str) -> PlanBoard:
    lines = ("~ task 6: title: 'Format what was read' -> 'Format it'", "+ task 8: Measure it")
    shown = ("Plan 'parser': 8 tasks in 3 waves, in /home/you", "  starts 'claude' (claude) for tasks 1, 2, 4, 6, 7, 8")
    edit = PlanEdit(digest="d" * 64, lines=() if refused else lines, refused=refused, agreement=shown)
    return board(edit=edit)


def other(name: str = "docs") -> PlanBoard:
    """A second, small plan."""
    plan = msgspec.structs.replace(PLAN, name=name, tasks=(task(1, "Write the guide", 1),), goal="")
    return board({"1": at(T.RUNNING, ago=12)}, plan, gate=1)


def crew() -> Fleet:
    """The sessions of the plan."""
    return fleet(*SESSIONS)
