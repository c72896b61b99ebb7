"""What neither end of a stream does, whatever the other one sends."""

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kasmon.bus import ssh
from kasmon.bus.base import BusWelcome, Heartbeat, LogPart
from kasmon.bus.local import LocalBus
from kasmon.bus.ssh import GREETING, check_machine, open_bus
from kasmon.bus.stream import QUEUED_BYTES, StreamBus, StreamServer
from kasmon.errors import RemoteUnreachableError
from kasmon.model.permission import SessionId
from kasmon.process_identity import is_running, started_at
from kasmon.sandbox.guest.mux import CLOSE, CONNECT, DATA, MESSAGE, REQUEST, pack_record
from kasmon.store.machines import Machine
from tests.support.bus.buses import Reader
from tests.support.supervisor.env import Env
from tests.support.wait import auntil


@contextlib.asynccontextmanager
async def bus_and_wire() -> AsyncIterator[tuple[StreamBus, socket.socket]]:
    """A bus, and the other end of its stream."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    async def end() -> None:
        return None

    bus = StreamBus("there", *await asyncio.open_connection(sock=ours), end)
    try:
        yield bus, theirs
    finally:
        theirs.close()
        await bus.aclose()


async def feed(content: bytes) -> str:
    """Let a machine send *content* and close the stream; return why the bus is unreachable then."""
    async with bus_and_wire() as (bus, wire):
        await asyncio.get_running_loop().sock_sendall(wire, content)
        wire.shutdown(socket.SHUT_WR)
        with pytest.raises(RemoteUnreachableError) as unreachable:
            await Reader(bus).until(lambda copy: False)
    return unreachable.value.why


NONSENSE = st.one_of(
    st.binary(max_size=64),
    st.builds(
        lambda kind, channel, content: pack_record(kind, channel, content),
        st.integers(1, 9),
        st.integers(0, 9),
        st.binary(max_size=40),
    ),
    st.builds(
        lambda kind, value: pack_record(kind, 0, msgspec.msgpack.encode(value)),
        st.sampled_from([REQUEST, MESSAGE]),
        st.recursive(
            st.none() | st.integers(-9, 9) | st.text(max_size=4),
            lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=4), one, max_size=3),
            max_leaves=5,
        ),
    ),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(NONSENSE, max_size=6).map(b"".join))
def test_invalid_input_of_a_machine_makes_it_unreachable_with_a_reason(content: bytes) -> None:
    assert asyncio.run(feed(content))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(NONSENSE, max_size=6).map(b"".join))
def test_invalid_input_of_a_viewer_ends_the_server_connection(content: bytes, env: Env) -> None:
    async def serve() -> None:
        ours, theirs = socket.socketpair()
        server = StreamServer(LocalBus(env.paths), *await asyncio.open_connection(sock=theirs))
        serving = asyncio.create_task(server.serve())
        ours.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(ours, content)
        ours.close()
        async with asyncio.timeout(20):
            await serving

    asyncio.run(serve())


async def test_a_record_longer_than_allowed_ends_the_connection() -> None:
    assert "frame too large" in await feed(struct.pack(">I", 1 << 30))


async def test_a_machine_that_ignores_the_limit_of_unread_updates_is_disconnected() -> None:
    part = LogPart(SessionId("abcdefgh"), "1", 0, b"x" * (1 << 20))
    record = pack_record(MESSAGE, 0, msgspec.msgpack.encode(part))
    async with bus_and_wire() as (bus, wire):
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            for _ in range(2 * QUEUED_BYTES >> 20):
                await loop.sock_sendall(wire, record)
        with pytest.raises(RemoteUnreachableError, match="more updates than it may send"):
            await bus.run(["ls"])


async def test_a_machine_cannot_open_connections_here() -> None:
    async with bus_and_wire() as (_, wire):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(wire, pack_record(CONNECT, 1, b"abcdefgh") + pack_record(DATA, 1, b"x"))

        answer = await loop.sock_recv(wire, 4096)

    assert CLOSE == answer[4]


async def test_a_bus_of_another_protocol_is_refused_with_its_version() -> None:
    async with bus_and_wire() as (bus, wire):
        welcome = BusWelcome("9.9", 2, "there", ())
        content = b"".join(pack_record(MESSAGE, 0, msgspec.msgpack.encode(each)) for each in (welcome, Heartbeat()))
        await asyncio.get_running_loop().sock_sendall(wire, content)

        with pytest.raises(RemoteUnreachableError, match=r"kasmon 9\.9 there speaks bus protocol 2"):
            await Reader(bus).until(lambda copy: copy.heartbeats)


async def test_a_bus_is_closed_although_the_other_end_reads_nothing_of_what_was_sent() -> None:
    async with bus_and_wire() as (bus, wire), asyncio.timeout(60):
        asking = asyncio.create_task(bus.run(["task", "add"], bytes(8 << 20)))
        await asyncio.sleep(0)

        await bus.aclose()

        with pytest.raises(RemoteUnreachableError, match="it is unknown whether this was done"):
            await asking
        assert wire.fileno() >= 0, "it is open still"


async def test_a_machine_that_sends_only_a_greeting_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "GREETING_S", 2.0)
    script = f"printf '%s' '{GREETING.decode()}'; cat >/dev/null; exit 0"  # the shell keeps its output open

    with pytest.raises(RemoteUnreachableError, match="within 2 s"):
        await check_machine(Machine(name="there", command=("sh", "-c", script)))


async def test_a_bus_over_ssh_is_closed_although_another_process_holds_its_output(tmp_path: Path) -> None:
    """As the process does that shares the connections of ssh."""
    script = f"sleep 600 & echo $! >{tmp_path}/pid; printf '%s' '{GREETING.decode()}'; exec cat >/dev/null"
    bus = await open_bus(Machine(name="there", command=("sh", "-c", script)))
    try:
        async with asyncio.timeout(60):
            await bus.aclose()
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


STAYS = """
import os, pathlib, signal, sys
folder, greeting = sys.argv[1:3]
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path(folder, "asked").touch())
pathlib.Path(folder, "pid").write_text(str(os.getpid()))
print(greeting, end="", flush=True)
while True:
    signal.pause()
"""
"""A program in the place of ssh that does not end when it is asked to."""


@pytest.mark.parametrize("greeting", [GREETING.decode(), ""], ids=["connected", "not yet connected"])
async def test_ssh_is_killed_although_its_end_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, greeting: str
) -> None:
    monkeypatch.setattr(ssh, "ENDING_S", 0.5)
    connected = asyncio.Event()
    command = (sys.executable, "-c", STAYS, str(tmp_path), greeting)

    async def use() -> None:
        async with contextlib.aclosing(await open_bus(Machine(name="there", command=command))):
            connected.set()
            await asyncio.Event().wait()

    using = asyncio.create_task(use())
    pid = await auntil(lambda: int((tmp_path / "pid").read_text() or 0) if (tmp_path / "pid").exists() else 0)
    born = await asyncio.to_thread(started_at, pid)
    assert born
    for _ in range(50):  # else asyncio kills what it is still starting: the steps of that follow at once
        await asyncio.sleep(0)
    if greeting:
        await connected.wait()
    using.cancel()
    await auntil((tmp_path / "asked").exists)
    using.cancel()
    await asyncio.wait([using])
    try:
        assert (True, False) == (using.cancelled(), await asyncio.to_thread(is_running, pid, born))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
