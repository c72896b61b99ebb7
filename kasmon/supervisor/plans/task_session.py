"""A task's session is announced, logged, started, in this order, so that a crash in between starts it only once."""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from kasmon.config import Config, load
from kasmon.config.agent_address import machine_of, there
from kasmon.errors import (
    KasmonError,
    MergeConflictError,
    ProtocolVersionError,
    RefusedError,
    RemoteUnreachableError,
)
from kasmon.model.commands import Launch, Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import TaskBegan, TaskFailed
from kasmon.model.plan.placement import is_elsewhere, worktree_of
from kasmon.model.plan.plan import GIT_LOCAL, Plan, Task, agent_of, host_of
from kasmon.model.plan.progress import PlanRun
from kasmon.model.plan.prompt import prompt, session_name
from kasmon.model.plan.shared_terminal import terminal_of
from kasmon.model.plan.start_limits import OWN_LOGIN, AccountChoice
from kasmon.model.plan.validation import named_needs
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog
from kasmon.store.session_reader import load_launch as launch_of
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.machines.check_process import build_variables
from kasmon.supervisor.plans.machines.registered_tasks import RegisteredTasks
from kasmon.supervisor.plans.machines.task_requests import StartTask, TaskKey
from kasmon.supervisor.plans.remote_task import HOME, RemoteTasks
from kasmon.supervisor.plans.sandboxes import record_folder, usual_mode
from kasmon.supervisor.plans.task_folder import TaskFolders, lay_out, state_of
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession, prepare
from kasmon.supervisor.sessions.start import begin
from kasmon.supervisor.worktrees.worktree import TaskWorktree


class AttemptStart(NamedTuple):
    """What an attempt actually starts, or continues in; empty if it gets no session."""

    agent: str = ""
    mode: str = ""
    sandbox: str = ""
    argv: tuple[str, ...] = ()
    state: str = ""
    """The state of its worktree, if that is on another machine."""
    since: float | None = None
    """As `TaskBegan` has it; likewise the next two."""
    account: str = ""
    account_why: str = ""


class TaskStarter:
    """Starts the attempts of one plan's tasks; used by its runner only.

    *begin_session* starts the agent of a session that was created and logged.
    """

    def __init__(
        self,
        paths: Paths,
        config: Config,
        plan_log: PlanLog,
        task_folders: TaskFolders,
        begin_session: Callable[[Paths, Launch], Awaitable[None]] = begin,
    ) -> None:
        self._begin = begin_session
        self._paths = paths
        self._config = config
        self._plan_log = plan_log
        self._task_folders = task_folders
        self._remote_tasks = RemoteTasks(config.remote.ssh)
        self._registered_tasks = RegisteredTasks(paths, plan_log)

    async def attempt(
        self,
        plan: Plan,
        run: PlanRun,
        task: Task,
        number: int,
        fleet: Fleet,
        account: AccountChoice = OWN_LOGIN,
    ) -> None:
        """Begin attempt *number* of *task* with *account*; an error is logged as its failure.

        Raises:
            ProtocolVersionError: if a host has another version.
            RemoteUnreachableError: if its registered machine did not answer: what was done there is unknown, and
                repeating it does it once. No other `KasmonError` is raised.
        """
        session, tree = SessionId(""), TaskWorktree(path="")
        try:
            if is_elsewhere(plan, task, run):
                await self._begin_elsewhere(plan, run, task, number, fleet)
                return
            if (machine := self._remote_tasks.machine(plan, run, task)) is not None:
                tree = TaskWorktree(path=there(machine.host, HOME))
                await self._remote_tasks.lay_out(machine, task)
            else:
                tree = await self._task_folders.prepare(plan, task, run)
            if (terminal := _terminal(plan, run, task, fleet)) is not None:
                await self._check_terminal(plan, run, task, terminal)
                await asyncio.to_thread(lay_out, Path(tree.path), task)
                started = AttemptStart(terminal.agent, terminal.mode, terminal.sandbox or "")
                await asyncio.to_thread(self._note, task, number, terminal.id, terminal.name, tree, started)
                await session_operations.send(self._paths, terminal, task.run, "idle")
                return
            launch = await asyncio.to_thread(self._prepare, plan, run, task, number, tree, fleet, account.account)
            session = launch.session
            await asyncio.to_thread(record_folder, self._paths, launch)
            started = AttemptStart(
                launch.agent,
                launch.mode,
                launch.sandbox or "",
                launch.argv,
                account=launch.account if account.account else "",
                account_why=account.why if launch.account == account.account else "",
            )
            await asyncio.to_thread(self._note, task, number, session, launch.name, tree, started)
            await self._begin(self._paths, launch)
        except ProtocolVersionError:
            raise
        except (KasmonError, OSError) as error:
            if isinstance(error, RemoteUnreachableError) and is_elsewhere(plan, task, run):
                raise
            is_unlogged = run.of(task.id).attempt < number and not session
            conflicts = error.files if isinstance(error, MergeConflictError) else ()
            await asyncio.to_thread(self._fail, task, number, _why(error), tree if is_unlogged else None, conflicts)

    async def _begin_elsewhere(self, plan: Plan, run: PlanRun, task: Task, number: int, fleet: Fleet) -> None:
        """Begin attempt *number* on its registered machine; if that raises, its failure is not logged yet."""
        branch = await self._task_folders.branch(plan, task, run)
        workdir = await asyncio.to_thread(self._registered_tasks.prepare, plan, run, task, number, branch)
        machine, key = await asyncio.to_thread(self._registered_tasks.key, run, task, number)
        tree = TaskWorktree(path=there(machine, workdir), branch=branch.name, base=branch.base)
        if (terminal := _terminal(plan, run, task, fleet)) is not None:
            last = max((receipt.at for receipt in terminal.receipts), default=0.0)
            continued = AttemptStart(
                terminal.agent, terminal.mode, terminal.sandbox or "", since=math.nextafter(last, math.inf)
            )
            await asyncio.to_thread(self._note, task, number, terminal.id, terminal.name, tree, continued)
            await session_operations.send(self._paths, terminal, task.run, "idle")
            return
        request = await asyncio.to_thread(self._build_start, plan, run, task, key)
        started = await asyncio.to_thread(self._registered_tasks.start, machine, request)
        began = AttemptStart(started.agent, started.mode, started.sandbox, started.argv, since=0.0, state=started.state)
        await asyncio.to_thread(self._note, task, number, started.session, started.name, tree, began)

    def _build_start(self, plan: Plan, run: PlanRun, task: Task, key: TaskKey) -> StartTask:
        return StartTask(
            key=key,
            agent=agent_of(plan, task, run.of(task.id).agent),
            mode=task.mode or plan.mode,
            sandbox=task.sandbox,
            prompt=task.run or self._prompt(plan, run, task),
            wave=task.wave,
            peers=len(plan.wave(task.wave)),
            environment=plan.env,
        )

    async def bring_back_host(self, plan: Plan, run: PlanRun, task: Task) -> None:
        """Have the registered machine of *task* start the host of its terminals again. Raises why it cannot."""
        machine, key = await asyncio.to_thread(self._registered_tasks.key, run, task, run.of(task.id).attempt)
        request = await asyncio.to_thread(self._build_start, plan, run, task, key)
        await asyncio.to_thread(self._registered_tasks.bring_back_host, machine, request)

    async def start(self, plan: Plan, run: PlanRun, task: Task, attempt: int, session: SessionId) -> None:
        """Start the session of a logged attempt that may not run yet. It raises only `ProtocolVersionError`.

        If it runs, it is the terminal of the previous task, which has not received the command of this one yet.
        """
        try:
            runs_elsewhere = is_elsewhere(plan, task, run)
            if not runs_elsewhere and self._remote_tasks.machine(plan, run, task) is None:
                await self._task_folders.prepare(plan, task, run)
                await asyncio.to_thread(self._task_folders.check, plan, task, run)
            terminal = (await asyncio.to_thread(read_fleet, self._paths)).get(session)
            if terminal is not None and terminal.exists:
                if all(receipt.at < run.of(task.id).prompts_since for receipt in terminal.receipts):
                    if not runs_elsewhere:
                        await self._check_terminal(plan, run, task, terminal)
                    await session_operations.send(self._paths, terminal, task.run, "idle")
                return
            if not runs_elsewhere:
                launch = await asyncio.to_thread(launch_of, self._paths, session)
                await self._begin(self._paths, launch)
        except ProtocolVersionError:
            raise
        except (KasmonError, OSError) as error:
            await asyncio.to_thread(self._fail, task, attempt, _why(error))

    async def _check_terminal(self, plan: Plan, run: PlanRun, task: Task, terminal: Session) -> None:
        """Raise `RefusedError` if the command of *task*, typed into *terminal*, would run in another checkout."""
        if terminal.sandbox is None:
            pane = await session_operations.pane(self._paths, terminal)
            await asyncio.to_thread(self._task_folders.check_terminal, plan, task, run, pane.cwd)

    def _prepare(
        self, plan: Plan, run: PlanRun, task: Task, number: int, tree: TaskWorktree, fleet: Fleet, account: str
    ) -> Launch:
        """Return the launch of the attempt, announced but not started: created now, or by a runner that then died.

        The folder for its result is created first.
        """
        if not host_of(plan, task, run.of(task.id).agent):
            lay_out(Path(tree.path), task)
        if (launch := self._find_launch(run, fleet, task, number, tree)) is not None:
            return launch
        text = self._prompt(plan, run, task)
        request = self._request(plan, run, task, number, tree, text, fleet)
        config = self._config
        if account:  # it may have been added while the plan ran
            config = msgspec.structs.replace(config, accounts=load(self._paths).accounts)
        return prepare(self._paths, config, msgspec.structs.replace(request, account=account), time.time())

    def _prompt(self, plan: Plan, run: PlanRun, task: Task) -> str:
        at = run.of(task.id)
        profile = self._config.agents.get(at.agent or task.agent or plan.agent)
        return prompt(
            plan,
            task,
            at,
            shares=worktree_of(plan, task) != "own",
            results=self._results(plan, task),
            is_script=profile is not None and profile.program == "scripted",
            is_elsewhere=bool(host_of(plan, task, at.agent)),
        )

    def _request(
        self, plan: Plan, run: PlanRun, task: Task, number: int, tree: TaskWorktree, text: str, fleet: Fleet
    ) -> NewSession:
        agent, mode = agent_of(plan, task, run.of(task.id).agent), task.mode or plan.mode
        is_remote = bool(machine_of(agent))
        return NewSession(
            name=session_name(run.plan, task, number, [session.name for session in fleet.sessions]),
            agent=agent,
            mode=Mode(mode) if mode else usual_mode(self._config, agent, task.sandbox or None),
            sandbox=task.sandbox or None,
            argv=("sh", "-c", task.run) if is_remote and task.run else (),
            workdir="" if is_remote else tree.path,
            prompt="" if is_remote and task.run else task.run or text,
            task=task.number,
            wave=task.wave,
            peers=len(plan.wave(task.wave)),
            plan=run.plan,
            environment=plan.env,
        )

    def _results(self, plan: Plan, task: Task) -> dict[str, str]:
        found = {}
        for need in named_needs(task):
            path = self._plan_log.result(plan.task(need))
            if path.is_file():
                found[need] = path.read_text("utf-8", "replace")
        return found

    def _find_launch(self, run: PlanRun, fleet: Fleet, task: Task, number: int, tree: TaskWorktree) -> Launch | None:
        """Return the launch of a session created for this attempt before its runner died; None if there is none."""
        name = session_name(run.plan, task, number)
        for session in fleet.sessions:
            is_called = session.name == name or session.name.startswith(f"{name}.")
            is_here = session.workdir == tree.path  # another machine's plan may have the same id
            if session.plan == run.plan and is_called and is_here and not session.generation:
                return launch_of(self._paths, session.id)
        return None

    def _fail(
        self, task: Task, number: int, why: str, tree: TaskWorktree | None = None, conflicts: tuple[str, ...] = ()
    ) -> None:
        """Log why the attempt failed; with *tree* also that it was begun there, without a session."""
        if tree is not None:
            self._note(task, number, "", "", tree)
        why = why.rstrip(".")
        self._plan_log.note(TaskFailed(at=time.time(), task=task.id, attempt=number, why=why, conflicts=conflicts))

    def _note(
        self, task: Task, number: int, session: str, name: str, tree: TaskWorktree, started: AttemptStart | None = None
    ) -> None:
        started = started or AttemptStart()
        began = TaskBegan(
            at=time.time(),
            task=task.id,
            attempt=number,
            session=session,
            name=name,
            workdir=tree.path,
            branch=tree.branch,
            base=tree.base,
            agent=started.agent,
            mode=started.mode,
            sandbox=started.sandbox,
            argv=started.argv,
            state=started.state or (state_of(tree) if session else ""),
            account=started.account,
            account_why=started.account_why,
            since=started.since,
        )
        self._plan_log.note(began)


def _why(error: KasmonError | OSError) -> str:
    return str(error) if isinstance(error, KasmonError) else f"a system call failed: {error.strerror or error}"


def _terminal(plan: Plan, run: PlanRun, task: Task, fleet: Fleet) -> Session | None:
    """Return the terminal of the previous task, in which *task* continues: only shell commands do."""
    session = terminal_of(plan, run, task)
    if not session:
        return None
    before = fleet.get(SessionId(session))
    if before is None or not before.exists:
        raise RefusedError(f"the terminal of task {task.inherits!r}, which {task.id!r} inherits, is gone.")
    return before


def variables(plan_id: str, task: Task, session: str, around: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Return the environment of a check: *around* without `GIT_LOCAL`, plus variables that identify the check."""
    around = {name: value for name, value in around.items() if name not in GIT_LOCAL}
    return around | build_variables(plan_id, task.number, task.wave, session)
