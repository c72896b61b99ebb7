"""The process that runs one plan: it looks at the fleet, asks what is next, notes it, and does it.

It holds the plan's lock for life and knows nothing that its log does not: killed at any moment, the next one goes on.
"""

import asyncio
import contextlib
import logging
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from kasmon.config import Config, in_force
from kasmon.errors import KasmonError, PlanNotFoundError, SessionEndedError, UsageError
from kasmon.host import handed, own_log
from kasmon.host.alive import HostLock
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.fact import PlanEnded, PlanFact, TaskClaimed, TaskDone, TaskFailed
from kasmon.model.plan.next import Ahead, Begin, Check, Claim, End, Finish, Settle, Start, Step, ahead
from kasmon.model.plan.spec import Plan, Task
from kasmon.model.session import Session
from kasmon.model.state import SessionState
from kasmon.paths import Places, places, private_folder, write_private
from kasmon.store.plan import PlanBook
from kasmon.supervisor import verb
from kasmon.supervisor.look import look_once
from kasmon.supervisor.plans import place, worktree
from kasmon.supervisor.plans.check import run_check
from kasmon.supervisor.plans.context import ON, Contexts
from kasmon.supervisor.plans.place import Grounds
from kasmon.supervisor.plans.see import agreed, settled
from kasmon.supervisor.plans.session import Starter, variables
from kasmon.supervisor.radar_watch import sweeps
from kasmon.supervisor.wait import fleets

TICK_S: Final = 0.1
"""How often the plan's log is looked at, in seconds: a person's decision is heard within this."""
LOOK_S: Final = 1.0
"""How often all is looked at, whatever happened."""
TELL_S: Final = 0.5
"""How often peers are told of each other at most, in seconds."""
AGAIN_S: Final = 2.0
"""How long after it failed a step is tried again: a full disk, a host that does not answer."""

ID: Final = re.compile(r"[a-z0-9_][a-z0-9_-]{0,63}")

log = logging.getLogger(__name__)


class Runner:
    """Runs the plan of *book* until it ends. The caller holds its lock."""

    def __init__(self, where: Places, book: PlanBook, config: Config) -> None:
        self.ahead = Ahead((), {})
        self._where = where
        self._book = book
        self._config = config
        self._grounds = Grounds(where, book.plan, Path(book.run.folder))
        self._starter = Starter(where, config, book, self._grounds)
        self._contexts = Contexts(where)
        self._fleet = Fleet()
        """As last seen; nothing is begun before the first look, which tells what an earlier runner left."""
        self._news = asyncio.Event()
        self._doing: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._digest = ""
        self._plan = Plan(name="")
        self._told_at = -math.inf
        self._telling: asyncio.TimerHandle | None = None
        self._files: dict[str, tuple[str, ...]] = {}

    async def run(self) -> None:
        """Until the plan has ended."""
        self._fleet = await asyncio.to_thread(look_once, self._where)
        watching = asyncio.create_task(self._watch())
        listening = asyncio.create_task(self._listen())
        sweeping = asyncio.create_task(self._sweep())
        try:
            while self._book.run.state != "ended":
                self._news.clear()
                await self._step()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._news.wait()
                for eye in (watching, listening):
                    if eye.done():  # blind, it would wait for ever; the next one may see
                        eye.result()
        finally:
            all_of_it = (watching, listening, sweeping, *self._doing.values())
            for task in all_of_it:
                task.cancel()
            await asyncio.gather(*all_of_it, return_exceptions=True)

    async def _watch(self) -> None:
        async with fleets(self._where) as changes:
            async for fleet in changes:
                self._fleet = fleet
                self._news.set()

    async def _listen(self) -> None:
        """Hear what others write into the plan's log."""
        size = -1
        while True:
            if (now := await asyncio.to_thread(self._book.size)) != size:
                size = now
                self._news.set()
            await asyncio.sleep(TICK_S)

    async def _sweep(self) -> None:
        """Know which files each task changed that has a worktree of its own."""
        async for sweep in sweeps(self._own_grounds, alone=True):
            tasks = {at.session: id_ for id_, at in self._book.run.tasks.items()}
            self._files |= {tasks[session]: files for session, files in sweep.files.items() if session in tasks}
            self._news.set()

    def _own_grounds(self) -> list[Session]:
        """The sessions of tasks that work where no other does."""
        own = {t.id for t in self._plan.tasks if (t.worktree or self._plan.worktree) == "own"}
        of_own = {at.session for id_, at in self._book.run.tasks.items() if id_ in own and at.state in ON}
        return [session for session in self._fleet.sessions if session.id in of_own]

    async def _step(self) -> None:
        """Look once, and begin to do whatever is next and is not being done."""
        await asyncio.to_thread(self._book.more)
        await asyncio.to_thread(self._learn)
        run = self._book.run
        sessions = {str(session.id): session for session in self._fleet.sessions if session.plan == run.plan}
        limit = self._room(sum(key[0] == "attempt" for key in self._doing))
        self.ahead = ahead(self._plan, run, sessions, limit, time.time())
        for step in self.ahead.steps:
            self._do(step)
        if (wait_s := self._told_at + TELL_S - time.monotonic()) > 0:
            if self._telling is None or self._telling.when() < asyncio.get_running_loop().time():
                self._telling = asyncio.get_running_loop().call_later(wait_s, self._news.set)
            return
        self._told_at = time.monotonic()
        await asyncio.to_thread(self._contexts.tell, self._plan, run, self._fleet, dict(self._files))

    def _learn(self) -> None:
        """Read the text that was agreed to, where it is not the one that was read."""
        if self._digest != self._book.run.digest:
            self._plan = settled(agreed(self._book), self._config)
            self._digest = self._book.run.digest

    def _room(self, beginning: int) -> int:
        """How many tasks may run now, by the plan's word and by the machine's load; one always may."""
        most = self._config.plans.max_load
        if most and os.getloadavg()[0] / (os.cpu_count() or 1) > most:
            running = sum(at.state.value in ("running", "claimed") for at in self._book.run.tasks.values())
            return max(1, min(self._plan.limit, running + beginning))
        return self._plan.limit

    def _do(self, step: Step) -> None:
        match step:
            case Begin(task, attempt):
                run, fleet = self._book.run, self._fleet
                self._begin(("attempt", task.id), lambda: self._starter.attempt(self._plan, run, task, attempt, fleet))
            case Start(task, attempt, session):
                run = self._book.run
                self._begin(("attempt", task.id), lambda: self._starter.start(run, task, attempt, session))
            case Claim():
                self._begin(("claim", step.task.id), lambda: self._claim(step))
            case Check(task, attempt):
                self._begin(("check", task.id), lambda: self._check(task, attempt))
            case Settle() if ("attempt", step.task.id) not in self._doing:
                self._begin(("settle", step.task.id), lambda: self._settle(step))
            case End(session):
                self._begin(("end", session), lambda: self._end(session))
            case Finish() if any(key[0] == "attempt" for key in self._doing):
                pass  # what is being started is to be ended first
            case Finish():
                self._begin(("finish",), lambda: self._finish(step))

    def _begin(self, key: tuple[str, ...], deed: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do *deed* in the background, unless it is being done."""
        if key not in self._doing:
            self._doing[key] = asyncio.create_task(self._done(key, deed))

    async def _done(self, key: tuple[str, ...], deed: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """*deed*, done or tried in vain; what it noted is read before the same is begun again."""
        try:
            await deed()
        except (KasmonError, OSError) as error:
            log.warning("%s: %s", " ".join(key), error)
            await asyncio.sleep(AGAIN_S)
        except Exception:  # a mistake of ours at one task: the others go on, and our log has it
            log.exception("%s", " ".join(key))
            await asyncio.sleep(AGAIN_S)
        await asyncio.to_thread(self._book.more)
        del self._doing[key]
        self._news.set()

    async def _claim(self, step: Claim) -> None:
        task, at = step.task, self._book.run.of(step.task.id)
        if not step.word.by:
            await self._note(TaskFailed(at=time.time(), task=task.id, attempt=step.attempt, why=step.word.text))
            return
        folder, is_own = Path(at.workdir or "."), (task.worktree or self._plan.worktree) == "own"
        changed = await asyncio.to_thread(_changed, folder, at.base) if is_own and at.base else None
        if left := await asyncio.to_thread(place.result, folder, task, at.began_at):
            await asyncio.to_thread(_keep, self._book.result(task), left)
        claimed = TaskClaimed(
            at=time.time(),
            task=task.id,
            attempt=step.attempt,
            by=step.word.by,
            text=step.word.text,
            changed=None if changed is None else len(changed),
        )
        await self._note(claimed)

    async def _check(self, task: Task, attempt: int) -> None:
        at = self._book.run.of(task.id)
        own = variables(self._book.plan, task, at.session)
        await self._note(await run_check(task.id, attempt, task.check, at.workdir or "/", own))

    async def _settle(self, step: Settle) -> None:
        fact = TaskDone if step.done else TaskFailed
        at = self._book.run.of(step.task.id)
        await self._note(fact(at=time.time(), task=step.task.id, attempt=step.attempt, why=step.why))
        known = self._fleet.get(SessionId(at.session))
        if step.task.run and not step.done and known is not None and known.state is SessionState.WORKING:
            with contextlib.suppress(KasmonError):  # another command may go on in its terminal, if this one leaves it
                await verb.interrupt(self._where, known)

    async def _end(self, session: SessionId) -> None:
        known = self._fleet.get(session)
        if known is not None and known.exists:
            with contextlib.suppress(SessionEndedError):  # the fleet that we saw was not the newest
                await verb.stop(self._where, known)

    async def _finish(self, step: Finish) -> None:
        """End the plan, unless something was started a moment ago that is to be ended first."""
        self._fleet = await asyncio.to_thread(look_once, self._where)
        run = self._book.run
        sessions = {str(session.id): session for session in self._fleet.sessions if session.plan == run.plan}
        if ahead(self._plan, run, sessions, self._plan.limit, time.time()).steps != (step,):
            return
        await self._note(PlanEnded(at=time.time(), outcome=step.outcome, why=step.why))

    async def _note(self, fact: PlanFact) -> None:
        await asyncio.to_thread(self._book.add, fact)


def _changed(folder: Path, base: str) -> tuple[str, ...] | None:
    try:
        return worktree.changed(folder, base)
    except KasmonError as error:
        log.warning("what changed in %s: %s", folder, error)
        return None


def _keep(path: Path, text: str) -> None:
    private_folder(path.parent)
    write_private(path, text.encode())


def main(argv: Sequence[str]) -> int:
    """Run the plan whose id is the only argument, until it ends; 0 also if another process runs it."""
    if len(argv) != 1 or not ID.fullmatch(argv[0]):
        sys.stderr.write("a runner needs the id of one plan.\n")
        return UsageError.exit_code
    os.umask(0o077)
    own_log.keep()
    handed.take()
    here = places()
    book = PlanBook(here, argv[0])
    if not book.folder.is_dir():
        sys.stderr.write(f"{PlanNotFoundError(argv[0])}\n")
        return PlanNotFoundError.exit_code
    lock = HostLock(book.lock)
    if not lock.take():
        return 0
    try:
        book.more()
        asyncio.run(_until_told(Runner(here, book, in_force(here, log.warning))))
    except KasmonError as error:
        log.error("%s", error)
        return error.exit_code
    finally:
        lock.let_go()
    return 0


async def _until_told(runner: Runner) -> None:
    """Run until the plan ends, or somebody ends this process: the plan goes on with the next one."""
    running = asyncio.ensure_future(runner.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
