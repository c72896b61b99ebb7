"""The link while an agent has a session started: what happens beside the start. Its agent is a process of its own."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pytest

from kasmon.asyncio_tasks import end_tasks
from kasmon.bus import link
from kasmon.bus.base import (
    PROTOCOL,
    BusWelcome,
    Heartbeat,
    ListEnd,
    LogPart,
    LogPosition,
    SessionEntry,
    SessionRemoval,
    Update,
)
from kasmon.bus.link import MachineLink
from kasmon.model.commands import ABILITIES, FLEET_TOOLS
from kasmon.model.events import LogOpened, PeerMessageWritten, SessionCreated
from kasmon.model.permission import SessionId
from kasmon.paths import write_private
from kasmon.store.machines import ChildRegister, HostPresence, Machine, write_machine
from kasmon.supervisor.machines import delegation
from kasmon.supervisor.machines.link_client import CommandOutput
from tests.support.supervisor.env import NOW, Env, launch, started
from tests.support.wait import until

MACHINE, LEAD, CHILD = "gpu-1", SessionId("leadaaaa"), SessionId("childaaa")
LIMIT_S = 60.0
ENTRY: Final = SessionEntry(
    created=SessionCreated(at=NOW, launch=launch(CHILD)), name="child", viewed_at=0.0, presence=HostPresence()
)
START = f"""
from kasmon.errors import KasmonError
from kasmon.paths import user_paths
from kasmon.supervisor.machines.link_client import AgentRequest, ask_for_agent

input()
try:
    print(ask_for_agent(user_paths(), {MACHINE!r}, AgentRequest(n=1, act="start", name="child", text="x")).exit_code)
except KasmonError as error:
    print(error.message)
"""
"""The program of the agent: it has a session started once it gets a line, and prints what came of it."""


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> None:
    """These tests make the link in their loop; it reads files then, before it serves anyone."""


class StartingBus:
    """A machine that starts one session, and says *meanwhile* before the start is over."""

    def __init__(self, *meanwhile: Update) -> None:
        self.meanwhile = meanwhile
        self.ran: asyncio.Queue[Sequence[str]] = asyncio.Queue()
        """The commands."""
        self.said: asyncio.Queue[Update] = asyncio.Queue()

    async def updates(self, positions: Mapping[SessionId, LogPosition]) -> AsyncGenerator[Update, None]:
        yield BusWelcome(kasmon="1", protocol=PROTOCOL, machine=MACHINE, abilities=ABILITIES)
        yield ListEnd()
        while True:
            try:
                async with asyncio.timeout(1.0):
                    update = await self.said.get()
            except TimeoutError:
                yield Heartbeat()
            else:
                yield update
                self.said.task_done()

    async def run(self, arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
        self.ran.put_nowait(arguments)
        for update in self.meanwhile if arguments[0] == "new" else ():
            self.said.put_nowait(update)
        if not self.said.empty():
            await self.said.join()
            await asyncio.to_thread(lambda: None)  # the link looks for messages
        return CommandOutput(exit_code=0, stdout=b'{"session": {"id": "%s"}}' % CHILD.encode(), stderr=b"")

    async def aclose(self) -> None:
        pass

    async def connect(self, session: SessionId) -> socket.socket:
        raise NotImplementedError

    async def join(self, session: SessionId, client: socket.socket) -> None:
        raise NotImplementedError

    async def read_file(self, session: SessionId, name: str, offset: int = 0) -> bytes:
        raise NotImplementedError


@pytest.fixture
def agent(env: Env) -> Iterator["subprocess.Popen[str]"]:
    """The agent of LEAD, which may start sessions on MACHINE."""
    write_machine(env.paths, Machine(name=MACHINE))
    env.paths.config.mkdir(parents=True, exist_ok=True)
    env.paths.config_file.write_text(f'[fleet]\nmachines = ["{MACHINE}"]\n')
    variables = {**os.environ, **env.paths.environment_variables(), "KASMON_SESSION": LEAD}
    argv = [sys.executable, "-P", "-c", START]
    agent = subprocess.Popen(argv, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    described = launch(LEAD, name="lead", tools=(FLEET_TOOLS,))
    env.says(SessionCreated(at=NOW, launch=described))
    env.paths.folder(LEAD).mkdir(mode=0o700)
    write_private(env.paths.launch(LEAD), msgspec.json.encode(described))
    env.tells(LEAD, LogOpened(at=NOW, session=LEAD), started(pid=agent.pid))
    yield agent
    agent.kill()
    agent.communicate()


@pytest.fixture
async def bus(env: Env, agent: object) -> AsyncIterator[StartingBus]:
    """The machine at the other end of a link that runs in this process."""
    bus = StartingBus(ENTRY, ListEnd())

    async def open_bus(machine: Machine) -> StartingBus:
        return bus

    running = asyncio.create_task(MachineLink(env.paths, MACHINE, open_bus).run())
    await asyncio.to_thread(until, env.paths.machine_socket(MACHINE).exists)
    await asyncio.to_thread(until, (env.paths.machine(MACHINE) / "presence.json").exists)
    yield bus
    await end_tasks([running])


async def start(agent: "subprocess.Popen[str]") -> str:
    """Have *agent* start a session there, and return what it was answered."""
    return (await asyncio.to_thread(agent.communicate, "\n"))[0].strip()


@pytest.fixture
def written(env: Env) -> LogPart:
    """The log of CHILD, with a message to the agent that started it."""
    message = PeerMessageWritten(at=NOW, to=LEAD, name="lead", text="x")
    env.paths.folder(CHILD).mkdir(mode=0o700)
    env.tells(CHILD, LogOpened(at=NOW, session=CHILD), message)
    content = env.paths.log(CHILD).read_bytes()
    env.paths.log(CHILD).unlink()
    env.paths.folder(CHILD).rmdir()
    return LogPart(CHILD, "a-log", 0, content)


async def test_a_message_that_is_copied_before_its_start_is_over_is_handled(
    env: Env, bus: StartingBus, agent: "subprocess.Popen[str]", written: LogPart
) -> None:
    bus.meanwhile = (ENTRY, written, ListEnd())

    assert "0" == await start(agent)

    assert "new" == (await bus.ran.get())[0]
    async with asyncio.timeout(LIMIT_S):
        refusal = await bus.ran.get()  # no host runs that could take it
    assert ("send", CHILD) == tuple(refusal[:2])


async def test_a_started_session_is_not_unknown_if_its_copy_takes_longer(
    bus: StartingBus, agent: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.meanwhile = ()
    monkeypatch.setattr(link, "AGENT_START_S", 0.0)
    monkeypatch.setattr(delegation, "COPIED_S", 0.0)

    assert "0" == await start(agent)


async def test_a_session_removed_on_its_machine_is_removed_here(
    env: Env, bus: StartingBus, agent: "subprocess.Popen[str]"
) -> None:
    assert "0" == await start(agent)
    assert LEAD == await asyncio.to_thread(lambda: ChildRegister(env.paths, MACHINE).starter_of(CHILD))

    bus.said.put_nowait(SessionRemoval(CHILD))

    await asyncio.to_thread(until, lambda: not ChildRegister(env.paths, MACHINE))
