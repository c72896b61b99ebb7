"""What a plan's runner does with tasks that have begun; each action logs its result in the plan's log."""

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Final

import msgspec

from kasmon.config import Config
from kasmon.errors import KasmonError, NotFoundError, RemoteUnreachableError, SessionEndedError
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PlanFact, TaskChecked, TaskClaimed, TaskDone, TaskFailed
from kasmon.model.plan.placement import is_elsewhere, worktree_of
from kasmon.model.plan.plan import Plan, Task, predecessors
from kasmon.model.plan.progress import Placement, TaskRun
from kasmon.model.plan.scheduler import ClaimTask, FinishTask
from kasmon.model.session import Session
from kasmon.model.session_state import OVER, SessionState
from kasmon.paths import Paths, private_folder, write_private
from kasmon.repository.git import shared_folder
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans import task_folder
from kasmon.supervisor.plans.check import run_check
from kasmon.supervisor.plans.machines.registered_tasks import RegisteredTasks, build_end
from kasmon.supervisor.plans.remote_task import RemoteTasks
from kasmon.supervisor.plans.sandboxes import fetch_changes
from kasmon.supervisor.plans.task_session import variables
from kasmon.supervisor.plans.worktree_base import uncommitted
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.worktrees.changes import changed_files
from kasmon.supervisor.worktrees.worktree import TaskWorktree
from kasmon.tmux.remote.ssh import RemoteMachine

REACHED_S: Final = 60.0
"""After a machine did not answer for so long, a task there counts as claimed without its result."""

log = logging.getLogger(__name__)


class TaskActions:
    """Acts on the tasks of the plan of *plan_log*; used by its runner only."""

    def __init__(self, paths: Paths, plan_log: PlanLog, config: Config, task_folders: task_folder.TaskFolders) -> None:
        self._paths = paths
        self._plan_log = plan_log
        self._task_folders = task_folders
        self.remote_tasks = RemoteTasks(config.remote.ssh)
        self.registered_tasks = RegisteredTasks(paths, plan_log)
        self._unreachable_since: dict[str, float] = {}
        """Session -> when its machine first failed to answer, on the monotonic clock, in seconds."""

    async def claim(self, plan: Plan, step: ClaimTask) -> None:
        """Log that the step's task is claimed, with its changes, and store its result."""
        task, at = step.task, self._plan_log.run.of(step.task.id)
        fetch_problem = await asyncio.to_thread(self._fetch_changes, plan, task, at)
        if not step.outcome.by:
            await self._note(TaskFailed(at=time.time(), task=task.id, attempt=step.attempt, why=step.outcome.text))
            return
        has_own_worktree = worktree_of(plan, task) == "own"
        if is_elsewhere(plan, task, self._plan_log.run):
            try:
                change_count, result_text, remark = await self._fetch_result(plan, task, step.attempt)
            except RemoteUnreachableError:
                raise
            except KasmonError as error:
                why = f"its work could not be fetched: {str(error).rstrip('.')}"
                await self._note(TaskFailed(at=time.time(), task=task.id, attempt=step.attempt, why=why))
                return
        elif (machine := self.remote_tasks.machine(plan, self._plan_log.run, task)) is not None:
            change_count = None
            result_text, remark = await self._result_of(machine, task, at.session)
        else:
            change_count = await asyncio.to_thread(_count_changes, at, has_own_worktree)
            result_text = await asyncio.to_thread(task_folder.result, Path(at.workdir), task, at.began_at)
            remark = f" ({fetch_problem})" if fetch_problem else ""
            if has_own_worktree and any(task.id in predecessors(plan, other) for other in plan.tasks):
                uncommitted_files = await asyncio.to_thread(uncommitted, Path(at.workdir))
                remark += f" ({uncommitted_files}: dependent tasks start without them)" if uncommitted_files else ""
        claimed = TaskClaimed(
            at=time.time(),
            task=task.id,
            attempt=step.attempt,
            by=step.outcome.by,
            text=f"{step.outcome.text}{remark}",
            changed=change_count,
        )
        await asyncio.to_thread(self._store_result, task, result_text, claimed)

    async def _fetch_result(self, plan: Plan, task: Task, attempt: int) -> tuple[int | None, str, str]:
        """Fetch what *attempt* did on its machine; return how many files it changed, its result, and a remark."""
        run = self._plan_log.run
        found = await asyncio.to_thread(self.registered_tasks.read_result, run, task, attempt)
        repo, branch = await asyncio.to_thread(shared_folder, Path(run.folder)), run.of(task.id).branch
        await asyncio.to_thread(self.registered_tasks.fetch, run, task, attempt, repo, branch, found.commit)
        remark = f" ({found.problem})" if found.problem else ""
        if found.uncommitted and any(task.id in predecessors(plan, other) for other in plan.tasks):
            remark += f" ({found.uncommitted}: dependent tasks start without them)"
        return found.changed, found.text, remark

    async def _result_of(self, machine: RemoteMachine, task: Task, session: str) -> tuple[str, str]:
        """Return the result of *task* on *machine*, and a remark if the machine cannot be reached.

        Raises `RemoteUnreachableError` if it does not answer, but not for long enough yet.
        """
        try:
            return await self.remote_tasks.result(machine, task, task_folder.LONGEST_RESULT), ""
        except RemoteUnreachableError as error:
            since = self._unreachable_since.setdefault(session, time.monotonic())
            if time.monotonic() < since + REACHED_S:
                raise
            return "", f" (its changes on {machine.host} were not fetched: {error.why})"

    async def check(self, plan: Plan, task: Task, attempt: int) -> None:
        """Run the check of *task* where the task worked, and log its result."""
        run = self._plan_log.run
        at = run.of(task.id)
        if is_elsewhere(plan, task, run):
            try:
                checked = await self.registered_tasks.check(run, task, attempt, self._note)
                if checked.ok:  # what was committed meanwhile was checked, too
                    await self._fetch_result(plan, task, attempt)
                await self._note(checked)
            except RemoteUnreachableError:
                raise  # it is asked again, and answers with the result of the same check
            except KasmonError as error:
                why = f"could not be run: {str(error).rstrip('.')}"
                await self._note(TaskChecked(at=time.time(), task=task.id, attempt=attempt, ok=False, why=why))
            return
        if (machine := self.remote_tasks.machine(plan, run, task)) is not None:
            own = variables(self._plan_log.plan, task, at.session, {})
            await self._note(
                await self.remote_tasks.check(machine, task, attempt, at.session, own, self._note, task.check_limit_s)
            )
            return
        try:
            await asyncio.to_thread(self._task_folders.check, plan, task, run)
        except KasmonError as error:
            why = f"could not be run: {str(error).rstrip('.')}"
            await self._note(TaskChecked(at=time.time(), task=task.id, attempt=attempt, ok=False, why=why))
            return
        own = variables(self._plan_log.plan, task, at.session)
        await self._note(await run_check(task.id, attempt, task.check, at.workdir, own, self._note, task.check_limit_s))

    async def settle(self, step: FinishTask, fleet: Fleet) -> None:
        """Log the outcome of the step's task; interrupt a failed command that still runs."""
        at, now, id_ = self._plan_log.run.of(step.task.id), time.time(), step.task.id
        if step.done:
            await self._note(TaskDone(at=now, task=id_, attempt=step.attempt, why=step.why))
        else:
            await self._note(TaskFailed(at=now, task=id_, attempt=step.attempt, why=step.why, is_lost=step.is_lost))
        known = fleet.get(SessionId(at.session))
        if step.task.run and not step.done and known is not None and known.state is SessionState.WORKING:
            with contextlib.suppress(KasmonError):  # another command may run in its terminal, if this one ends
                await session_operations.interrupt(self._paths, known)

    async def end(self, session: SessionId, fleet: Fleet) -> None:
        """Stop *session*, which no task needs any more."""
        known = fleet.get(session)
        if known is not None and known.exists:
            with contextlib.suppress(SessionEndedError):  # the fleet was not up to date
                await session_operations.stop(self._paths, known)

    async def end_placement(self, plan: Plan, id_: str, placement: Placement, session: Session | None) -> None:
        """End an attempt of the task *id_* that must not run any more on its machine, and log what it did.

        *session* is its own, as far as that is known; if it has ended, the machine is not asked. Raises as
        `RegisteredTasks.end`.
        """
        ended = build_end(id_, placement)
        removed = Task(id=id_, number=0)  # if it is no longer in the plan
        task = next((each for each in plan.tasks if each.id == id_), removed)
        if session is not None and session.state in OVER:
            ended = msgspec.structs.replace(ended, session=session.id, state="ended")
        elif placement.number or task.number:
            try:
                ended = await asyncio.to_thread(self.registered_tasks.end, task, placement)
            except NotFoundError as error:  # the machine is no longer registered
                log.warning("attempt %s of %s on %s: %s", placement.attempt, id_, placement.machine, error)
        await self._note(ended)

    def _fetch_changes(self, plan: Plan, task: Task, at: TaskRun) -> str:
        """Copy the changes of *task* from its sandbox to its folder; describe what was not copied."""
        if not self._paths.sandbox(SessionId(at.session)).exists():
            return ""
        try:
            self._task_folders.check(plan, task, self._plan_log.run)
        except KasmonError as error:
            return f"Its changes in the sandbox were not fetched: {error}"
        return fetch_changes(self._paths, SessionId(at.session), Path(at.workdir))

    def _store_result(self, task: Task, result: str, claimed: TaskClaimed) -> None:
        """Store the result of *task*, if any, before it counts as claimed."""
        if result:
            path = self._plan_log.result(task)
            private_folder(path.parent)
            write_private(path, result.encode())
        self._plan_log.note(claimed)

    async def _note(self, fact: PlanFact) -> None:
        await asyncio.to_thread(self._plan_log.note, fact)


def _count_changes(at: TaskRun, has_own_worktree: bool) -> int | None:
    """Return how many files differ from the task's start; None if unknown.

    In a shared worktree, other tasks change files too: there the only known count is 0, if nothing changed at all.
    """
    if not at.base:
        return None
    tree = TaskWorktree(path=at.workdir, branch=at.branch, base=at.base)
    if not has_own_worktree:
        return 0 if at.initial_state and task_folder.state_of(tree) == at.initial_state else None
    try:
        return len(changed_files(Path(tree.path), tree.base))
    except KasmonError as error:
        log.warning("what changed in %s: %s", tree.path, error)
        return None
