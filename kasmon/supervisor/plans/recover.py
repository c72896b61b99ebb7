"""After a crash or a reboot: find out what the running plans lost, and continue each of them.

Recovery never starts a task twice: it resumes the agent's conversation by id and prompts it to continue. A task that
cannot be resumed, such as a command in a lost shell, has failed; the plan decides what follows.
"""

import asyncio
import time
from typing import Final, Literal, NamedTuple

from kasmon.errors import KasmonError
from kasmon.model.commands import ReceiptState
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import TaskFailed
from kasmon.model.plan.progress import ACTIVE, TaskRun, TaskState, is_over
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog, plans
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.check import runs_check
from kasmon.supervisor.plans.view import approved_plan
from kasmon.supervisor.sessions import session_operations

GO_ON: Final = (
    "The machine or the program that you ran in was interrupted, and this conversation was "
    "resumed. Check what is already done, then continue your task."
)
NO_ID: Final = "its conversation cannot be resumed: its agent reported no id"


class InterruptedPlan(NamedTuple):
    """One loss, and what recovery does about it."""

    plan: str
    action: Literal["resume", "fail", "run"]
    """`resume` the session's conversation, `fail` its task, or `run` the plan's runner again."""
    task: str = ""
    attempt: int = 0
    session: Session | None = None
    why: str = ""


def find_interrupted_plans(paths: Paths, fleet: Fleet) -> list[InterruptedPlan]:
    """Return what the plans that are not over lost; each plan's own runner follows its tasks.

    Raises:
        PlanNotFoundError, PlanFaultyError: if a plan's approved text is gone.
    """
    found: list[InterruptedPlan] = []
    for id_ in plans(paths):
        plan_log = PlanLog(paths, id_)
        plan_log.more()
        if not plan_log.run.began_at or is_over(plan_log.run):
            continue
        if plan_log.run.state == "ended":
            if not start.is_run(plan_log):
                found.append(InterruptedPlan(id_, "run", why="it has ended, but not yet on each machine"))
            continue
        tasks = {task.id: task for task in approved_plan(plan_log).tasks}
        for name, at in plan_log.run.tasks.items():
            session = fleet.get(SessionId(at.session))
            if at.state not in ACTIVE or session is None or session.state is not SessionState.LOST:
                continue
            if name in tasks and tasks[name].run:
                found.append(InterruptedPlan(id_, "fail", name, at.attempt, session, "its shell is gone"))
            elif not session.resume_id:
                found.append(InterruptedPlan(id_, "fail", name, at.attempt, session, NO_ID))
            else:
                found.append(InterruptedPlan(id_, "resume", name, at.attempt, session, session.resume_id))
        if start.is_run(plan_log):
            continue
        if not plan_log.run.is_stopped:
            found.append(InterruptedPlan(id_, "run", why="it has no runner"))
        elif any(_may_run_check(at) for at in plan_log.run.tasks.values()):
            found.append(InterruptedPlan(id_, "run", why="it is stopped, and a check of it still runs"))
    return found


def _may_run_check(at: TaskRun) -> bool:
    """Whether a check of a stopped plan runs here, or was not ended on its machine."""
    if at.checking is None:
        return False
    is_elsewhere = bool(at.placements) and not at.checking.pid and at.state is TaskState.CLAIMED
    return is_elsewhere or runs_check(at.checking)


async def recover(paths: Paths, loss: InterruptedPlan) -> str:
    """Recover from *loss*; describe the result. If that fails, a task whose session cannot be restarted has failed."""
    plan_log = PlanLog(paths, loss.plan)
    if loss.action == "run":
        await asyncio.to_thread(start.run, paths, plan_log)
        return "continues"
    if loss.action == "fail" or loss.session is None:
        failed = TaskFailed(at=time.time(), task=loss.task, attempt=loss.attempt, why=loss.why)
        await asyncio.to_thread(plan_log.add, failed)
        return f"has failed: {loss.why}"
    before = loss.session
    try:
        await session_operations.restart(paths, before)
        now = (await asyncio.to_thread(read_fleet, paths)).get(before.id)
        if now is not None and was_cut(before) and not now.queue:
            await session_operations.send(paths, now, GO_ON, "now", "wave")
    except KasmonError as error:
        why = f"its session did not come back: {error.message.rstrip('.')}"
        failed = TaskFailed(at=time.time(), task=loss.task, attempt=loss.attempt, why=why)
        await asyncio.to_thread(plan_log.add, failed)
        raise
    proof = f" ({now.proof})" if now is not None and now.proof else ""
    return f"is resumed as {before.resume_id or before.id}{proof}"


def was_cut(session: Session) -> bool:
    """Whether *session* was lost within a turn, or with a prompt on its way."""
    going = (ReceiptState.TYPED, ReceiptState.SUBMITTED, ReceiptState.STARTED, ReceiptState.UNSURE, ReceiptState.LOST)
    return session.in_turn or any(receipt.state in going for receipt in session.receipts)
