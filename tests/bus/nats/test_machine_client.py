"""Commands to a machine over NATS: who may send them, and what happens when messages are repeated, forged or lost.

What every bus promises is in tests/bus/test_contract.py, which runs over NATS too.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from nats.aio.msg import Msg

from kasmon.bus.local import LocalBus
from kasmon.bus.nats.connection import connect
from kasmon.bus.nats.enrolment import revoke
from kasmon.bus.nats.keys import make_seed
from kasmon.bus.nats.machine import REFUSAL, SILENT_S, MachineHello, MachineServer
from kasmon.bus.nats.machine_client import open_command_bus
from kasmon.bus.nats.service import apply_changes
from kasmon.bus.nats.signatures import RemoteCommand, make_nonce, sign_command
from kasmon.bus.nats.subjects import subject
from kasmon.bus.nats.tunnel import CHUNK_BYTES, END, NUMBER, TunnelEnd
from kasmon.bus.stream import StreamBus
from kasmon.errors import RefusedError, RemoteUnreachableError
from kasmon.model.commands import Ability
from kasmon.paths import Paths, user_paths
from tests.support.bus.cluster_server import CLUSTER, ClusterServer


@pytest.fixture
def here() -> Paths:
    """This test's own kasmon."""
    where = user_paths()
    where.make()
    return where


@pytest.fixture
async def served(cluster: ClusterServer, here: Paths) -> AsyncIterator[MachineServer]:
    """The machine `m1` with the bus of this test's own kasmon."""
    server = MachineServer(cluster.identity("m1", "machine"), lambda: LocalBus(here))
    await server.start()
    yield server
    await server.aclose()


async def first(bus: StreamBus) -> str:
    """The kind of the first update."""
    updates = bus.updates({})
    try:
        async with asyncio.timeout(30):
            return type(await anext(updates)).__name__
    finally:
        await updates.aclose()


async def why_it_ends(bus: StreamBus) -> str:
    """Read all updates; return why they end."""
    try:
        async with asyncio.timeout(30):
            async for _ in bus.updates({}):
                pass
    except RemoteUnreachableError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("served")
async def test_a_viewer_cannot_open_a_bus(cluster: ClusterServer) -> None:
    with pytest.raises(RemoteUnreachableError, match=r"'vera' may not send to .*role is viewer"):
        await open_command_bus(cluster.identity("vera", "viewer"), "m1")


async def test_a_machine_that_is_not_connected_is_unreachable_at_once(cluster: ClusterServer) -> None:
    since = time.monotonic()

    with pytest.raises(RemoteUnreachableError, match="it is not connected"):
        await open_command_bus(cluster.identity("otto", "operator"), "m2")

    assert time.monotonic() - since < 30


async def test_a_stopped_machine_is_not_taken_for_an_unresponsive_cluster(
    cluster: ClusterServer,
) -> None:
    stopped = await connect(cluster.identity("m1", "machine"))
    try:
        await stopped.subscribe(subject(CLUSTER, "cmd", "m1", "hello"), ignore)
        with pytest.raises(
            RemoteUnreachableError, match="cannot reach 'm1': it is connected to the cluster, but did not"
        ):
            await open_command_bus(cluster.identity("otto", "operator"), "m1")
    finally:
        await stopped.aclose()


async def ignore(message: Msg) -> None:
    """Answer nothing."""


@pytest.mark.usefixtures("served")
async def test_two_operators_use_a_machine_at_once(cluster: ClusterServer) -> None:
    buses = [await open_command_bus(cluster.identity(name, "operator"), "m1") for name in ("otto", "olga")]

    assert ["BusWelcome", "BusWelcome"] == [await first(bus) for bus in buses]

    for bus in buses:
        await bus.aclose()


async def test_an_operator_may_do_as_the_owner_of_the_machine_allows(cluster: ClusterServer, here: Paths) -> None:
    allowed: tuple[Ability, ...] = ("see",)
    server = MachineServer(cluster.identity("m2", "machine"), lambda: LocalBus(here), allowed)
    await server.start()
    bus = await open_command_bus(cluster.identity("otto", "operator"), "m2")
    try:
        assert await first(bus) == "BusWelcome"
        assert (await bus.run(["ls", "--json"])).exit_code == 0
        with pytest.raises(RefusedError, match="does not let you start and end its sessions"):
            await bus.run(["stop", "docs"])
    finally:
        await bus.aclose()
        await server.aclose()


@pytest.mark.usefixtures("served")
async def test_a_machine_answers_heartbeats_of_an_operator_during_a_long_command(
    cluster: ClusterServer,
) -> None:
    otto = cluster.identity("otto", "operator")
    connection = await connect(otto)
    name = os.urandom(12).hex()
    hello = await connection.request(subject(CLUSTER, "cmd", "m1", "hello"), b"")
    command = RemoteCommand(
        cluster=CLUSTER,
        machine="m1",
        epoch=msgspec.json.decode(hello.data, type=MachineHello).epoch,
        verb="stream",
        stream=name,
        body=b"",
        nonce="",
        at=time.time(),
    )

    for number in range(2):
        sent = msgspec.structs.replace(command, body=NUMBER.pack(number), nonce=make_nonce())
        signed = sign_command(otto.seed, sent)
        reply = await connection.request(subject(CLUSTER, "cmd", "m1", name), signed, timeout_s=10)
        assert reply.data == NUMBER.pack(number)
    await connection.aclose()


@pytest.mark.usefixtures("served")
async def test_a_machine_refuses_commands_without_a_current_signature_of_an_operator(cluster: ClusterServer) -> None:
    """The sender may use the subject: only the signature is wrong."""
    otto = cluster.identity("otto", "operator")
    olga = await connect(cluster.identity("olga", "operator"))
    name = os.urandom(12).hex()
    sent_to = subject(CLUSTER, "cmd", "m1", name)
    hello = await olga.request(subject(CLUSTER, "cmd", "m1", "hello"), b"")
    epoch = msgspec.json.decode(hello.data, type=MachineHello).epoch
    good = RemoteCommand(
        cluster=CLUSTER,
        machine="m1",
        epoch=epoch,
        verb="stream",
        stream=name,
        body=NUMBER.pack(0),
        nonce=make_nonce(),
        at=time.time(),
    )

    async def refusal(content: bytes) -> str:
        return ((await olga.request(sent_to, content, timeout_s=30)).headers or {}).get(REFUSAL, "")

    replace = msgspec.structs.replace
    assert "not signed" in await refusal(b"x")
    assert "no operator" in await refusal(sign_command(make_seed(), good))
    assert "no operator" in await refusal(sign_command(cluster.identity("vera", "viewer").seed, good))
    assert "for the machine 'm2'" in await refusal(sign_command(otto.seed, replace(good, machine="m2")))
    assert "restarted since" in await refusal(sign_command(otto.seed, replace(good, epoch="old")))
    assert "s old" in await refusal(sign_command(otto.seed, replace(good, at=time.time() - 3600)))
    assert "has the verb 'stop'" in await refusal(sign_command(otto.seed, replace(good, verb="stop")))
    other = replace(good, stream="other", nonce=make_nonce())
    assert "for 'other'" in await refusal(sign_command(otto.seed, other))
    signed = sign_command(otto.seed, replace(good, nonce=make_nonce()))
    await olga.send(sent_to, signed)
    assert "executed already" in await refusal(signed)
    await olga.aclose()


async def test_the_streams_of_a_removed_operator_end(own_cluster: ClusterServer, here: Paths) -> None:
    served = MachineServer(own_cluster.identity("m1", "machine"), lambda: LocalBus(here))
    await served.start()
    otto, olga = [await open_command_bus(own_cluster.identity(name, "operator"), "m1") for name in ("otto", "olga")]
    assert ["BusWelcome", "BusWelcome"] == [await first(bus) for bus in (otto, olga)]

    await asyncio.to_thread(revoke, own_cluster.folder, "otto")
    assert await apply_changes(own_cluster.folder)

    assert "cannot reach 'm1'" in await why_it_ends(otto)
    assert 0 == (await olga.run(["--version"])).exit_code
    with pytest.raises(RemoteUnreachableError, match="it was removed"):
        await open_command_bus(own_cluster.identity("otto", "operator"), "m1")
    for each in (otto, olga, served):
        await each.aclose()


async def test_a_bus_ends_with_the_server_and_can_be_opened_again(own_cluster: ClusterServer, here: Paths) -> None:
    served = MachineServer(own_cluster.identity("m1", "machine"), lambda: LocalBus(here))
    await served.start()
    otto = own_cluster.identity("otto", "operator")
    bus = await open_command_bus(otto, "m1")
    assert "BusWelcome" == await first(bus)

    await asyncio.to_thread(own_cluster.stop)
    assert "cannot reach 'm1'" in await why_it_ends(bus)
    await bus.aclose()
    with pytest.raises(RemoteUnreachableError, match="cannot reach the cluster 'c1'"):
        await open_command_bus(otto, "m1")
    await asyncio.to_thread(own_cluster.start)

    async with asyncio.timeout(40):
        while True:
            try:
                again = await open_command_bus(otto, "m1")
                break
            except RemoteUnreachableError:
                await asyncio.sleep(0.1)  # the machine connects again by itself
    assert 0 == (await again.run(["--version"])).exit_code
    await again.aclose()
    await served.aclose()


async def test_a_lost_message_ends_the_stream_and_nothing_is_shifted() -> None:
    ended: list[str] = []

    async def send(content: bytes) -> None: ...

    end = TunnelEnd(send, lambda: ended.append("ended"))
    reader, writer = end.open()

    for number, content in ((0, b"a"), (1, b"b"), (3, b"d"), (2, b"c")):
        await end.receive(NUMBER.pack(number) + content)

    assert b"ab" == await reader.read()
    assert ["ended"] == ended
    writer.close()


async def test_a_stream_may_end_before_it_is_open() -> None:
    ended: list[str] = []

    async def send(content: bytes) -> None: ...

    end = TunnelEnd(send, lambda: ended.append("ended"))
    end.abort()
    await end.receive(NUMBER.pack(0) + b"a")

    assert ["ended"] == ended


class Sent:
    """What an end sends: the messages after the number of each."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.ended = asyncio.Event()
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.end = TunnelEnd(self._send, self.ended.set)

    async def _send(self, content: bytes) -> None:
        await self.may_send.wait()
        self.messages.append(content)

    @property
    def contents(self) -> list[bytes]:
        return [each[NUMBER.size :] for each in self.messages]


async def test_writes_at_the_same_time_are_one_message_which_is_sent_before_the_end() -> None:
    sent = Sent()
    _, writer = sent.end.open()

    for word in (b"key ", b"and ", b"echo"):
        writer.write(word)
    writer.close()
    await writer.wait_closed()

    assert [b"key and echo", b""] == sent.contents
    assert NUMBER.pack(END) == sent.messages[-1]
    assert sent.ended.is_set()


async def test_a_writer_waits_while_the_server_accepts_no_more() -> None:
    sent = Sent()
    sent.may_send.clear()
    _, writer = sent.end.open()
    writer.write(bytes(3 * CHUNK_BYTES))

    waiting = asyncio.ensure_future(writer.drain())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    sent.may_send.set()
    async with asyncio.timeout(30):
        await waiting
    writer.close()
    await writer.wait_closed()

    assert bytes(3 * CHUNK_BYTES) == b"".join(sent.contents)
    assert max(map(len, sent.contents)) == CHUNK_BYTES


async def test_an_end_consumes_no_more_messages_than_its_reader_reads() -> None:
    sent = Sent()
    reader, _ = sent.end.open()

    receiving = asyncio.ensure_future(sent.end.receive(NUMBER.pack(0) + bytes(CHUNK_BYTES)))
    await asyncio.sleep(0)
    assert not receiving.done()
    assert CHUNK_BYTES == len(await reader.readexactly(CHUNK_BYTES))
    await receiving

    sent.end.abort()
    assert b"" == await reader.read()


class NotedBus(LocalBus):
    """Notes its end."""

    def __init__(self, paths: Paths, ended: asyncio.Queue[None]) -> None:
        super().__init__(paths)
        self._ended = ended

    async def aclose(self) -> None:
        await super().aclose()
        self._ended.put_nowait(None)


class Clock:
    def __init__(self, base: Callable[[], float]) -> None:
        self._base, self.ahead_s = base, 0.0

    def now(self) -> float:
        return self._base() + self.ahead_s


async def test_a_stream_ends_on_the_machine_with_its_bus_or_later_if_its_operator_was_killed(
    cluster: ClusterServer, here: Paths
) -> None:
    ended, clock, monotonic = asyncio.Queue[None](), Clock(time.time), Clock(time.monotonic)
    identity = cluster.identity("m1", "machine")
    server = MachineServer(identity, lambda: NotedBus(here, ended), now=clock.now, monotonic=monotonic.now)
    await server.start()
    closed, killed = [await open_command_bus(cluster.identity("otto", "operator"), "m1") for _ in range(2)]
    assert ["BusWelcome", "BusWelcome"] == [await first(bus) for bus in (closed, killed)]

    await closed.aclose()
    async with asyncio.timeout(30):
        await ended.get()
    killed._writer.transport.abort()  # nothing is said to the machine
    clock.ahead_s = SILENT_S + 1
    late = await open_command_bus(cluster.identity("otto", "operator"), "m1")
    assert "BusWelcome" == await first(late)
    assert ended.empty(), "a clock that is set ends no stream"
    await late.aclose()
    async with asyncio.timeout(30):
        await ended.get()
    clock.ahead_s, monotonic.ahead_s = 0.0, SILENT_S + 1
    third = await open_command_bus(cluster.identity("otto", "operator"), "m1")
    assert "BusWelcome" == await first(third)
    async with asyncio.timeout(30):
        await ended.get()

    assert (await third.run(["--version"])).exit_code == 0
    assert ended.empty()
    for bus in (killed, third):
        await bus.aclose()
    await server.aclose()
