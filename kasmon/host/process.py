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

from kasmon import __version__
from kasmon.backends import load
from kasmon.backends.base import Abilities, Agent, Backend
from kasmon.clean import HIDDEN
from kasmon.config import Limits, in_force
from kasmon.errors import (
    InteractiveOnlyError,
    KasmonError,
    LaunchError,
    LogMissingError,
    RefusedError,
    SessionEndedError,
    SessionNotFoundError,
    UnableError,
    UsageError,
)
from kasmon.host import handed, own_log
from kasmon.host.alive import HostLock
from kasmon.host.answers import Answers
from kasmon.host.book import Book, wanted
from kasmon.host.connection import Connection
from kasmon.host.pen import LAST_WORDS_S, WRITTEN_S, Pen
from kasmon.host.removed import removed
from kasmon.host.run import carried
from kasmon.host.said import said
from kasmon.host.secret import secrets_of
from kasmon.host.server import HostServer
from kasmon.host.structured import Structured
from kasmon.host.vigil import Vigil, limits_of
from kasmon.host.wire import (
    Do,
    Done,
    Forget,
    Frame,
    FromClient,
    Hello,
    Look,
    Quit,
    Read,
    Rename,
    Say,
    Start,
    Unwatch,
    Watch,
    Welcome,
)
from kasmon.model.command import (
    Allow,
    Answer,
    Checkpoint,
    Configure,
    Fork,
    Interrupt,
    Launch,
    Mode,
    Prompt,
    Requeue,
    Restore,
    Run,
    Sleep,
    Stop,
    Wake,
)
from kasmon.model.event import SessionEnded
from kasmon.model.permission import SessionId
from kasmon.paths import Places, places
from kasmon.store.log import Cursor, EventLog

ANSWER_MARGIN_S: Final = 5.0
"""How much longer than its agent this host may take to answer."""
STOPPED = "stopped"
"""Why a session ended that a person stopped; `Session.stopped` reads it."""
REMOVED = "its folder was removed"
ARGUMENTS = re.compile(r"(?P<session>[a-z0-9][a-z0-9-]{0,63})(?: --since (?P<since>[0-9]{1,18}))?")

log = logging.getLogger(__name__)


class Host:
    """The host of the session that *launch* describes. The caller holds the host's lock."""

    def __init__(self, places: Places, launch: Launch, backend: Backend, limits: Limits | None = None) -> None:
        self._places = places
        self._launch = launch
        self._backend = backend
        self._limits = limits or Limits()
        self._id = launch.session
        self._told = ""
        self._pen: Pen
        self._agent: Structured
        self._answers: Answers
        self._running = False

    async def run(self) -> bool:
        """Live as long as the agent does; false if there never was one."""
        book = await asyncio.to_thread(Book, self._places, self._id)
        self._pen = Pen(book)
        self._agent = Structured(self._pen, self._this_time(book), self._backend, self._limits.call_s)
        self._answers = Answers(self._pen, self._agent)
        self._running = True
        server = HostServer(self._places.socket(self._id), self._receive, self._agent.live.unwatch)
        vigil = Vigil(self._pen, limits_of(self._limits), lambda: self._agent.live.written_at)
        watching = asyncio.create_task(vigil.keep())
        leaving = asyncio.create_task(self._leave_once_removed())
        try:
            self._queue_first_prompt()
            if self._told:
                self._agent.end(self._told, 0)
            if await self._listens(server):
                await self._agent.live_through()
        finally:
            watching.cancel()
            leaving.cancel()
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

    async def _leave_once_removed(self) -> None:
        """End when somebody has removed the session's folder, with all that it holds."""
        await removed(self._places.folder(self._id))
        log.warning("the folder of session %s was removed: its agent is ended", self._id)
        await self._pen.lose_its_place()
        self.end(REMOVED)

    def _this_time(self, book: Book) -> Launch:
        """How the agent is opened now: the next generation, going on with the conversation before."""
        generation = max(self._launch.generation, book.session.generation + 1)
        resume = self._launch.resume or (book.session.resume_id if generation > 1 else None)
        prompt = self._launch.prompt if generation == 1 else ""
        return msgspec.structs.replace(
            self._launch,
            generation=generation,
            resume=resume,
            prompt=prompt,
            remembers=book.last_prompt if resume and HIDDEN not in book.last_prompt else "",
            handshake_s=self._limits.handshake_s,
        )

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
            await self._agent.heard(SessionEnded(at=time.time(), why=why, never_began=True))
            return False
        return True

    def _receive(self, connection: Connection, frame: FromClient) -> Awaitable[Frame | None] | Frame | None:
        match frame:
            case Hello():
                answer_s = self._limits.call_s + ANSWER_MARGIN_S
                return Welcome(n=frame.n, pid=os.getpid(), kasmon=__version__, answer_s=answer_s)
            case Do():
                if frame.session != self._id:
                    raise SessionNotFoundError(frame.session)
                return self._do(connection, frame)
            case Say():
                return self._say(frame)
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

    async def _say(self, frame: Say) -> Done:
        if frame.session != self._id:
            raise SessionNotFoundError(frame.session)
        self._must_run()
        self._pen.note(said(frame, time.time()))
        await self._pen.written(WRITTEN_S)
        return Done(n=frame.n)

    async def _do(self, connection: Connection, frame: Do) -> Done:
        receipt = None
        if (inmate := self._agent.inmate) is not None and isinstance(frame.wish, Sleep | Wake):
            self._must_run()
            await inmate.keeper.move(frame.wish)
            return Done(n=frame.n)
        if inmate is not None:
            await inmate.keeper.used(frame.wish)
        match frame.wish:
            case Prompt() as prompt:
                self._must_run()
                receipt = await self._agent.prompts.take(prompt)
            case Answer() as answer:
                if not self._backend.abilities.asks:
                    raise UnableError(f"the agent of session {self._id!r} takes no answers.")
                await self._answers.carry(answer, connection.peer_pid, is_agents=connection.as_agent)
            case Interrupt() as interrupt:
                self._must_run()
                if not self._backend.abilities.interrupts:
                    raise UnableError(f"the agent of session {self._id!r} cannot be interrupted.")
                await self._agent.tell(interrupt)
            case Stop() as stop:
                self._must_run()
                self._agent.end(STOPPED, stop.grace_s)
            case Requeue() as requeue:
                receipt = self._agent.prompts.requeue(requeue)
            case Configure() as configure:
                self._must_run()
                self._check_settings(configure)
                await self._agent.tell(configure)
            case Run() | Sleep() | Wake() | Checkpoint() | Restore() | Fork() | Allow() as wish:
                self._must_run()
                if connection.as_agent and isinstance(wish, Allow):
                    raise RefusedError("an agent does not open its own way out.")
                done = await carried(await self._agent.sandboxed(), connection, frame.n, wish)
                if not isinstance(wish, Run):
                    await self._pen.written(WRITTEN_S)
                return done
        await self._pen.written(WRITTEN_S)
        return Done(n=frame.n, receipt=receipt)

    def _check_settings(self, wanted: Configure) -> None:
        can = self._backend.abilities
        for value, able, what in (
            (wanted.model, can.sets_model, "model"),
            (wanted.permission_mode, can.sets_permission_mode, "permission mode"),
        ):
            if value is not None and not able:
                raise UnableError(f"the {what} of session {self._id!r} cannot be changed while it runs.")

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
    arguments = ARGUMENTS.fullmatch(" ".join(argv))
    if arguments is None:
        sys.stderr.write("a host needs the id of one session.\n")
        return UsageError.exit_code
    os.umask(0o077)
    own_log.keep()
    handed.take()
    session, here = SessionId(arguments["session"]), places()
    if not here.folder(session).is_dir():
        sys.stderr.write(f"{SessionNotFoundError(session)}\n")
        return SessionNotFoundError.exit_code
    here.make()
    own_log.learn(secrets_of(here, session))
    lock = HostLock(here.host_lock(session))
    if not lock.take():
        return 0
    try:
        if arguments["since"] and _has_grown(here, session, Cursor(int(arguments["since"]))):
            return 0
        launch, backend = _prepared(here, session)
        return asyncio.run(_hosted(Host(here, launch, backend, in_force(here, log.warning).limits)))
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
        log.exception("the backend %r cannot be imported", launch.backend)
        return launch, Absent(LaunchError(f"the backend {launch.backend!r} cannot be imported: {error!r}."))


async def _hosted(host: Host) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, host.end, f"its host got {number.name}")
    return 0 if await host.run() else LaunchError.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
