"""Plans and their runs for tests, made of texts and facts, as in life."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kasmon.model.commands import Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.permission import SessionId
from kasmon.model.plan import events, scheduler
from kasmon.model.plan.parser import parse_for_display
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.progress import PlanRun, apply
from kasmon.model.plan.validation import PlanDraft, validate
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

NOW = 1_000.0


def task(id_: str, number: int = 0, **more: Any) -> Task:
    return Task(**{"id": id_, "number": number, "title": id_, "wave": 0, "line": number, **more})


def plan(*tasks: Task, **more: Any) -> Plan:
    """A plan of *tasks*, numbered in their order, that holds together."""
    numbered = tuple(msgspec.structs.replace(one, number=n, line=n) for n, one in enumerate(tasks, 1))
    made, faults = validate(PlanDraft(Plan(**{"name": "tidy", "tasks": numbered, **more})))
    assert not faults
    return made.settled(agent="scripted", limit=8, advance=False, believe=False)


def faults(text: str, file: str = "tidy.toml", agents: tuple[str, ...] | None = None) -> list[str]:
    """What is wrong with *text*, each as `LINE: why`."""
    return [f"{fault.line}: {fault.why}" for fault in parse_for_display(text, file, agents)[1]]


def run(*facts: events.PlanFact, headless: bool = False) -> PlanRun:
    began = events.PlanBegan(
        at=0, plan="tidy", name="tidy", file="/p/tidy.md", folder="/p", digest="d", headless=headless
    )
    now = PlanRun()
    for fact in (began, *facts):
        now = apply(now, fact)
    return now


def placed(id_: str, attempt: int = 1, machine: str = "m", at: float = 5.0, why: str = "free") -> events.TaskPlaced:
    return events.TaskPlaced(at=at, task=id_, attempt=attempt, machine=machine, why=why)


def began(id_: str, attempt: int = 1, session: str = "", at: float = 10.0, **more: Any) -> events.TaskBegan:
    """It runs in the session `s` + its id, unless another one is named."""
    return events.TaskBegan(at=at, task=id_, attempt=attempt, session=session or f"s{id_}", **more)


def claimed(id_: str, attempt: int = 1, at: float = 20.0, **more: Any) -> events.TaskClaimed:
    return events.TaskClaimed(**{"at": at, "task": id_, "attempt": attempt, "by": "turn", "text": "did it", **more})


def checked(id_: str, ok: bool, attempt: int = 1, **more: Any) -> events.TaskChecked:
    return events.TaskChecked(**{"at": 25, "task": id_, "attempt": attempt, "ok": ok, "exit_code": int(not ok), **more})


def checking(id_: str, attempt: int = 1, **more: Any) -> events.TaskChecking:
    return events.TaskChecking(**{"at": 22, "task": id_, "attempt": attempt, "pid": 7, "mark": "m", **more})


def done(id_: str, attempt: int = 1) -> tuple[events.PlanFact, ...]:
    return began(id_, attempt), claimed(id_, attempt), events.TaskDone(at=30, task=id_, attempt=attempt, why="did it")


def failed(id_: str, attempt: int = 1, why: str = "it broke") -> tuple[events.PlanFact, ...]:
    return began(id_, attempt), events.TaskFailed(at=30, task=id_, attempt=attempt, why=why)


def steered(action: events.PlanAction, id_: str = "", agent: str = "") -> events.PlanDecisionMade:
    return events.PlanDecisionMade(at=40, decision=action, task=id_, agent=agent)


def session(id_: str, state: SessionState = SessionState.WORKING, *receipts: Receipt, **more: Any) -> Session:
    """The session of the task *id_*, which runs."""
    base = {"id": SessionId(f"s{id_}"), "name": id_, "mode": Mode.SDK, "generation": 1, "plan": "tidy"}
    return Session(**{**base, "state": state, "receipts": receipts, **more})


def receipt(state: ReceiptState, at: float = 11.0, **more: Any) -> Receipt:
    return Receipt(id=ReceiptId("s-r1"), session=SessionId("s"), state=state, at=at, **more)


FINISHED = receipt(ReceiptState.FINISHED, carried_by="text")


def turned(id_: str, **more: Any) -> Session:
    """Its agent's turn is over."""
    return session(id_, SessionState.IDLE, FINISHED, **{"turn_ended": "done", "last_line": "did it", **more})


def next_of(
    of: Plan, at: PlanRun, *sessions: Session, limit: int = 8, now: float = NOW, lost: Mapping[str, str] = {}
) -> scheduler.NextSteps:
    return scheduler.next_steps(of, at, {str(one.id): one for one in sessions}, limit, now, lost)


def words(found: scheduler.NextSteps) -> list[str]:
    return [_word(step) for step in found.steps]


def _word(step: Any) -> str:
    match step:
        case scheduler.StartNextAttempt():
            return f"begin {step.task.id} {step.attempt}"
        case scheduler.ChooseMachines():
            return f"place {', '.join(f'{each.task.id} {each.attempt}' for each in step.tasks)}"
        case scheduler.StartAttemptSession():
            return f"start {step.task.id} in {step.session}"
        case scheduler.ClaimTask():
            return f"claim {step.task.id}: {step.outcome.by or 'failed'}, {step.outcome.text}"
        case scheduler.FinishTask():
            return f"{'done' if step.done else 'failed'} {step.task.id}: {step.why}"
        case scheduler.EndTaskSession():
            return f"end {step.session}"
        case scheduler.FinishPlan():
            return f"finish {step.outcome}{f', {step.why}' if step.why else ''}"
        case scheduler.CheckTask():
            return f"check {step.task.id}"
        case _:
            raise AssertionError(step)
