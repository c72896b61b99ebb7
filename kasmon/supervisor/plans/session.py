"""A task's session: made known, noted, started, in this order, so that a crash between two of them starts it once."""

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

from kasmon.config import Config
from kasmon.config.address import machine_of, there
from kasmon.errors import KasmonError, RefusedError
from kasmon.host.book import wanted as launch_of
from kasmon.model.command import Launch, Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.draft import before
from kasmon.model.plan.fact import TaskBegan, TaskFailed
from kasmon.model.plan.prompt import prompt, session_name
from kasmon.model.plan.run import PlanRun
from kasmon.model.plan.spec import Plan, Task, agent_of, host_of
from kasmon.model.plan.terminal import terminal_of
from kasmon.model.session import Session
from kasmon.paths import Places
from kasmon.store.plan import PlanBook
from kasmon.supervisor import verb
from kasmon.supervisor.begin import begin
from kasmon.supervisor.create import NewSession, prepare
from kasmon.supervisor.look import look_once
from kasmon.supervisor.plans.confinement import goes_in, usual_mode
from kasmon.supervisor.plans.elsewhere import HOME, Elsewhere
from kasmon.supervisor.plans.place import Grounds, lay_out, state_of
from kasmon.supervisor.worktree import Tree


class Starter:
    """Starts the attempts of one plan's tasks; only its runner does."""

    def __init__(self, places: Places, config: Config, book: PlanBook, grounds: Grounds) -> None:
        self._places = places
        self._config = config
        self._book = book
        self._grounds = grounds
        self._elsewhere = Elsewhere(config.remote.ssh)

    async def attempt(self, plan: Plan, run: PlanRun, task: Task, number: int, fleet: Fleet) -> None:
        """Begin attempt *number* of *task*. What keeps it from beginning is noted as its failure. Never raises ours."""
        session, tree = SessionId(""), Tree(path=run.folder)
        try:
            if (machine := self._elsewhere.machine(plan, run, task)) is not None:
                tree = Tree(path=there(machine.host, HOME))
                await self._elsewhere.lay_out(machine, task)
            else:
                tree = await self._grounds.of(plan, task, run)
            if (terminal := _terminal(plan, run, task, fleet)) is not None:
                await asyncio.to_thread(lay_out, Path(tree.path), task)
                await asyncio.to_thread(self._note, task, number, terminal.id, terminal.name, tree)
                await verb.send(self._places, terminal, task.run, "idle")
                return
            launch = await asyncio.to_thread(self._made, plan, run, task, number, tree, fleet)
            session = launch.session
            await asyncio.to_thread(goes_in, self._places, launch)
            await asyncio.to_thread(self._note, task, number, session, launch.name, tree)
            await begin(self._places, launch)
        except (KasmonError, OSError) as error:
            why = error.message if isinstance(error, KasmonError) else f"the system refused: {error.strerror or error}"
            never_was = run.of(task.id).attempt < number and not session
            await asyncio.to_thread(self._fail, task, number, why, tree if never_was else None)

    async def start(self, run: PlanRun, task: Task, attempt: int, session: SessionId) -> None:
        """Start the session of an attempt that was noted, and of which nobody knows that it runs. Never raises ours.

        Where it runs, it is the terminal of the task before, which did not get the command of this one yet.
        """
        try:
            terminal = (await asyncio.to_thread(look_once, self._places)).get(session)
            if terminal is not None and terminal.exists:
                if all(receipt.at < run.of(task.id).began_at for receipt in terminal.receipts):
                    await verb.send(self._places, terminal, task.run, "idle")
                return
            launch = await asyncio.to_thread(launch_of, self._places, session)
            await begin(self._places, launch)
        except KasmonError as error:
            await asyncio.to_thread(self._fail, task, attempt, error.message)

    def _made(self, plan: Plan, run: PlanRun, task: Task, number: int, tree: Tree, fleet: Fleet) -> Launch:
        """The session of the attempt, known to the fleet and not started: made now, or by a runner that died then.

        The place for its result is there first.
        """
        if not host_of(plan, task, run.of(task.id).agent):
            lay_out(Path(tree.path), task)
        if (launch := self._known(run, fleet, task, number)) is not None:
            return launch
        at = run.of(task.id)
        said = prompt(
            plan,
            task,
            at,
            shares=(task.worktree or plan.worktree) != "own",
            results=self._results(plan, task),
            is_script=self._is_scripted(plan, task, at.agent),
            is_elsewhere=bool(host_of(plan, task, at.agent)),
        )
        return prepare(
            self._places, self._config, self._wanted(plan, run, task, number, tree, said, fleet), time.time()
        )

    def _wanted(
        self, plan: Plan, run: PlanRun, task: Task, number: int, tree: Tree, said: str, fleet: Fleet
    ) -> NewSession:
        agent, mode = agent_of(plan, task, run.of(task.id).agent), task.mode or plan.mode
        is_elsewhere = bool(machine_of(agent))
        return NewSession(
            name=session_name(run.plan, task, number, [session.name for session in fleet.sessions]),
            agent=agent,
            mode=Mode(mode) if mode else usual_mode(self._config, agent, task.sandbox or None),
            sandbox=task.sandbox or None,
            argv=("sh", "-c", task.run) if is_elsewhere and task.run else (),
            workdir="" if is_elsewhere else tree.path,
            prompt="" if is_elsewhere and task.run else task.run or said,
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
        """What the tasks left that *task* needs."""
        found = {}
        for need in before(task):
            path = self._book.result(plan.task(need))
            if path.is_file():
                found[need] = path.read_text("utf-8", "replace")
        return found

    def _known(self, run: PlanRun, fleet: Fleet, task: Task, number: int) -> Launch | None:
        """The launch of a session that was made for this attempt before its maker died; None where there is none."""
        name = session_name(run.plan, task, number)
        for session in fleet.sessions:
            is_called = session.name == name or session.name.startswith(f"{name}.")
            if session.plan == run.plan and is_called and not session.generation:
                return launch_of(self._places, session.id)
        return None

    def _fail(self, task: Task, number: int, why: str, tree: Tree | None = None) -> None:
        """Note why the attempt failed; with *tree* also that it was begun there, and got no session."""
        if tree is not None:
            self._note(task, number, "", "", tree)
        self._book.note(TaskFailed(at=time.time(), task=task.id, attempt=number, why=why.rstrip(".")))

    def _note(self, task: Task, number: int, session: str, name: str, tree: Tree) -> None:
        began = TaskBegan(
            at=time.time(),
            task=task.id,
            attempt=number,
            session=session,
            name=name,
            workdir=tree.path,
            branch=tree.branch,
            base=tree.base,
            state=state_of(tree) if session else "",
        )
        self._book.note(began)


def _terminal(plan: Plan, run: PlanRun, task: Task, fleet: Fleet) -> Session | None:
    """The terminal of the task before, in which *task* goes on: only commands for a shell do."""
    session = terminal_of(plan, run, task)
    if not session:
        return None
    before = fleet.get(SessionId(session))
    if before is None or not before.exists:
        raise RefusedError(f"the terminal of task {task.inherits!r}, in which {task.id!r} was to go on, is gone.")
    return before


def variables(plan_id: str, task: Task, session: str, around: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """What a check finds in its environment: what is *around*, and whose check it is."""
    own = {"PLAN": plan_id, "TASK": str(task.number), "WAVE": str(task.wave), "SESSION": session}
    return dict(around) | {f"KASMON_{name}": value for name, value in own.items()}
