"""A task's session is announced, logged, started, in this order, so that a crash in between starts it only once."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from kasmon.config import Config
from kasmon.config.agent_address import machine_of, there
from kasmon.errors import KasmonError, MergeConflictError, ProtocolVersionError, RefusedError
from kasmon.host.journal.session_log import load_launch as launch_of
from kasmon.model.commands import Launch, Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import TaskBegan, TaskFailed
from kasmon.model.plan.plan import GIT_LOCAL, Plan, Task, agent_of, host_of
from kasmon.model.plan.progress import PlanRun
from kasmon.model.plan.prompt import prompt, session_name
from kasmon.model.plan.shared_terminal import terminal_of
from kasmon.model.plan.validation import named_needs
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.fleet.snapshot import read_fleet
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


class TaskStarter:
    """Starts the attempts of one plan's tasks; used by its runner only.

    *begin_session* starts the agent of a session that was created and logged.
    """

    def __init__(
        self,
        places: Paths,
        config: Config,
        plan_log: PlanLog,
        task_folders: TaskFolders,
        begin_session: Callable[[Paths, Launch], Awaitable[None]] = begin,
    ) -> None:
        self._begin = begin_session
        self._places = places
        self._config = config
        self._plan_log = plan_log
        self._task_folders = task_folders
        self._remote_tasks = RemoteTasks(config.remote.ssh)

    async def attempt(self, plan: Plan, run: PlanRun, task: Task, number: int, fleet: Fleet) -> None:
        """Begin attempt *number* of *task*; an error is logged as its failure.

        Raises:
            ProtocolVersionError: if a host has another version. No other `KasmonError` is raised.
        """
        session, tree = SessionId(""), TaskWorktree(path="")
        try:
            if (machine := self._remote_tasks.machine(plan, run, task)) is not None:
                tree = TaskWorktree(path=there(machine.host, HOME))
                await self._remote_tasks.lay_out(machine, task)
            else:
                tree = await self._task_folders.of(plan, task, run)
            if (terminal := _terminal(plan, run, task, fleet)) is not None:
                await self._check_terminal(plan, run, task, terminal)
                await asyncio.to_thread(lay_out, Path(tree.path), task)
                started = AttemptStart(terminal.agent, terminal.mode, terminal.sandbox or "")
                await asyncio.to_thread(self._note, task, number, terminal.id, terminal.name, tree, started)
                await session_operations.send(self._places, terminal, task.run, "idle")
                return
            launch = await asyncio.to_thread(self._prepare, plan, run, task, number, tree, fleet)
            session = launch.session
            await asyncio.to_thread(record_folder, self._places, launch)
            started = AttemptStart(launch.agent, launch.mode, launch.sandbox or "", launch.argv)
            await asyncio.to_thread(self._note, task, number, session, launch.name, tree, started)
            await self._begin(self._places, launch)
        except ProtocolVersionError:
            raise
        except (KasmonError, OSError) as error:
            is_unlogged = run.of(task.id).attempt < number and not session
            conflicts = error.files if isinstance(error, MergeConflictError) else ()
            await asyncio.to_thread(self._fail, task, number, _why(error), tree if is_unlogged else None, conflicts)

    async def start(self, plan: Plan, run: PlanRun, task: Task, attempt: int, session: SessionId) -> None:
        """Start the session of a logged attempt that may not run yet.

        If it runs, it is the terminal of the previous task, which has not received the command of this one yet.

        Raises:
            ProtocolVersionError: if a host has another version. No other `KasmonError` is raised.
        """
        try:
            if self._remote_tasks.machine(plan, run, task) is None:
                await self._task_folders.of(plan, task, run)
                await asyncio.to_thread(self._task_folders.check, plan, task, run)
            terminal = (await asyncio.to_thread(read_fleet, self._places)).get(session)
            if terminal is not None and terminal.exists:
                if all(receipt.at < run.of(task.id).began_at for receipt in terminal.receipts):
                    await self._check_terminal(plan, run, task, terminal)
                    await session_operations.send(self._places, terminal, task.run, "idle")
                return
            launch = await asyncio.to_thread(launch_of, self._places, session)
            await self._begin(self._places, launch)
        except ProtocolVersionError:
            raise
        except (KasmonError, OSError) as error:
            await asyncio.to_thread(self._fail, task, attempt, _why(error))

    async def _check_terminal(self, plan: Plan, run: PlanRun, task: Task, terminal: Session) -> None:
        """Raise if the command of *task*, typed into *terminal*, would run in another checkout than its own.

        Raises:
            RefusedError: if it would, or if the folder of the terminal is unknown.
            KasmonError: if tmux or git fails.
        """
        if terminal.sandbox is None:
            pane = await session_operations.pane(self._places, terminal)
            await asyncio.to_thread(self._task_folders.check_terminal, plan, task, run, pane.cwd)

    def _prepare(self, plan: Plan, run: PlanRun, task: Task, number: int, tree: TaskWorktree, fleet: Fleet) -> Launch:
        """Return the launch of the attempt, announced but not started: created now, or by a runner that then died.

        The folder for its result is created first.
        """
        if not host_of(plan, task, run.of(task.id).agent):
            lay_out(Path(tree.path), task)
        if (launch := self._find_launch(run, fleet, task, number)) is not None:
            return launch
        at = run.of(task.id)
        text = prompt(
            plan,
            task,
            at,
            shares=(task.worktree or plan.worktree) != "own",
            results=self._results(plan, task),
            is_script=self._is_scripted(plan, task, at.agent),
            is_elsewhere=bool(host_of(plan, task, at.agent)),
        )
        return prepare(
            self._places, self._config, self._request(plan, run, task, number, tree, text, fleet), time.time()
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

    def _is_scripted(self, plan: Plan, task: Task, instead: str) -> bool:
        profile = self._config.agents.get(instead or task.agent or plan.agent)
        return profile is not None and profile.program == "scripted"

    def _results(self, plan: Plan, task: Task) -> dict[str, str]:
        found = {}
        for need in named_needs(task):
            path = self._plan_log.result(plan.task(need))
            if path.is_file():
                found[need] = path.read_text("utf-8", "replace")
        return found

    def _find_launch(self, run: PlanRun, fleet: Fleet, task: Task, number: int) -> Launch | None:
        """Return the launch of a session created for this attempt before its runner died; None if there is none."""
        name = session_name(run.plan, task, number)
        for session in fleet.sessions:
            is_called = session.name == name or session.name.startswith(f"{name}.")
            if session.plan == run.plan and is_called and not session.generation:
                return launch_of(self._places, session.id)
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
            state=state_of(tree) if session else "",
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
    own = {"PLAN": plan_id, "TASK": str(task.number), "WAVE": str(task.wave), "SESSION": session}
    return around | {f"KASMON_{name}": value for name, value in own.items()}
