"""The sandboxes of one client: runs are executed in order, and stopped if cancelled; sandboxes end with the server.

This module does not know MCP.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from kasmon.config import Config
from kasmon.errors import KasmonError, NameTakenError, NotFoundError, RefusedError, SessionNotFoundError
from kasmon.host.rpc.frames import RunOutputChunk
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.mcp import results
from kasmon.mcp.client_identity import ClientIdentity, find_abandoned, temporary_name
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Interpreter, RunResult
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.store.machines import machine_names
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes import sandbox_operations, use
from kasmon.supervisor.sandboxes.create import NewSandbox
from kasmon.supervisor.sessions import list_entry

STOPPED: Final = "it was stopped before it started."
Show: TypeAlias = Callable[[RunOutputChunk], None]


@dataclass(eq=False)
class RunTask:
    """One run on its way to a sandbox."""

    interpreter: Interpreter
    code: str
    session: str
    """The client's name of the session; empty is a temporary sandbox."""
    printed: Show
    """Called with its output as it arrives."""
    id: str = field(default_factory=use.new_run)
    sandbox: Session | None = None
    """Set as soon as it may run there."""
    is_stopped: bool = False

    def check(self) -> None:
        """Raise `KasmonError` if the run was stopped."""
        if self.is_stopped:
            raise KasmonError(STOPPED)


class SandboxPool:
    """Holds at most one spare sandbox. It prepares none before the first use: a client without runs costs nothing."""

    def __init__(
        self, make: Callable[[], Coroutine[Any, Any, Session]], refresh: Callable[[Session], Awaitable[Session]]
    ) -> None:
        """*make* creates a sandbox; *refresh* returns the current state of one."""
        self._make = make
        self._lookup = refresh
        self._next: asyncio.Task[Session] | None = None

    async def acquire(self) -> Session:
        """Return the spare sandbox, or a new one. Raises `KasmonError` if none can be created."""
        return await self.ready() or await self._make()

    async def ready(self) -> Session | None:
        """Return the spare sandbox, ready or in preparation; None if there is none, or it has ended."""
        coming, self._next = self._next, None
        if coming is None:
            return None
        with contextlib.suppress(KasmonError):
            session = await self._lookup(await asyncio.shield(coming))
            if session.state not in (SessionState.ENDED, SessionState.LOST):
                return session
        return None

    def prepare(self, start_task: Callable[[Coroutine[Any, Any, Session]], asyncio.Task[Session]]) -> None:
        """Create a spare sandbox in a task by *start_task*, unless there is one."""
        if self._next is None:
            self._next = start_task(self._make())


AGAIN_S: Final = 1.0
"""The interval between interrupts, in seconds."""
INTERRUPTS: Final = 5
"""The number of interrupts; after them the run continues until its time limit."""
CLOSING_S: Final = 10.0
"""The time limit for closing a server; the next server removes what is left."""
Value = TypeVar("Value")


class SandboxTools:
    """The sandboxes and runs of one client. Call its methods on one loop; `close` ends it."""

    def __init__(self, paths: Paths, config: Config, owner: ClientIdentity, template: NewSandbox) -> None:
        """*template*: the settings of new sandboxes; its name is ignored."""
        self._paths = paths
        self._config = config
        self._owner = owner
        self._template = template
        self._pool = SandboxPool(self._create_temporary, self._refresh)
        self._is_closing = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runs: dict[asyncio.Task[dict[str, Any]], RunTask] = {}
        self._interpreter_locks: defaultdict[tuple[str, Interpreter], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._session_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._open_sessions: dict[str, Session] = {}
        """Fleet name -> its session, while that has a host: saves reading the fleet for each run."""
        self._original_names: dict[str, str] = {}
        """Fleet name -> the sandbox's name when it was created, by which it refers to itself."""

    async def open(self) -> None:
        """Mark this server as running, and remove leftovers of dead servers in the background."""
        await asyncio.to_thread(self._owner.begin)
        self._start_task(self._remove_abandoned())

    async def run(self, interpreter: Interpreter, code: str, session: str, printed: Show) -> dict[str, Any]:
        """Run *code* in the client's *session* (empty: none), and return its result.

        Cancelling the call stops the run. *printed* is called with its output as it arrives.

        Raises:
            KasmonError: if it could not be run, or its outcome is unknown.
        """
        if self._is_closing:
            raise RefusedError("the server is shutting down.")
        running = RunTask(interpreter, code, session, printed)
        work = self._start_task(self._run_in_session(running) if session else self._run_in_temporary(running))
        self._runs[work] = running
        work.add_done_callback(self._runs.pop)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled() and not _is_cancelled():
                raise KasmonError(STOPPED) from None
            self._start_task(self._stop_run(work, running))
            raise

    async def sessions(self) -> list[tuple[str, Session]]:
        """Return the client's sessions by the names that it gave them."""
        return self._owner.sessions(await self._fleet())

    async def find(self, session: str) -> Session:
        """Return the client's *session*. Raises `NotFoundError` if the client has no session of this name."""
        for name, found in await self.sessions():
            if name == session:
                return found
        await self._check_machine(session)
        raise NotFoundError(f"there is no session {session!r} of yours.", hint="list_sessions returns your sessions.")

    async def end(self, session: str) -> None:
        """End and remove the client's *session*.

        Raises:
            KasmonError: if there is none, or it could not be removed completely.
        """
        found = await self.find(session)
        self._open_sessions.pop(found.name, None)
        for running in self._runs.values():
            running.is_stopped |= running.session == session
        await sandbox_operations.remove(self._paths, found)

    def running(self, session: str, interpreter: Interpreter | None = None) -> list[RunTask]:
        """Return the started runs of this server in the client's *session*, or in one interpreter there."""
        return [
            each
            for each in self._runs.values()
            if each.session == session and interpreter in (None, each.interpreter) and each.sandbox is not None
        ]

    async def interrupt(self, session: str, interpreter: Interpreter | None, run: str) -> tuple[list[str], list[str]]:
        """Interrupt the run with the id *run* in the client's *session*; if empty, this server's runs there.
        Return the ids of the interrupted runs, and why others were not.

        Raises:
            KasmonError: if there is no such session.
        """
        found = await self.find(session)
        runs = [run] if run else [each.id for each in self.running(session, interpreter)]
        done, why_not = list[str](), list[str]()
        for each in runs:
            try:
                await use.interrupt(self._paths, found, run=each)
            except KasmonError as error:
                why_not.append(error.message)
            else:
                done.append(each)
        return done, why_not or ([] if done else ["nothing of yours is running there."])

    async def close(self) -> None:
        """Stop all runs, and remove the sessions that end with this server; the next server removes what is left."""
        self._is_closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await _gather(self._stop_run(work, running) for work, running in list(self._runs.items()))
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
                await _gather(self._remove(session) for session in self._owner.temporary_sessions(await self._fleet()))
                if not self._owner.temporary_sessions(await self._fleet()):
                    await asyncio.to_thread(self._owner.end)

    async def _run_in_session(self, running: RunTask) -> dict[str, Any]:
        name = self._owner.name_of(running.session)
        async with self._interpreter_locks[name, running.interpreter]:
            running.check()
            async with self._session_locks[name]:
                where, lost = await self._get_session(name)
            running.check()
            running.sandbox = where
            ran = await self._execute(where, running)
        return results.lost_before(results.of_run(ran, running.session, self._original_names.get(name, name)), lost)

    async def _run_in_temporary(self, running: RunTask) -> dict[str, Any]:
        where = await self._pool.acquire()
        try:
            self._pool.prepare(self._start_task)
            ran = await self._execute(where, running)
        finally:
            self._start_task(self._remove(where))
        return results.of_once(ran)

    async def _execute(self, where: Session, running: RunTask) -> RunResult:
        return await use.run(
            self._paths, where, running.interpreter, running.code, printed=running.printed, run=running.id
        )

    async def _get_session(self, name: str) -> tuple[Session, str]:
        """Return the session of this fleet name, created or restarted if necessary, and what that lost."""
        at = self._open_sessions.get(name)
        if at is not None and await asyncio.to_thread(lock_holder, self._paths.host_lock(at.id)) is not None:
            return at, ""
        self._open_sessions[name], lost = await self._find_or_create(name)
        return self._open_sessions[name], lost

    async def _find_or_create(self, name: str) -> tuple[Session, str]:
        known = next((each for each in (await self._fleet()).here if each.name == name), None)
        if known is not None and known.state is not SessionState.ENDED:
            return known, ""
        if known is None:
            await self._check_machine(name.removeprefix(f"{self._owner.prefix}/"))
        if known is None and (spare := await self._pool.ready()) is not None:
            try:
                await list_entry.rename(self._paths, spare, name)
            except NameTakenError:
                self._start_task(self._remove(spare))
            else:
                self._original_names[name] = spare.name
                return await self._refresh(spare), ""
        new_sandbox = msgspec.structs.replace(self._template, name=name)
        try:
            created, lost = await sandbox_operations.get_or_create(self._paths, self._config, new_sandbox)
        except NameTakenError as error:  # by another server of this client, just now
            created, lost = SessionId(error.holder), ""
        return await self._get_current(created, name), lost

    async def _check_machine(self, session: str) -> None:
        """Raise `RefusedError` if *session*, which is none of the client's, names one of a registered machine."""
        machine = session.partition(":")[0] if ":" in session else ""
        if machine in await asyncio.to_thread(machine_names, self._paths):
            raise RefusedError(
                f"{session!r} would be on the machine {machine!r}: agents reach no sessions of other machines.",
                hint="Without the machine's name, the session is on this machine.",
            )

    async def _create_temporary(self) -> Session:
        new_sandbox = msgspec.structs.replace(self._template, name=temporary_name(self._owner))
        created = await sandbox_operations.create(self._paths, self._config, new_sandbox)
        return await self._get_current(created, new_sandbox.name)

    async def _stop_run(self, work: asyncio.Task[dict[str, Any]], running: RunTask) -> None:
        """Stop *running* and wait for its end; its session's state is retained if the interpreter reacts."""
        running.is_stopped = True
        if not running.session:
            work.cancel()
            await asyncio.wait({work})
            return
        for _ in range(INTERRUPTS):
            if running.sandbox is not None:
                with contextlib.suppress(KasmonError):
                    await use.interrupt(self._paths, running.sandbox, run=running.id)
            if (await asyncio.wait({work}, timeout=AGAIN_S))[0]:
                return

    async def _remove_abandoned(self) -> None:
        left = await asyncio.to_thread(find_abandoned, self._paths, await self._fleet())
        await _gather(self._remove(session) for session in left)

    async def _remove(self, session: Session) -> None:
        with contextlib.suppress(KasmonError):
            await sandbox_operations.remove(self._paths, await self._refresh(session))

    async def _refresh(self, session: Session) -> Session:
        return await self._get_current(session.id, session.name)

    async def _get_current(self, session: SessionId, name: str) -> Session:
        found = (await self._fleet()).get(session)
        if found is None:
            raise SessionNotFoundError(name)
        return found

    async def _fleet(self) -> Fleet:
        return await asyncio.to_thread(read_fleet, self._paths)

    def _start_task(self, work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieve the error, so that asyncio does not log it as never retrieved


def _is_cancelled() -> bool:
    """Whether the current task itself is being cancelled, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _gather(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*coroutines, return_exceptions=True)
