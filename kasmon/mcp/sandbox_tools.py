"""The sandboxes of one client: code runs in them in order, and stops when nobody waits; they end with the server.

Nothing here knows MCP.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

import msgspec

from kasmon.config import Config
from kasmon.errors import KasmonError, NameTakenError, NotFoundError, RefusedError, SessionNotFoundError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.mcp import results
from kasmon.mcp.client_identity import ClientIdentity, abandoned, once
from kasmon.mcp.run_task import STOPPED, RunTask, Show
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Interpreter, RunResult
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.supervisor.fleet.snapshot import look_once
from kasmon.supervisor.sandboxes import operations
from kasmon.supervisor.sandboxes.create import NewSandbox
from kasmon.supervisor.sessions import operations as verb


class SandboxPool:
    """Holds one at most. None is made before the first was taken: a client that never runs code costs nothing."""

    def __init__(
        self, make: Callable[[], Coroutine[Any, Any, Session]], look: Callable[[Session], Awaitable[Session]]
    ) -> None:
        """
        Args:
            make: makes one.
            look: how one is now.
        """
        self._make = make
        self._look = look
        self._next: asyncio.Task[Session] | None = None

    async def take(self) -> Session:
        """The one that is there or on its way; else a new one.

        Raises:
            KasmonError: if none can be made.
        """
        return await self.ready() or await self._make()

    async def ready(self) -> Session | None:
        """The one that is there or on its way; None where there is none, or it did not last."""
        coming, self._next = self._next, None
        if coming is None:
            return None
        with contextlib.suppress(KasmonError):
            session = await self._look(await asyncio.shield(coming))
            if session.state not in (SessionState.ENDED, SessionState.LOST):
                return session
        return None

    def prepare(self, beside: Callable[[Coroutine[Any, Any, Session]], asyncio.Task[Session]]) -> None:
        """Have one made *beside*, unless there is one."""
        if self._next is None:
            self._next = beside(self._make())


AGAIN_S: Final = 1.0
"""How long an interrupt may take until it is sent again."""
INTERRUPTS: Final = 5
"""So often; then the run goes on until its time is over."""
CLOSING_S: Final = 10.0
"""How long the end of a server may take; what is left is removed by the next one."""
Value = TypeVar("Value")


class SandboxTools:
    """What one client has. Its calls are made on one loop; `close` ends it."""

    def __init__(self, places: Paths, config: Config, owner: ClientIdentity, like: NewSandbox) -> None:
        """*like*: what its sandboxes are made like; its name counts for nothing."""
        self._places = places
        self._config = config
        self._owner = owner
        self._like = like
        self._ahead = SandboxPool(self._made_for_once, self._looked)
        self._is_closing = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._works: dict[asyncio.Task[dict[str, Any]], RunTask] = {}
        self._turns: defaultdict[tuple[str, Interpreter], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._doors: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._open: dict[str, Session] = {}
        """Name in the fleet -> its session, for as long as that has a host: the fleet is not read for each run."""
        self._called: dict[str, str] = {}
        """Name in the fleet -> what the sandbox was called when it was made: so it speaks of itself."""

    async def open(self) -> None:
        """Say that this server lives, and remove beside that what dead ones left."""
        await asyncio.to_thread(self._owner.begin)
        self._beside(self._swept())

    async def run(self, interpreter: Interpreter, code: str, session: str, printed: Show) -> dict[str, Any]:
        """Run *code* in the client's *session*, empty being none, and return what came of it in the seed's shape.

        Whoever stops waiting (is cancelled) stops the run. *printed* is called with its output meanwhile.

        Raises:
            KasmonError: if it could not be run, or nobody knows what became of it.
        """
        if self._is_closing:
            raise RefusedError("the server is shutting down.")
        running = RunTask(interpreter, code, session, printed)
        work = self._beside(self._in_session(running) if session else self._once(running))
        self._works[work] = running
        work.add_done_callback(self._works.pop)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled() and not _is_cancelled():
                raise KasmonError(STOPPED) from None
            self._beside(self._stopped(work, running))
            raise

    async def sessions(self) -> list[tuple[str, Session]]:
        """The client's sessions, by the name that it gave them."""
        return self._owner.sessions(await self._fleet())

    async def find(self, session: str) -> Session:
        """
        Raises:
            NotFoundError: if the client has no session of this name.
        """
        for name, found in await self.sessions():
            if name == session:
                return found
        raise NotFoundError(f"there is no session {session!r} of yours.", hint="list_sessions returns your sessions.")

    async def end(self, session: str) -> None:
        """End the client's *session*; nothing of it is left.

        Raises:
            KasmonError: if there is none, or something of it is left.
        """
        found = await self.find(session)
        self._open.pop(found.name, None)
        for running in self._works.values():
            running.is_unwanted |= running.session == session
        await operations.remove(self._places, found)

    def running(self, session: str, interpreter: Interpreter | None = None) -> list[RunTask]:
        """What this server runs in the client's *session*, or there in one interpreter alone, or waits to."""
        return [
            each
            for each in self._works.values()
            if each.session == session and interpreter in (None, each.interpreter) and each.where is not None
        ]

    async def interrupt(self, session: str, interpreter: Interpreter | None, run: str) -> tuple[list[str], list[str]]:
        """Interrupt the run with the id *run* in the client's *session*; where that is empty, what this server runs
        there. The ids of what was interrupted, and why the others were not.

        Raises:
            KasmonError: if there is no such session.
        """
        found = await self.find(session)
        runs = [run] if run else [each.id for each in self.running(session, interpreter)]
        done, why_not = list[str](), list[str]()
        for each in runs:
            try:
                await operations.interrupt(self._places, found, run=each)
            except KasmonError as error:
                why_not.append(error.message)
            else:
                done.append(each)
        return done, why_not or ([] if done else ["nothing of yours is running there."])

    async def close(self) -> None:
        """Stop what runs, and remove what ends with this server; what is not done in time is left to the next one."""
        self._is_closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await _all(self._stopped(work, running) for work, running in list(self._works.items()))
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
                await _all(self._removed(session) for session in self._owner.passing(await self._fleet()))
                if not self._owner.passing(await self._fleet()):
                    await asyncio.to_thread(self._owner.end)

    async def _in_session(self, running: RunTask) -> dict[str, Any]:
        name = self._owner.name_of(running.session)
        async with self._turns[name, running.interpreter]:
            running.check()
            async with self._doors[name]:
                where, lost = await self._got(name)
            running.check()
            running.where = where
            ran = await self._ran(where, running)
        return results.lost_before(results.of_run(ran, running.session, self._called.get(name, name)), lost)

    async def _once(self, running: RunTask) -> dict[str, Any]:
        where = await self._ahead.take()
        try:
            self._ahead.prepare(self._beside)
            ran = await self._ran(where, running)
        finally:
            self._beside(self._removed(where))
        return results.of_once(ran)

    async def _ran(self, where: Session, running: RunTask) -> RunResult:
        return await operations.run(
            self._places, where, running.interpreter, running.code, printed=running.printed, run=running.id
        )

    async def _got(self, name: str) -> tuple[Session, str]:
        """The session of this name in the fleet, made or begun anew where it has to be, and what was lost by that."""
        if (at := self._open.get(name)) is not None and await asyncio.to_thread(self._has_host, at):
            return at, ""
        self._open[name], lost = await self._found(name)
        return self._open[name], lost

    def _has_host(self, session: Session) -> bool:
        return lock_holder(self._places.host_lock(session.id)) is not None

    async def _found(self, name: str) -> tuple[Session, str]:
        known = next((each for each in (await self._fleet()).sessions if each.name == name), None)
        if known is not None and known.state is not SessionState.ENDED:
            return known, ""
        if known is None and (spare := await self._ahead.ready()) is not None:
            try:
                await verb.rename(self._places, spare, name)
            except NameTakenError:
                self._beside(self._removed(spare))
            else:
                self._called[name] = spare.name
                return await self._looked(spare), ""
        wanted = msgspec.structs.replace(self._like, name=name)
        try:
            made, lost = await operations.get_or_create(self._places, self._config, wanted)
        except NameTakenError as error:  # by another server of this client, just now
            made, lost = SessionId(error.holder), ""
        found = (await self._fleet()).get(made)
        if found is None:
            raise SessionNotFoundError(name)
        return found, lost

    async def _made_for_once(self) -> Session:
        wanted = msgspec.structs.replace(self._like, name=once(self._owner))
        made = await operations.create(self._places, self._config, wanted)
        found = (await self._fleet()).get(made)
        if found is None:
            raise SessionNotFoundError(wanted.name)
        return found

    async def _stopped(self, work: asyncio.Task[dict[str, Any]], running: RunTask) -> None:
        """Have *running* end, and wait for that; what its session holds is kept where its interpreter reacts."""
        running.is_unwanted = True
        if not running.session:
            work.cancel()
            await asyncio.wait({work})
            return
        for _ in range(INTERRUPTS):
            if running.where is not None:
                with contextlib.suppress(KasmonError):
                    await operations.interrupt(self._places, running.where, run=running.id)
            if (await asyncio.wait({work}, timeout=AGAIN_S))[0]:
                return

    async def _swept(self) -> None:
        left = await asyncio.to_thread(abandoned, self._places, await self._fleet())
        await _all(self._removed(session) for session in left)

    async def _removed(self, session: Session) -> None:
        with contextlib.suppress(KasmonError):
            await operations.remove(self._places, await self._looked(session))

    async def _looked(self, session: Session) -> Session:
        found = (await self._fleet()).get(session.id)
        if found is None:
            raise SessionNotFoundError(session.name)
        return found

    async def _fleet(self) -> Fleet:
        return await asyncio.to_thread(look_once, self._places)

    def _beside(self, work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it hears of it; nobody has to


def _is_cancelled() -> bool:
    """Whether whoever called is, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*works, return_exceptions=True)
