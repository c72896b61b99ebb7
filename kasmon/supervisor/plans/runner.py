"""The runner of one plan: it reads the fleet, computes the next steps, logs and executes them.

It keeps no state outside the plan's log: if it is killed at any moment, the next runner continues.
"""

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

from kasmon.config import Config
from kasmon.errors import KasmonError, ProtocolVersionError
from kasmon.model.fleet import Fleet
from kasmon.model.plan.events import PlanEnded
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import PlanRun, TaskRun, TaskState
from kasmon.model.plan.scheduler import (
    BeginAttempt,
    CheckTask,
    ClaimTask,
    EndTaskSession,
    FinishPlan,
    NextSteps,
    SettleTask,
    StartAttempt,
    Step,
    ahead,
    takes_room,
)
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.fleet.snapshot import look_once
from kasmon.supervisor.fleet.wait import fleets
from kasmon.supervisor.plans.check import end_left
from kasmon.supervisor.plans.peer_context import ON, TaskContexts
from kasmon.supervisor.plans.task_actions import TaskActions
from kasmon.supervisor.plans.task_folder import TaskFolders
from kasmon.supervisor.plans.task_session import TaskStarter
from kasmon.supervisor.plans.view import agreed, settled
from kasmon.supervisor.sessions.tmux_host import bring_back, without_host
from kasmon.supervisor.worktrees.collision_watch import sweeps

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
AGAIN_S: Final = 2.0
"""How long after a failure a step is retried: a full disk, a host that does not answer. Also how long the fleet may
take to show what was started or ended; it is not done again within this time."""

log = logging.getLogger(__name__)


class PlanRunner:
    """Runs the plan of *book* until it ends. The caller holds its lock."""

    def __init__(self, where: Paths, book: PlanLog, config: Config) -> None:
        self.ahead = NextSteps((), {})
        self._where = where
        self._book = book
        self._config = config
        self._grounds = TaskFolders(where, book.plan, Path(book.run.folder))
        self._starter = TaskStarter(where, config, book, self._grounds)
        self._deeds = TaskActions(where, book, config, self._grounds)
        self._contexts = TaskContexts(where)
        self._fleet = Fleet()
        """As last read; nothing begins before the first read, which shows what an earlier runner started."""
        self._news = asyncio.Event()
        self._doing: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._did_at: dict[tuple[str, ...], float] = {}
        """When sessions were last started and ended, in seconds of the loop's clock."""
        self._dropped: set[str] = set()
        """The sessions whose checks on other machines are being ended."""
        self._too_old: ProtocolVersionError | None = None
        self._digest = ""
        self._plan = Plan(name="")
        self._told_at = -math.inf
        self._telling: asyncio.TimerHandle | None = None
        self._files: dict[str, tuple[str, ...]] = {}

    async def run(self) -> None:
        """Run until the plan has ended.

        Raises:
            ProtocolVersionError: if a host has another version. No task fails by that; the next runner continues.
        """
        await asyncio.to_thread(self._end_left)
        self._fleet = await asyncio.to_thread(look_once, self._where)
        watching = asyncio.create_task(self._watch())
        listening = asyncio.create_task(self._listen())
        sweeping = asyncio.create_task(self._sweep())
        try:
            while self._book.run.state != "ended" and not await self._is_stopped():
                self._news.clear()
                began = time.thread_time()
                if self._too_old is not None:
                    raise self._too_old
                await self._step()
                await asyncio.sleep(min(RESTS * (time.thread_time() - began), LOOK_S))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._news.wait()
                for eye in (watching, listening):
                    if eye.done():  # without it, the loop would wait forever; the next runner may succeed
                        eye.result()
        finally:
            all_of_it = (watching, listening, sweeping, *self._doing.values())
            for task in all_of_it:
                task.cancel()
            await asyncio.gather(*all_of_it, return_exceptions=True)

    def _end_left(self) -> None:
        """End the checks that a killed runner left; pending checks are started again."""
        self._book.more()
        for at in self._book.run.tasks.values():
            if at.checking is not None:
                end_left(at.checking)

    async def _watch(self) -> None:
        async with fleets(self._where, NEWS_S) as changes:
            async for fleet in changes:
                self._fleet = fleet
                self._news.set()

    async def _listen(self) -> None:
        """Wake the runner when others append to the plan's log."""
        size = -1
        while True:
            if (now := await asyncio.to_thread(self._book.size)) != size:
                size = now
                self._news.set()
            await asyncio.sleep(TICK_S)

    async def _sweep(self) -> None:
        """Track which files each task changed that has its own worktree."""
        async for sweep in sweeps(self._own_grounds, alone=True):
            tasks = {at.session: id_ for id_, at in self._book.run.tasks.items()}
            self._files |= {tasks[session]: files for session, files in sweep.files.items() if session in tasks}
            self._news.set()

    def _own_grounds(self) -> tuple[Session, ...]:
        """Return the sessions of running tasks that have their own worktree."""
        own = {t.id for t in self._plan.tasks if (t.worktree or self._plan.worktree) == "own"}
        of_own = {at.session for id_, at in self._book.run.tasks.items() if id_ in own and at.state in ON}
        return tuple(session for session in self._fleet.sessions if session.id in of_own)

    async def _step(self) -> None:
        """Compute the next steps once, and start those that are not being executed."""
        await asyncio.to_thread(self._learn)
        run = self._book.run
        sessions = {str(session.id): session for session in self._fleet.sessions if session.plan == run.plan}
        self.ahead = ahead(self._plan, run, sessions, self._limit(), time.time())
        self._drop_checks()
        if without_host(sessions.values()):
            self._begin(("host",), self._bring_back_host)
        for step in self.ahead.steps:
            self._do(step)
        if (wait_s := self._told_at + TELL_S - time.monotonic()) > 0:
            if self._telling is None or self._telling.when() < asyncio.get_running_loop().time():
                self._telling = asyncio.get_running_loop().call_later(wait_s, self._news.set)
            return
        self._told_at = time.monotonic()
        await asyncio.to_thread(self._contexts.tell, self._plan, run, self._fleet, dict(self._files))

    async def _is_stopped(self) -> bool:
        """Whether the user stopped the plan, and nothing of it runs any more."""
        if not self._book.run.is_stopped or self._doing or self.ahead.steps:
            return False
        fleet = await asyncio.to_thread(look_once, self._where)
        return not any(session.exists for session in fleet.sessions if session.plan == self._book.run.plan)

    def _learn(self) -> None:
        """Read what was added to the log, and the approved text if its digest changed."""
        self._book.more()
        if self._digest != self._book.run.digest:
            self._plan = settled(agreed(self._book), self._config)
            self._digest = self._book.run.digest

    def _limit(self) -> int:
        """Return how many tasks may run now: the plan's limit, but no more on a busy machine; at least one."""
        most = self._config.plans.max_load
        if not most or os.getloadavg()[0] / (os.cpu_count() or 1) <= most:
            return self._plan.limit
        run = self._book.run
        at_work = sum(takes_room(run, task) or ("attempt", task.id) in self._doing for task in self._plan.tasks)
        return max(1, min(self._plan.limit, at_work))

    def _do(self, step: Step) -> None:
        match step:
            case BeginAttempt() if any(key[:2] == ("check", step.task.id) for key in self._doing):
                pass  # the check of its last attempt is being ended
            case BeginAttempt(task, attempt):
                run, fleet = self._book.run, self._fleet
                self._begin(("attempt", task.id), lambda: self._starter.attempt(self._plan, run, task, attempt, fleet))
            case StartAttempt() if self._did_now(("attempt", step.task.id)):
                pass  # the fleet is not up to date yet
            case StartAttempt(task, attempt, session):
                run = self._book.run
                self._begin(("attempt", task.id), lambda: self._starter.start(self._plan, run, task, attempt, session))
            case ClaimTask():
                self._begin(("claim", step.task.id), lambda: self._deeds.claim(self._plan, step))
            case CheckTask(task, attempt):
                self._begin(("check", task.id, str(attempt)), lambda: self._deeds.check(self._plan, task, attempt))
            case SettleTask() if ("attempt", step.task.id) not in self._doing:
                self._begin(("settle", step.task.id), lambda: self._deeds.settle(step, self._fleet))
            case EndTaskSession(session) if self._did_now(("end", session)):
                pass
            case EndTaskSession(session):
                self._begin(("end", session), lambda: self._deeds.end(session, self._fleet))
            case FinishPlan() if any(key[0] in ("attempt", "drop") for key in self._doing):
                pass  # sessions being started must be ended first
            case FinishPlan():
                self._begin(("finish",), lambda: self._finish(step))

    async def _bring_back_host(self) -> None:
        """Restart the shared tmux host: without it no session in a terminal reports its state."""
        if await bring_back(self._where):
            log.warning("the shared tmux host was restarted after it was lost")

    def _drop_checks(self) -> None:
        """End the checks of attempts that the user retried or dropped."""
        run = self._book.run
        for key, doing in self._doing.items():
            if key[0] == "check" and not (_is_wanted(run, run.of(key[1])) and str(run.of(key[1]).attempt) == key[2]):
                doing.cancel()
        for at in run.tasks.values():
            left = at.checking
            if left is not None and left.machine and not _is_wanted(run, at) and at.session not in self._dropped:
                self._dropped.add(at.session)
                self._begin(("drop", at.session), partial(self._deeds.drop_check, left.machine, at.session))

    def _begin(self, key: tuple[str, ...], deed: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Execute *deed* in the background, unless it is being executed."""
        if key not in self._doing:
            self._doing[key] = doing = asyncio.create_task(self._done(key, deed))
            doing.add_done_callback(lambda _: self._over(key))

    def _over(self, key: tuple[str, ...]) -> None:
        del self._doing[key]
        self._news.set()

    def _did_now(self, key: tuple[str, ...]) -> bool:
        """Whether it was done so recently that the fleet may not show it yet."""
        return asyncio.get_running_loop().time() < self._did_at.get(key, -math.inf) + AGAIN_S

    async def _done(self, key: tuple[str, ...], deed: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Execute *deed* and log its failure."""
        try:
            await deed()
            if key[0] in ("attempt", "end"):
                self._did_at[key] = asyncio.get_running_loop().time()
        except ProtocolVersionError as error:  # a newer kasmon is in use: its runner continues
            log.warning("%s: %s", " ".join(key), error)
            self._too_old = error
            self._news.set()
        except (KasmonError, OSError) as error:
            log.warning("%s: %s", " ".join(key), error)
            await asyncio.sleep(AGAIN_S)
        except Exception:  # a bug that affects one task: the others continue, and the log has it
            log.exception("%s", " ".join(key))
            await asyncio.sleep(AGAIN_S)

    async def _finish(self, step: FinishPlan) -> None:
        """End the plan, unless something was just started that must be ended first."""
        self._fleet = await asyncio.to_thread(look_once, self._where)
        run = self._book.run
        sessions = {str(session.id): session for session in self._fleet.sessions if session.plan == run.plan}
        if ahead(self._plan, run, sessions, self._plan.limit, time.time()).steps != (step,):
            return
        await asyncio.to_thread(self._book.note, PlanEnded(at=time.time(), outcome=step.outcome, why=step.why))


def _is_wanted(run: PlanRun, at: TaskRun) -> bool:
    """Whether the check of the task at *at* is still needed."""
    return at.state is TaskState.CLAIMED and not run.is_aborted and not run.is_stopped
