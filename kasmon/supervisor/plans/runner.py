"""The runner of one plan: it reads the fleet, computes the next steps, logs and executes them.

It keeps no state outside the plan's log: if it is killed at any moment, the next runner continues. Its process holds
the plan's lock, and signals end it.
"""

import asyncio
import contextlib
import logging
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from kasmon.asyncio_tasks import cancel_and_wait, wait_within
from kasmon.config import Config, load, load_or_default
from kasmon.errors import (
    ConfigError,
    KasmonError,
    PlanNotFoundError,
    ProtocolVersionError,
    RemoteUnreachableError,
    UsageError,
)
from kasmon.host.rpc.locked_process import begin_process, run_locked, run_until_signalled
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PlanEnded, TaskCheckEnded
from kasmon.model.plan.placement import is_elsewhere, machine_requirement, worktree_of
from kasmon.model.plan.plan import LOCAL, Plan, Task
from kasmon.model.plan.progress import ACTIVE, Placement, PlanRun, TaskRun, TaskState, find_lost_placements
from kasmon.model.plan.scheduler import (
    CheckTask,
    ChooseMachines,
    ClaimTask,
    EndTaskSession,
    FinishPlan,
    FinishTask,
    NextSteps,
    StartAttemptSession,
    StartNextAttempt,
    Step,
    counts_as_running,
    next_steps,
)
from kasmon.model.plan.start_limits import NO_LIMITS, AccountChoice, StartLimits
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import fleets
from kasmon.supervisor.plans.check import end_orphaned_check
from kasmon.supervisor.plans.machines.placement import TaskPlacement
from kasmon.supervisor.plans.peers.context import TaskContexts
from kasmon.supervisor.plans.peers.delivery import deliver, find_senders
from kasmon.supervisor.plans.start_limits import find_start_limits
from kasmon.supervisor.plans.task_actions import TaskActions
from kasmon.supervisor.plans.task_folder import TaskFolders
from kasmon.supervisor.plans.task_session import TaskStarter
from kasmon.supervisor.plans.view import apply_config, approved_plan, find_sessions
from kasmon.supervisor.sessions.tmux_host import bring_back, lacks_host, without_host
from kasmon.supervisor.worktrees.collision_watch import sweeps
from kasmon.supervisor.worktrees.folder_watch import FolderWatch

TICK_S: Final = 0.1
"""How often the plan's log is checked, in seconds: the longest delay of a user's decision."""
NEWS_S: Final = 0.03
"""The shortest time between two fleets, in seconds: how long the next task may start after the last one ended."""
RESTS: Final = 4
"""After each step the runner pauses for this many times the processor time it took: plans can be large."""
LOOK_S: Final = 1.0
"""How often a step is computed, without any change."""
TELL_S: Final = 0.5
"""How often the contexts of peers are updated at most, in seconds."""
AWAY_S: Final = 600.0
"""How long after its end, in seconds, a plan's runner waits for machines that were away: attempts there must end."""
SEND_CONTEXTS_S: Final = 3.0
"""How often they are sent to another machine at most, in seconds."""
AGAIN_S: Final = 2.0
"""How long after a failure a step is retried: a full disk, a host that does not answer. Also how long the fleet may
take to show what was started or ended; it is not done again within this time."""
LONGEST_PAUSE_S: Final = 15.0
"""After a lost connection to a machine the pause doubles from `AGAIN_S` up to this, in seconds."""
THREADS: Final = 256
"""How many blocking calls run at once: one that waits for a machine must not delay other tasks."""
LEAVE_S: Final = 3.0
"""How long blocking calls may go on after a signal, in seconds; one that waits for a machine may hang for minutes."""
ID: Final = re.compile(r"[a-z0-9_][a-z0-9_-]{0,63}")

log = logging.getLogger(__name__)


class PlanRunner:
    """Runs the plan of *plan_log* until it ends. The caller holds its lock."""

    def __init__(self, paths: Paths, plan_log: PlanLog, config: Config) -> None:
        self.ahead = NextSteps((), {})
        self._paths = paths
        self._plan_log = plan_log
        self._config = config
        self._current_config, self._config_read_at = config, -math.inf
        """The config as it was read last, for budgets and accounts."""
        self._limits = NO_LIMITS
        self._task_folders = TaskFolders(paths, plan_log.plan, Path(plan_log.run.folder))
        self._starter = TaskStarter(paths, config, plan_log, self._task_folders)
        self._actions = TaskActions(paths, plan_log, config, self._task_folders)
        self._placement = TaskPlacement(paths, plan_log, config)
        self._contexts = TaskContexts(paths)
        self._lost_machines: Mapping[str, str] = {}
        self._machines_read_at = -math.inf
        self._fleet = Fleet()
        """As last read; nothing begins before the first read, which shows what an earlier runner started."""
        self._changed = asyncio.Event()
        self._running: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._did_at: dict[tuple[str, ...], float] = {}
        """When sessions were last started and ended, in seconds of the loop's clock."""
        self._failures: dict[tuple[str, ...], int] = {}
        """How often in a row a machine could not be reached for an action."""
        self._dropped: set[str] = set()
        """The sessions whose checks on other machines are being ended, or were."""
        self._away: set[str] = set()
        """The machines that were away when something should end there; a stopped plan does not wait for them."""
        self._too_old: ProtocolVersionError | None = None
        self._digest = ""
        self._plan = Plan(name="")
        self._contexts_written_at = -math.inf
        self._context_timer: asyncio.TimerHandle | None = None
        self._files: dict[str, tuple[str, ...]] = {}

    async def run(self) -> None:
        """Run until the plan has ended, and no machine has an attempt of it that may run.

        Raises:
            ProtocolVersionError: if a host has another version. No task fails by that; the next runner continues.
        """
        await asyncio.to_thread(self._end_orphaned_checks)
        self._fleet = await asyncio.to_thread(read_fleet, self._paths)
        watching = asyncio.create_task(self._watch())
        listening = asyncio.create_task(self._follow_log())
        sweeping = asyncio.create_task(self._sweep())
        try:
            while self._plan_log.run.state != "ended" and not await self._is_stopped():
                self._changed.clear()
                began = time.thread_time()
                if self._too_old is not None:
                    raise self._too_old
                await self._step()
                await asyncio.sleep(min(RESTS * (time.thread_time() - began), LOOK_S))
                await wait_within(LOOK_S, self._changed)
                for watcher in (watching, listening):
                    if watcher.done():  # without it, the loop would wait forever; the next runner may succeed
                        watcher.result()
            await self._wait_for_lost_placements()
        finally:
            await cancel_and_wait(watching, listening, sweeping, *self._running.values())

    def _end_orphaned_checks(self) -> None:
        """End the checks that a killed runner left; pending checks are started again."""
        self._plan_log.more()
        for at in self._plan_log.run.tasks.values():
            if at.checking is not None:
                end_orphaned_check(at.checking)

    async def _watch(self) -> None:
        async with fleets(self._paths, NEWS_S) as changes:
            async for fleet in changes:
                self._fleet = fleet
                self._changed.set()

    async def _follow_log(self) -> None:
        size = -1
        while True:
            if (now := await asyncio.to_thread(self._plan_log.size)) != size:
                size = now
                self._changed.set()
            await asyncio.sleep(TICK_S)

    async def _sweep(self) -> None:
        """Track which files each task changed that has its own worktree."""
        async for sweep in sweeps(self._own_worktree_sessions, FolderWatch(), alone=True):
            tasks = {at.session: id_ for id_, at in self._plan_log.run.tasks.items()}
            self._files |= {tasks[session]: files for session, files in sweep.files.items() if session in tasks}
            self._changed.set()

    def _own_worktree_sessions(self) -> tuple[Session, ...]:
        own = {task.id for task in self._plan.tasks if worktree_of(self._plan, task) == "own"}
        own_sessions = {at.session for id_, at in self._plan_log.run.tasks.items() if id_ in own and at.state in ACTIVE}
        return tuple(session for session in self._fleet.here if session.id in own_sessions)

    async def _step(self) -> None:
        """Compute the next steps once, and start those that are not being executed."""
        await asyncio.to_thread(self._read_log)
        run = self._plan_log.run
        sessions = find_sessions(self._plan_log, self._fleet)
        lost = await self._find_lost_machines()
        self._limits = await asyncio.to_thread(self._find_limits, sessions.values())
        self.ahead = next_steps(self._plan, run, sessions, self._limit(), time.time(), lost, self._limits)
        self._drop_checks()
        self._end_lost_placements()
        if without_host(sessions.values()):
            self._start(("host",), self._bring_back_host)
        for task in self._plan.tasks:
            session = sessions.get(run.of(task.id).session)
            if run.of(task.id).state in ACTIVE and session is not None and session.via and lacks_host(session):
                self._start(("host", session.via), partial(self._bring_back_host_of, run, task))
        for step in self.ahead.steps:
            self._execute(step)
        if (wait_s := self._contexts_written_at + TELL_S - time.monotonic()) > 0:
            if self._context_timer is None or self._context_timer.when() < asyncio.get_running_loop().time():
                self._context_timer = asyncio.get_running_loop().call_later(wait_s, self._changed.set)
            return
        self._contexts_written_at = time.monotonic()
        await asyncio.to_thread(self._contexts.write, self._plan, run, self._fleet, dict(self._files))
        for machine in self._contexts.unsent():
            self._start(("contexts", machine), partial(self._send_contexts, machine))
        for sender in find_senders(run, self._fleet):
            action = partial(deliver, self._paths, self._plan_log, sender, self._fleet)
            self._start(("messages", sender.id), action)

    async def _send_contexts(self, machine: str) -> None:
        with contextlib.suppress(RemoteUnreachableError):  # they are sent once it is back
            await asyncio.to_thread(self._contexts.send, machine)
        await asyncio.sleep(SEND_CONTEXTS_S)

    async def _find_lost_machines(self) -> Mapping[str, str]:
        machines = {
            at.machine
            for at in self._plan_log.run.tasks.values()
            if at.machine not in ("", LOCAL) and (at.state in ACTIVE or at.placement is not None)
        }
        if machines and time.monotonic() >= self._machines_read_at + LOOK_S:
            self._machines_read_at = time.monotonic()
            limit_s = self._config.plans.lost_machine_s
            self._lost_machines = await asyncio.to_thread(self._placement.find_lost, machines, limit_s)
        return self._lost_machines if machines else {}

    async def _wait_for_lost_placements(self) -> None:
        """After the end of the plan, end the attempts on machines that were away, if these return in time."""
        await asyncio.to_thread(self._read_log)
        try:
            async with asyncio.timeout(AWAY_S):
                while self._plan_log.run.state == "ended" and self._end_lost_placements():
                    await asyncio.gather(*self._running.values(), return_exceptions=True)
        except TimeoutError:
            log.warning("attempts on machines that stayed away were not ended; `kasmon recover` waits for these again")

    def _end_lost_placements(self) -> bool:
        """Start to end the attempts that must not run any more on their machines; return whether there are any."""
        lost = self._find_lost_placements()
        for id_, placement in lost:
            self._start(("end placement", id_, str(placement.epoch)), partial(self._end_placement, id_, placement))
        return bool(lost)

    def _find_lost_placements(self) -> list[tuple[str, Placement]]:
        """Return task and placement of each attempt that must not run any more, and is not just being started."""
        run, left = self._plan_log.run, {task.id for task in self._plan.tasks}
        return [
            (id_, placement)
            for id_ in run.tasks
            for placement in find_lost_placements(run, id_, is_removed=id_ not in left)
            if placement.attempt <= run.of(id_).attempt or ("attempt", id_) not in self._running
        ]

    async def _end_placement(self, id_: str, placement: Placement) -> None:
        at = self._plan_log.run.of(id_)
        is_last = placement.epoch == at.epoch and placement.attempt == at.attempt
        session = self._fleet.get(SessionId(at.session)) if is_last else None
        try:
            await self._actions.end_placement(self._plan, id_, placement, session)
        except RemoteUnreachableError:
            self._away.add(placement.machine)
            await asyncio.sleep(AGAIN_S)

    async def _end_check(self, task: Task) -> None:
        at = self._plan_log.run.of(task.id)
        try:
            await asyncio.to_thread(self._actions.registered_tasks.end_check, self._plan_log.run, task)
        except RemoteUnreachableError:
            self._away.add(at.machine)
            await asyncio.sleep(AGAIN_S)
        else:
            ended = TaskCheckEnded(at=time.time(), task=task.id, attempt=at.attempt)
            await asyncio.to_thread(self._plan_log.note, ended)

    async def _is_stopped(self) -> bool:
        """Whether the user stopped the plan, and nothing of it runs any more, except where a machine is away."""
        run = self._plan_log.run
        is_busy = any(key[0] not in ("end placement", "end check") for key in self._running)
        if not run.is_stopped or is_busy or self.ahead.steps:
            return False
        left = {placement.machine for _, placement in self._find_lost_placements()}
        if (left | {run.of(task.id).machine for task in self._find_stopped_checks()}) - self._away:
            return False
        fleet = await asyncio.to_thread(read_fleet, self._paths)
        return not any(session.exists for session in find_sessions(self._plan_log, fleet).values())

    def _read_log(self) -> None:
        """Read what was added to the log, and the approved text if its digest changed."""
        self._plan_log.more()
        if self._digest != self._plan_log.run.digest:
            self._plan = apply_config(approved_plan(self._plan_log), self._config)
            self._digest = self._plan_log.run.digest

    def _find_limits(self, sessions: Iterable[Session]) -> StartLimits:
        """Return what limits the start of further tasks, by the config as it is now: a person may have changed it."""
        if (now := time.monotonic()) - self._config_read_at >= LOOK_S:
            self._config_read_at = now
            try:
                self._current_config = load(self._paths)
            except ConfigError as error:  # a person is editing it
                log.warning("the config is not valid, so its budgets and accounts stay as they were: %s", error)
        return find_start_limits(self._current_config, self._plan, sessions, self._fleet.sessions)

    def _limit(self) -> int:
        """Return how many tasks may run here now: the plan's limit, but no more on a busy machine; at least one."""
        most = self._config.plans.max_load
        if not most or os.getloadavg()[0] / (os.cpu_count() or 1) <= most:
            return self._plan.limit
        run = self._plan_log.run
        at_work = sum(
            counts_as_running(run, task) or ("attempt", task.id) in self._running
            for task in self._plan.tasks
            if not is_elsewhere(self._plan, task, run)
        )
        return max(1, min(self._plan.limit, at_work))

    def _execute(self, step: Step) -> None:
        match step:
            case StartNextAttempt() if any(key[:2] == ("check", step.task.id) for key in self._running):
                pass  # the check of its last attempt is being ended
            case StartNextAttempt(task, attempt, account):
                run, fleet = self._plan_log.run, self._fleet
                self._start(("attempt", task.id), lambda: self._begin(run, task, attempt, fleet, account))
            case ChooseMachines(_, wanted, agent):
                self._start(
                    ("place", wanted.machine, *wanted.labels, agent),
                    lambda: self._placement.place(self._plan, step, self._limit()),
                )
            case StartAttemptSession() if self._just_did(("attempt", step.task.id)):
                pass  # the fleet is not up to date yet
            case StartAttemptSession(task, attempt, session):
                run = self._plan_log.run
                self._start(("attempt", task.id), lambda: self._starter.start(self._plan, run, task, attempt, session))
            case ClaimTask():
                self._start(("claim", step.task.id), lambda: self._actions.claim(self._plan, step))
            case CheckTask(task, attempt):
                self._start(("check", task.id, str(attempt)), lambda: self._actions.check(self._plan, task, attempt))
            case FinishTask() if ("attempt", step.task.id) not in self._running:
                self._start(("settle", step.task.id), lambda: self._actions.settle(step, self._fleet))
            case EndTaskSession(session) if self._just_did(("end", session)):
                pass
            case EndTaskSession(session):
                self._start(("end", session), lambda: self._actions.end(session, self._fleet))
            case FinishPlan() if any(key[0] in ("attempt", "drop") for key in self._running):
                pass  # sessions being started must be ended first
            case FinishPlan():
                self._start(("finish",), lambda: self._finish(step))

    async def _begin(self, run: PlanRun, task: Task, attempt: int, fleet: Fleet, account: AccountChoice) -> None:
        is_placed = machine_requirement(self._plan, task) is not None
        if not is_placed or await self._placement.confirm(task, attempt, self._lost_machines):
            await self._starter.attempt(self._plan, run, task, attempt, fleet, account)

    async def _bring_back_host(self) -> None:
        """Restart the shared tmux host: without it no session in a terminal reports its state."""
        if await bring_back(self._paths):
            log.warning("the shared tmux host was restarted after it was lost")

    async def _bring_back_host_of(self, run: PlanRun, task: Task) -> None:
        """Restart the shared tmux host of the machine of *task*, and wait until it may be shown here."""
        await self._starter.bring_back_host(self._plan, run, task)
        await asyncio.sleep(AGAIN_S)

    def _drop_checks(self) -> None:
        """End the checks of attempts that the user retried or dropped."""
        run = self._plan_log.run
        for key, running in self._running.items():
            if key[0] == "check" and not (_is_needed(run, run.of(key[1])) and str(run.of(key[1]).attempt) == key[2]):
                running.cancel()
        for at in run.tasks.values():
            orphan = at.checking
            if orphan is not None and orphan.machine and not _is_needed(run, at) and at.session not in self._dropped:
                self._dropped.add(at.session)
                action = partial(self._actions.remote_tasks.end_check, orphan.machine, at.session)
                self._start(("drop", at.session), action)
        for task in self._find_stopped_checks():
            self._start(("end check", task.id), partial(self._end_check, task))

    def _find_stopped_checks(self) -> list[Task]:
        """Return the tasks whose checks may run on registered machines although the plan is stopped."""
        run = self._plan_log.run
        if not run.is_stopped:
            return []
        return [
            task
            for task in self._plan.tasks
            if (at := run.of(task.id)).state is TaskState.CLAIMED
            and at.checking is not None
            and at.placements
            and is_elsewhere(self._plan, task, run)
        ]

    def _start(self, key: tuple[str, ...], action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Execute *action* in the background, unless it is being executed."""
        if key not in self._running:
            self._running[key] = running = asyncio.create_task(self._run_action(key, action))
            running.add_done_callback(lambda _: self._remove_action(key))

    def _remove_action(self, key: tuple[str, ...]) -> None:
        del self._running[key]
        self._changed.set()

    def _just_did(self, key: tuple[str, ...]) -> bool:
        """Whether it was done so recently that the fleet may not show it yet."""
        return asyncio.get_running_loop().time() < self._did_at.get(key, -math.inf) + AGAIN_S

    async def _run_action(self, key: tuple[str, ...], action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await action()
            self._failures.pop(key, None)
            if key[0] in ("attempt", "end"):
                self._did_at[key] = asyncio.get_running_loop().time()
        except ProtocolVersionError as error:  # a newer kasmon is in use: its runner continues
            log.warning("%s: %s", " ".join(key), error)
            self._too_old = error
            self._changed.set()
        except RemoteUnreachableError as error:
            log.warning("%s: %s", " ".join(key), error)
            self._failures[key] = failures = self._failures.get(key, 0) + 1
            await asyncio.sleep(min(AGAIN_S * 2.0 ** (failures - 1), LONGEST_PAUSE_S))
        except (KasmonError, OSError) as error:
            log.warning("%s: %s", " ".join(key), error)
            await asyncio.sleep(AGAIN_S)
        except Exception:  # a bug that affects one task: the others continue, and the log has it
            log.exception("%s", " ".join(key))
            await asyncio.sleep(AGAIN_S)

    async def _finish(self, step: FinishPlan) -> None:
        """End the plan, unless something was just started that must be ended first."""
        self._fleet = await asyncio.to_thread(read_fleet, self._paths)
        run, sessions = self._plan_log.run, find_sessions(self._plan_log, self._fleet)
        ahead = next_steps(self._plan, run, sessions, self._plan.limit, time.time(), limits=self._limits)
        if ahead.steps != (step,):
            return
        await asyncio.to_thread(self._plan_log.note, PlanEnded(at=time.time(), outcome=step.outcome, why=step.why))


def _is_needed(run: PlanRun, at: TaskRun) -> bool:
    return at.state is TaskState.CLAIMED and not run.is_aborted and not run.is_stopped


def main(argv: Sequence[str]) -> int:
    """Run the plan whose id is the only argument, until it ends; 0 also if another process runs it."""
    if len(argv) != 1 or not ID.fullmatch(argv[0]):
        sys.stderr.write("a plan runner requires the id of one plan.\n")
        return UsageError.exit_code
    paths = begin_process()
    plan_log = PlanLog(paths, argv[0])
    if not plan_log.folder.is_dir():
        sys.stderr.write(f"{PlanNotFoundError(argv[0])}\n")
        return PlanNotFoundError.exit_code

    def run() -> bool:
        plan_log.more()
        return asyncio.run(_run_until_ended(PlanRunner(paths, plan_log, load_or_default(paths, log.warning))))

    def is_over() -> bool:
        plan_log.more()
        return plan_log.run.is_stopped or plan_log.run.state == "ended"

    return run_locked(plan_log.lock, run, is_over)


async def _run_until_ended(runner: PlanRunner) -> bool:
    """Run until the plan ends or is stopped; True if a signal ended this process and the next runner continues.

    After a signal, a call that hangs ends with this process, which would hold the plan's lock until then.
    """
    threads = ThreadPoolExecutor(THREADS)
    asyncio.get_running_loop().set_default_executor(threads)
    if was_signalled := await run_until_signalled(runner.run()):
        ending = threading.Thread(target=threads.shutdown, daemon=True)
        ending.start()
        ending.join(LEAVE_S)
        if ending.is_alive():
            os._exit(0)
    return was_signalled
