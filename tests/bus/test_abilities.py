"""What a client may do that the owner of a machine allows less than everything."""

import asyncio
import contextlib
import shlex
import socket
import struct
from collections.abc import AsyncIterator, Collection
from typing import Final, get_args

import msgspec
import pytest

from kasmon.bus.abilities import DOES, OF_COMMAND, ability_of_arguments
from kasmon.bus.local import LocalBus
from kasmon.bus.ssh import open_bus
from kasmon.bus.stream import StreamBus, StreamServer
from kasmon.errors import RefusedError
from kasmon.host.rpc import codec, control
from kasmon.host.rpc.control import ControlKind
from kasmon.host.rpc.frames import (
    CommandResult,
    DescribePane,
    ExecuteCommand,
    FailureReply,
    Focus,
    Frame,
    FromClient,
    Hello,
    Paste,
    ReadTerminal,
    SendKeys,
    StartSession,
    SubscriptionEnd,
    Watch,
    Welcome,
)
from kasmon.model.commands import (
    ABILITIES,
    Ability,
    AgentCommand,
    Allow,
    Answer,
    Configure,
    Fork,
    Interrupt,
    Pause,
    Prompt,
    Requeue,
    SandboxCommand,
    Stop,
)
from kasmon.model.permission import Decision, RequestId, SessionId
from kasmon.store.machines import Machine
from tests.support.bus.buses import Reader, command_of
from tests.support.supervisor.env import Env, started

ME: Final = SessionId("abcdefgh")
ANSWER: Final = Answer(request=RequestId("r1"), digest="d", decision=Decision.ALLOW)


def execute(command: AgentCommand | Requeue | SandboxCommand) -> ExecuteCommand:
    return ExecuteCommand(n=7, session=ME, command=command)


NEEDS: Final[list[tuple[FromClient, Ability]]] = [
    (Watch(session=ME), "see"),
    (ReadTerminal(n=7, session=ME), "see"),
    (DescribePane(n=7, session=ME), "see"),
    (execute(Prompt(text="go on")), "prompt"),
    (execute(Interrupt()), "prompt"),
    (execute(ANSWER), "answer"),
    (execute(Configure(permission_mode="bypassPermissions")), "answer"),
    (SendKeys(session=ME, data=b"1\r"), "type"),
    (Paste(session=ME, text="1"), "type"),
    (Focus(session=ME, columns=80, rows=24), "type"),
    (DescribePane(n=7, session=ME, attaching=True), "type"),
    (StartSession(n=7, session=ME), "start"),
    (execute(Stop()), "start"),
    (execute(Fork(folder="/home")), "start"),
    (execute(Allow(hosts=("example.org",))), "start"),
    (execute(Pause()), "sandbox"),
]


class RecordingHost:
    """Listens where the host of a session would, records the frames that arrive, and answers each numbered one."""

    def __init__(self) -> None:
        self.frames: list[FromClient] = []
        self.controls: list[int | None] = []
        self._unpacker = codec.Unpacker()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            if data.startswith(control.MAGIC):
                self.controls.append(control.parse_request(data))
                writer.write(control.build_frame(ControlKind.DONE, b"{}"))
                writer.close()
                return
            for body in self._unpacker.feed(data):
                frame = codec.decode_client_frame(body)
                self.frames.append(frame)
                if isinstance(frame, Hello):
                    writer.write(codec.pack(Welcome(n=frame.n, pid=1)))
                elif isinstance(frame, ExecuteCommand | ReadTerminal | DescribePane | StartSession):
                    writer.write(codec.pack(CommandResult(n=frame.n)))
        writer.close()


@pytest.fixture
async def host(env: Env) -> AsyncIterator[RecordingHost]:
    """The host of the session ME of `env`."""
    await asyncio.to_thread(env.has, ME, started())
    recording = RecordingHost()
    server = await asyncio.start_unix_server(recording.serve, env.paths.socket(ME))
    async with server:
        yield recording


@contextlib.asynccontextmanager
async def served(env: Env, abilities: Collection[Ability]) -> AsyncIterator[StreamBus]:
    ours, theirs = socket.socketpair()
    server = StreamServer(LocalBus(env.paths), *await asyncio.open_connection(sock=theirs), abilities)
    serving = asyncio.create_task(server.serve())

    async def end() -> None:
        await serving

    bus = StreamBus("there", *await asyncio.open_connection(sock=ours), end)
    try:
        yield bus
    finally:
        await bus.aclose()


class Client:
    """A client at the end of a connection through the bus."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._unpacker = connected, codec.Unpacker()
        self._loop = asyncio.get_running_loop()
        self.received: list[object] = []

    async def send(self, data: bytes, *, piece: int = 0) -> None:
        """Send *data*, in pieces of so many bytes."""
        for at in range(0, len(data), piece or len(data)):
            await self._loop.sock_sendall(self._socket, data[at : at + (piece or len(data))])

    async def receive(self, count: int) -> list[object]:
        """Return the first *count* frames that came; fewer if the connection ended."""
        async with asyncio.timeout(20):
            while len(self.received) < count and (data := await self._loop.sock_recv(self._socket, 1 << 16)):
                self.received += [codec.from_host.decode(body) for body in self._unpacker.feed(data)]
        return self.received

    async def rest(self) -> bytes:
        """Return what comes until the connection ends."""
        content = b""
        async with asyncio.timeout(20):
            while data := await self._loop.sock_recv(self._socket, 1 << 16):
                content += data
        return content


HELLO: Final = codec.pack(Hello(n=1))


async def exchange(env: Env, abilities: Collection[Ability], frame: Frame, *, piece: int = 0) -> object:
    """Send *frame*, then one that is answered in any case; return the answer to the first, None if there is none."""
    async with served(env, abilities) as bus:
        with await bus.connect(ME) as connected:
            client = Client(connected)
            await client.send(HELLO + codec.pack(frame), piece=piece)
            await client.send(codec.pack(Hello(n=2)))
            received = await client.receive(3)
    others = [each for each in received if not isinstance(each, Welcome)]
    return others[0] if others else None


@pytest.mark.parametrize(("frame", "ability"), NEEDS, ids=lambda each: each if isinstance(each, str) else "")
async def test_a_frame_reaches_a_host_only_with_its_ability(
    env: Env, host: RecordingHost, frame: FromClient, ability: Ability
) -> None:
    answer = await exchange(env, set(ABILITIES) - {ability}, frame, piece=1)
    reached = [each for each in host.frames if not isinstance(each, Hello)]

    assert reached == []
    assert isinstance(answer, FailureReply | SubscriptionEnd)
    said = answer.message if isinstance(answer, FailureReply) else answer.why
    assert said.startswith(f"the owner of that machine does not let you {DOES[ability]}.")

    async with served(env, {ability}) as bus:
        with await bus.connect(ME) as connected:
            client = Client(connected)
            await client.send(HELLO + codec.pack(frame) + codec.pack(Hello(n=2)))
            received = await client.receive(2 if not hasattr(frame, "n") else 3)
    assert not [each for each in received if isinstance(each, FailureReply | SubscriptionEnd)]
    assert [each for each in host.frames if not isinstance(each, Hello)] == [frame]


async def test_a_partial_frame_reaches_no_host(env: Env, host: RecordingHost) -> None:
    whole = codec.pack(execute(ANSWER))
    async with served(env, {"see"}) as bus:
        for end in (3, 4, len(whole) // 2, len(whole) - 1):
            with await bus.connect(ME) as connected:
                client = Client(connected)
                await client.send(HELLO + whole[:end])
                await client.receive(1)

    assert {type(each) for each in host.frames} == {Hello}


async def test_the_checked_frame_is_the_one_that_the_host_gets(env: Env, host: RecordingHost) -> None:
    """A frame whose key comes twice is encoded again, so that no host reads another command in it than the gate."""
    body = msgspec.msgpack.encode(
        {"t": "do", "n": 7, "session": ME, "wish": {"do": "prompt", "text": "go on"}, "future": {"do": "stop"}}
    )
    async with served(env, {"prompt"}) as bus:
        with await bus.connect(ME) as connected:
            client = Client(connected)
            await client.send(HELLO + struct.pack(">I", len(body)) + body)
            received = await client.receive(2)

    assert isinstance(received[1], CommandResult)
    assert host.frames[1:] == [execute(Prompt(text="go on"))]


async def test_an_invalid_frame_ends_the_connection(env: Env, host: RecordingHost) -> None:
    for junk in (struct.pack(">I", 4) + b"\xff\xff\xff\xff", b"\xff\xff\xff\xff" + bytes(20)):
        async with served(env, {"see"}) as bus:
            with await bus.connect(ME) as connected:
                client = Client(connected)
                await client.send(HELLO + junk)
                await client.rest()

    assert {type(each) for each in host.frames} == {Hello}


@pytest.mark.parametrize("kind", [ControlKind.HAND_OVER, ControlKind.STOP])
async def test_a_host_is_ended_only_by_a_client_that_may_start_sessions(
    env: Env, host: RecordingHost, kind: ControlKind
) -> None:
    answers = []
    allowed: list[set[Ability]] = [{"see", "prompt", "answer", "type", "sandbox"}, {"see", "start"}]
    for abilities in allowed:
        async with served(env, abilities) as bus:
            with await bus.connect(ME) as connected:
                client = Client(connected)
                await client.send(control.build_frame(kind), piece=3)
                answers.append(await client.rest())

    assert host.controls == [kind]
    assert b"does not let you start and end its sessions" in answers[0]
    assert answers[1] == control.build_frame(ControlKind.DONE, b"{}")


async def test_without_the_ability_to_see_no_session_and_no_file_is_sent(env: Env, host: RecordingHost) -> None:
    async with served(env, set(ABILITIES) - {"see"}) as bus:
        with pytest.raises(RefusedError, match="does not let you see its sessions"):
            await Reader(bus).until(lambda copy: copy.is_complete)
        with pytest.raises(RefusedError, match="does not let you see its sessions"):
            await bus.read_file(ME, "host.log")


async def test_the_welcome_lists_the_abilities(env: Env) -> None:
    async with served(env, {"prompt", "see"}) as bus:
        copy = await Reader(bus).until(lambda copy: copy.welcome)

    assert copy.welcome is not None
    assert copy.welcome.abilities == ("see", "prompt")


@pytest.mark.parametrize(
    ("command", "ability"),
    [
        ("ls --json", "see"),
        ("ls --tmux /tmp/s", "start"),
        ("export x --format=json", "see"),
        ("export x --out .bashrc", "start"),
        ("export x -o .bashrc", "start"),
        ("explain x --export f", "start"),
        ("diff x", "see"),
        ("show x --files --json", "prompt"),
        ("show x --symbols --json", "prompt"),
        ("comments x --json", "see"),
        ("comments x rm c1", "prompt"),
        ("comments x --send", "prompt"),
        ("comments x rm", "prompt"),
        ("hunks x revert", "start"),
        ("hunks x", "see"),
        ("hunks x revert f:1", "start"),
        ("ls --json --marks", "see"),
        ("top --json", "see"),
        ("rules --json", "see"),
        ("rules ls", "see"),
        ("rules --json rm k1", "start"),
        ("worktrees ls --json", "see"),
        ("worktrees gc", "start"),
        ("worktrees gc --yes", "start"),
        ("plan ls --json", "see"),
        ("plan show p --wave 2", "see"),
        ("plan --wave ls", "start"),
        ("plan abort ls", "start"),
        ("plan", "start"),
        ("recover --dry-run", "start"),
        ("send x text --when idle", "prompt"),
        ("answer r1 yes", "answer"),
        ("sandbox run x id", "sandbox"),
        ("sandbox create x --project /", "start"),
        ("sandbox allow x example.org", "start"),
        ("sandbox", "start"),
        ("finish x --merge", "start"),
        ("finish x --propose=- --actor={} --json", "prompt"),
        ("finish x --propose= --json", "prompt"),
        ("finish x --propose=- --merge --yes", "start"),
        ("stop x", "start"),
        ("new x -- sh", "start"),
        ("", "start"),
        ("--help", "start"),
    ],
)
async def test_a_command_needs_an_ability(env: Env, command: str, ability: Ability) -> None:
    assert ability_of_arguments(command.split()) == ability

    async with served(env, set(ABILITIES) - {ability}) as bus:
        with pytest.raises(RefusedError, match=DOES[ability]):
            await bus.run(command.split())


def test_every_command_with_less_than_all_abilities_is_listed() -> None:
    commands = {*get_args(AgentCommand), Requeue, *get_args(SandboxCommand)}

    assert set(OF_COMMAND) == commands - {Stop, Fork, Allow}


async def test_the_stricter_of_the_config_and_the_option_applies(env: Env) -> None:
    env.paths.config.mkdir(parents=True)
    env.paths.config_file.write_text('[machine]\nallow = ["see", "prompt"]\n')
    forced = f"exec {shlex.join(command_of(env.paths))} bus --stdio --allow see,answer"
    machine = Machine(name="there", command=("sh", "-c", forced))  # other words are ignored, as by `command=` of a key

    async with contextlib.aclosing(await open_bus(machine)) as bus:
        copy = await Reader(bus).until(lambda copy: copy.welcome)

    assert copy.welcome is not None
    assert copy.welcome.abilities == ("see",)
