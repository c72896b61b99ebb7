"""The host of one structured session: a process that talks to its agent, writes down what it says, and hears wishes."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec

from kasmon.backends import load
from kasmon.backends.base import Abilities, Agent, Backend
from kasmon.errors import (
    InteractiveOnlyError,
    KasmonError,
    LaunchError,
    LogMissingError,
    RefusedError,
    RequestClosedError,
    SessionEndedError,
    SessionNotFoundError,
    StaleRequestError,
    UnableError,
    UsageError,
)
from kasmon.host.alive import HostLock
from kasmon.host.book import Book, wanted
from kasmon.host.kin import is_agents_own
from kasmon.host.pen import Pen
from kasmon.host.server import Connection, HostServer
from kasmon.host.structured import Structured
from kasmon.host.wire import (
    Do,
    Done,
    Forget,
    Frame,
    FromClient,
    Look,
    Quit,
    Read,
    Rename,
    Start,
    Unwatch,
    Watch,
)
from kasmon.model.command import Answer, Interrupt, Launch, Mode, Prompt, Stop
from kasmon.model.event import SessionEnded
from kasmon.model.permission import SessionId
from kasmon.paths import Places, places
from kasmon.store.log import Cursor, EventLog

WRITTEN_S: Final = 2.0
"""How long an answer to a client waits for the log. A full disk does not take live control away: it goes on then."""
LAST_WORDS_S: Final = 30.0
"""How long a host that was told to end tries to write down its last facts."""
STOPPED = "stopped"
"""Why a session ended that a person stopped; `Session.stopped` reads it."""
ARGUMENTS = re.compile(r"(?P<session>[a-z0-9][a-z0-9-]{0,63})(?: --since (?P<since>[0-9]{1,18}))?")


class Host:
    """The host of the session that *launch* describes. The caller holds the host's lock."""

    def __init__(self, places: Places, launch: Launch, backend: Backend) -> None:
        self._places = places
        self._launch = launch
        self._backend = backend
        self._id = launch.session
        self._told = ""
        self._pen: Pen
        self._agent: Structured
        self._running = False

    async def run(self) -> bool:
        """Live as long as the agent does; false if there never was one."""
        book = await asyncio.to_thread(Book, self._places, self._id)
        self._pen = Pen(book)
        self._agent = Structured(self._pen, self._this_time(book), self._backend)
        self._running = True
        server = HostServer(self._places.socket(self._id), self._receive, self._agent.live.unwatch)
        try:
            self._queue_first_prompt()
            if self._told:
                self._agent.end(self._told, 0)
            if await self._listens(server):
                await self._agent.live_through()
        finally:
            self._agent.live.end(self._pen.session.end_why)
            await self._pen.written(WRITTEN_S)
            await server.aclose()
            await self._agent.prompts.aclose()
            await self._pen.aclose(LAST_WORDS_S if self._told else None)
        return self._agent.opened

    def end(self, why: str) -> None:
        """End the agent cleanly, then this host; a second time, at once."""
        again, self._told = bool(self._told), self._told or why
        if self._running:
            self._agent.end(self._told, 0.0 if again else Stop().grace_s)

    def _this_time(self, book: Book) -> Launch:
        """How the agent is opened now: the next generation, going on with the conversation before."""
        generation = max(self._launch.generation, book.session.generation + 1)
        resume = self._launch.resume or (book.session.resume_id if generation > 1 else None)
        prompt = self._launch.prompt if generation == 1 else ""
        return msgspec.structs.replace(self._launch, generation=generation, resume=resume, prompt=prompt)

    def _queue_first_prompt(self) -> None:
        """The launch's own prompt is the first of the first generation, and is queued once."""
        session, launch = self._pen.session, self._launch
        is_first = launch.generation <= 1 and not session.generation and not session.receipts_counted
        if is_first and launch.prompt.strip():
            prompt = Prompt(text=launch.prompt, when="idle", by="user" if launch.wave is None else "wave")
            self._agent.prompts.queue(prompt)

    async def _listens(self, server: HostServer) -> bool:
        try:
            await server.start()
        except OSError as error:
            why = f"its host cannot listen at {str(self._places.socket(self._id))!r}: {error.strerror}"
            await self._agent.heard(SessionEnded(at=time.time(), why=why))
            return False
        return True

    def _receive(self, connection: Connection, frame: FromClient) -> Awaitable[Frame | None] | Frame | None:
        match frame:
            case Do():
                if frame.session != self._id:
                    raise SessionNotFoundError(frame.session)
                return self._do(connection, frame)
            case Watch():
                self._agent.live.watch(connection, frame.rate_hz)
            case Unwatch():
                self._agent.live.unwatch(connection)
            case Quit():
                if connection.as_agent:
                    raise RefusedError("an agent does not end its host.")
                self._agent.end(STOPPED, Stop().grace_s)
                return Done(n=frame.n)
            case Start() | Forget() | Rename():
                return Done(n=frame.n)
            case Look() | Read():
                raise InteractiveOnlyError(self._id)
            case _:
                pass
        return None

    async def _do(self, connection: Connection, frame: Do) -> Done:
        receipt = None
        match frame.wish:
            case Prompt() as prompt:
                self._must_run()
                receipt = await self._agent.prompts.take(prompt)
            case Answer() as answer:
                await self._answer(connection, answer)
            case Interrupt() as interrupt:
                self._must_run()
                if not self._backend.abilities.interrupts:
                    raise UnableError(f"the agent of session {self._id!r} cannot be interrupted.")
                await self._agent.tell(interrupt)
            case Stop() as stop:
                self._must_run()
                self._agent.end(STOPPED, stop.grace_s)
        await self._pen.written(WRITTEN_S)
        return Done(n=frame.n, receipt=receipt)

    async def _answer(self, connection: Connection, answer: Answer) -> None:
        """Accept *answer*, write it down, and only then tell the agent."""
        pid = self._pen.session.pid
        agents = {pid} if pid and pid != os.getpid() else set()
        if connection.as_agent or await asyncio.to_thread(is_agents_own, connection.peer_pid, agents):
            raise RefusedError("an agent cannot answer requests.", hint="Answer from a terminal of your own.")
        if not self._backend.abilities.asks:
            raise UnableError(f"the agent of session {self._id!r} takes no answers.")
        taken = self._agent.asks.take(answer)
        if taken is None:
            return
        await self._pen.written(WRITTEN_S)
        try:
            await self._agent.tell(taken.answer)
        except (RequestClosedError, StaleRequestError) as error:
            self._agent.notice(f"The answer to {answer.request} came too late: the agent no longer waits for it.")
            raise RequestClosedError(answer.request, "the agent no longer waits for it") from error
        except RefusedError as error:
            self._agent.notice(f"The agent did not take the answer to {answer.request}: {error.message}")
            if not self._agent.has_ended:
                self._agent.asks.reopen(taken)
            raise
        except KasmonError as error:
            self._agent.notice(f"It is not known whether the agent has the answer to {answer.request}: {error.message}")
            raise

    def _must_run(self) -> None:
        if self._agent.has_ended:
            raise SessionEndedError(self._id)


class Absent:
    """In the place of a backend that is not there: opening an agent says why."""

    name = ""
    abilities = Abilities()

    def __init__(self, error: KasmonError) -> None:
        self._error = error

    async def open(self, launch: Launch, /) -> Agent:
        raise self._error


def main(argv: Sequence[str]) -> int:
    """Host the session whose id is the first argument, until its agent ends.

    0 also if it has a host already, or had one meanwhile: `--since CURSOR` says how much of its log was known to
    whoever started this one.
    """
    os.umask(0o077)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    arguments = ARGUMENTS.fullmatch(" ".join(argv))
    if arguments is None:
        sys.stderr.write("a host needs the id of one session.\n")
        return UsageError.exit_code
    session, here = SessionId(arguments["session"]), places()
    if not here.folder(session).is_dir():
        sys.stderr.write(f"{SessionNotFoundError(session)}\n")
        return SessionNotFoundError.exit_code
    here.make()
    lock = HostLock(here.host_lock(session))
    if not lock.take():
        return 0
    try:
        if arguments["since"] and _has_grown(here, session, Cursor(int(arguments["since"]))):
            return 0
        launch, backend = _prepared(here, session)
        return asyncio.run(_hosted(Host(here, launch, backend)))
    finally:
        lock.let_go()


def _has_grown(places: Places, session: SessionId, since: Cursor) -> bool:
    """Whether another host had this session since its log was read that far."""
    with contextlib.suppress(LogMissingError):
        return any(True for _ in EventLog(places.log(session)).read(since))
    return False


def _prepared(here: Places, session: SessionId) -> tuple[Launch, Backend]:
    """What to launch and with which backend; what is wrong with either is told by opening it."""
    launch = Launch(session=session, name="", agent="", mode=Mode.SDK, backend="")
    try:
        launch = wanted(here, session)
        if launch.mode is Mode.TMUX:
            raise UsageError(f"session {session!r} is a terminal's; the shared tmux host has it.")
        return launch, load(launch.backend)
    except KasmonError as error:
        return launch, Absent(error)
    except Exception as error:  # a backend that cannot be imported is the session's end, and says so
        logging.getLogger(__name__).exception("the backend %r cannot be imported", launch.backend)
        return launch, Absent(LaunchError(f"the backend {launch.backend!r} cannot be imported: {error!r}."))


async def _hosted(host: Host) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, host.end, f"its host got {number.name}")
    return 0 if await host.run() else LaunchError.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
