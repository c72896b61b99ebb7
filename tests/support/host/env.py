"""A kasmon of its own for one test: places, sessions, hosts in this process or in their own."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kasmon.backends.base import Backend
from kasmon.config import Config, Limits
from kasmon.errors import HostUnreachableError
from kasmon.host.journal.log_file import open_log
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import CommandResult, ExecuteCommand
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.host.structured.host import StructuredHost
from kasmon.model.commands import AgentCommand, Launch, Mode, Prompt, Requeue, SandboxCommand
from kasmon.model.events import Event
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session, created
from kasmon.paths import Paths, user_paths, write_private
from kasmon.process_identity import find_processes_with
from kasmon.store.event_log import START, Cursor, EventLog
from tests.support.cli.fork_server import Process, start_host
from tests.support.supervisor.env import end
from tests.support.wait import LIMIT_S, auntil, until

EventT = TypeVar("EventT")
ME = SessionId("abcdefgh")


@dataclass
class ReadLog:
    """A log that was read up to *cursor*, *last* before it; the session that *wanted* and some of the events make."""

    events: list[Event] = field(default_factory=list)
    cursor: Cursor = START
    last: bytes = b""
    wanted: bytes = b""
    now: Session | None = None
    applied: int = 0


def last_bytes(path: Path, cursor: Cursor) -> bytes:
    """The bytes of the file before *cursor*, which tell it from one that was written anew."""
    with path.open("rb") as file:
        file.seek(max(0, cursor - 80))
        return file.read(min(80, cursor))


class Env:
    """One kasmon under a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("KASM", "XDG_"))}
        for name, folder in (("STATE_HOME", "s"), ("RUNTIME_DIR", "r"), ("CONFIG_HOME", "c")):
            (root / folder).mkdir(mode=0o700)
            self.environment[f"XDG_{name}"] = str(root / folder)
        self.paths: Paths = user_paths(self.environment)
        self.paths.make()
        self._logs: dict[SessionId, ReadLog] = {}
        self.processes: list[Process] = []
        self._links: list[HostLink] = []

    def wants(self, session: SessionId = ME, **more: Any) -> Launch:
        """Write how *session* is to be started."""
        fields: dict[str, Any] = {"name": "docs", "agent": "scripted", "mode": Mode.SDK, "backend": "scripted"}
        launch = Launch(session=session, **({"speed": 0.0} | fields | more))
        self.paths.folder(session).mkdir(mode=0o700, exist_ok=True)
        write_private(self.paths.launch(session), msgspec.json.encode(launch))
        return launch

    # What the log says

    def events(self, session: SessionId = ME) -> list[Event]:
        return list(self._read(session).events)

    def only(self, kind: type[EventT], session: SessionId = ME) -> list[EventT]:
        return [event for event in self.events(session) if isinstance(event, kind)]

    def session(self, session: SessionId = ME) -> Session:
        read, wanted = self._read(session), self.paths.launch(session).read_bytes()
        if read.now is None or read.wanted != wanted:
            read.wanted, read.now, read.applied = wanted, created(self.wanted(session), 0.0), 0
        for event in read.events[read.applied :]:
            read.now = apply(read.now, event)
        read.applied = len(read.events)
        return read.now

    def _read(self, session: SessionId) -> ReadLog:
        """What the log says now; only what is new is read, for tests ask while they wait."""
        log = EventLog(self.paths.log(session))
        read = self._logs.setdefault(session, ReadLog())
        if not log.path.exists() or last_bytes(log.path, read.cursor) != read.last:
            read = self._logs[session] = ReadLog()
        if log.path.exists():
            for event, cursor in log.read(read.cursor):
                read.events.append(event)
                read.cursor = cursor
            read.last = last_bytes(log.path, read.cursor)
        return read

    def wanted(self, session: SessionId = ME) -> Launch:
        return msgspec.json.decode(self.paths.launch(session).read_bytes(), type=Launch)

    def receipts(self, session: SessionId = ME) -> list[tuple[str, str]]:
        return [(receipt.text, str(receipt.state)) for receipt in self.session(session).receipts]

    # A host in this process

    @contextlib.asynccontextmanager
    async def hosting(
        self, backend: Backend, launch: Launch | None = None, limits: Limits | None = None
    ) -> AsyncIterator[StructuredHost]:
        """A host with an agent of the test's own; ended at the end, if it is not by then."""
        launch = launch or self.wants(backend="fake")
        lock = HostLock(self.paths.host_lock(launch.session))
        assert lock.acquire()
        host = StructuredHost(self.paths, launch, backend, Config(limits=limits or Limits()))
        running = asyncio.create_task(host.run())
        try:
            await auntil(lambda: running.done() or self.paths.socket(launch.session).exists())
            yield host
        finally:
            host.end("the test is over")
            host.end("the test is over")
            await asyncio.wait([running], timeout=20)
            lock.let_go()
        await running

    async def linked(self, session: SessionId = ME) -> HostLink:
        """A link to the host that is there, or about to be; hung up by `close` at the latest."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                self._links.append(await HostLink.open(self.paths.socket(session)))
            except HostUnreachableError:
                if time.monotonic() > deadline:
                    raise
            else:
                return self._links[-1]
            await asyncio.sleep(0.01)

    # A host in a process of its own

    def start(self, session: SessionId = ME) -> Process:
        """Start the host of *session* and wait until it listens or has ended."""
        with open_log(self.paths.host_log(session)) as log:
            process = start_host([session], self.environment, log)
        self.processes.append(process)
        until(lambda: process.poll() is not None or self.paths.socket(session).is_socket(), what="the host's start")
        return process

    def pid(self, session: SessionId = ME) -> int | None:
        """The pid of the session's host; None if it has none."""
        return lock_holder(self.paths.host_lock(session))

    def close(self) -> None:
        """Hang up its links and end every process of this kasmon."""
        for link in self._links:
            link.close()
        for process in self.processes:
            process.kill()
            process.wait(60)
        state = str(self.paths.state.parent)
        while left := [pid for pid, of in find_processes_with("XDG_STATE_HOME") if of == state and pid != os.getpid()]:
            for pid in left:  # one of them may have forked a host meanwhile
                end(pid)


async def do(
    link: HostLink, command: AgentCommand | Requeue | SandboxCommand, session: SessionId = ME
) -> CommandResult:
    answer = await link.ask(ExecuteCommand(n=0, session=session, command=command), limit_s=40)
    assert isinstance(answer, CommandResult)
    return answer


async def prompt(link: HostLink, text: str, **more: Any) -> str:
    """Prompt, and say how far it came at once."""
    receipt = (await do(link, Prompt(text=text, **more))).receipt
    assert receipt is not None
    return str(receipt.state)
