"""Buses to one kasmon: in this process, over a stream, and over ssh to an sshd on loopback."""

import asyncio
import contextlib
import functools
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kasmon.bus.base import (
    Bus,
    BusWelcome,
    Heartbeat,
    ListEnd,
    LogPart,
    LogPosition,
    SessionEntry,
    SessionRemoval,
    Update,
)
from kasmon.bus.local import LocalBus
from kasmon.bus.nats.bus import NatsBus
from kasmon.bus.nats.cluster import Role
from kasmon.bus.nats.machine import MachineServer
from kasmon.bus.ssh import open_bus
from kasmon.bus.stream import StreamBus, StreamServer
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.machines import Machine
from tests.support.bus.cluster_server import ClusterServer
from tests.support.bus.server_programs import need_server
from tests.support.host.sshd import Sshd


def command_of(paths: Paths) -> tuple[str, ...]:
    """The command that runs the kasmon of *paths*, on whatever machine it is."""
    variables = paths.environment_variables()
    return ("env", *(f"{name}={value}" for name, value in variables.items()), sys.executable, "-P", "-m", "kasmon")


@contextlib.asynccontextmanager
async def over_a_stream(paths: Paths) -> AsyncIterator[StreamBus]:
    ours, theirs = socket.socketpair()
    served = StreamServer(LocalBus(paths), *await asyncio.open_connection(sock=theirs))
    serving = asyncio.create_task(served.serve())

    async def end() -> None:
        await serving

    bus = StreamBus("there", *await asyncio.open_connection(sock=ours), end)
    try:
        yield bus
    finally:
        await bus.aclose()


@functools.cache
def shared_cluster() -> ClusterServer:
    """One cluster for all tests of this process; `end_shared_cluster` ends its server."""
    need_server()
    server = ClusterServer(Path(tempfile.mkdtemp(prefix="kc-", dir="/tmp")))
    server.start()
    return server


def end_shared_cluster() -> None:
    """End the shared cluster, if there is one. `atexit` would not: the workers of pytest-xdist leave without it."""
    if shared_cluster.cache_info().currsize:
        server = shared_cluster()
        server.stop()
        shutil.rmtree(server.paths.state, ignore_errors=True)


class _HeldBus(LocalBus):
    """Lists nothing before *begun* is set."""

    def __init__(self, paths: Paths, begun: asyncio.Event) -> None:
        super().__init__(paths)
        self._begun = begun

    async def updates(self, positions: Mapping[SessionId, LogPosition]) -> AsyncGenerator[Update, None]:
        await self._begun.wait()
        async with contextlib.aclosing(super().updates(positions)) as updates:
            async for update in updates:
                yield update


class _BeginningBus(NatsBus):
    """The machine begins to publish when this is read: then a test has made its sessions, as for the other buses."""

    begun: asyncio.Event

    def updates(self, positions: Mapping[SessionId, LogPosition]) -> AsyncGenerator[Update, None]:
        self.begun.set()
        return super().updates(positions)


@contextlib.asynccontextmanager
async def over_nats(paths: Paths, name: str = "otto", role: Role = "operator") -> AsyncIterator[NatsBus]:
    cluster = await asyncio.to_thread(shared_cluster)
    await cluster.clear("m1")
    begun = asyncio.Event()
    served = MachineServer(cluster.identity("m1", "machine"), lambda: _HeldBus(paths, begun))
    await served.start()
    try:
        async with contextlib.aclosing(_BeginningBus(cluster.identity(name, role), "m1")) as bus:
            bus.begun = begun
            await bus.open()
            yield bus
    finally:
        await served.aclose()


@contextlib.asynccontextmanager
async def bus_to(kind: str, paths: Paths, box: Callable[[], Sshd]) -> AsyncIterator[Bus]:
    """A bus of this *kind* to the kasmon of *paths*."""
    if kind == "local":
        async with contextlib.aclosing(LocalBus(paths)) as local:
            yield local
    elif kind == "stream":
        async with over_a_stream(paths) as stream:
            yield stream
    elif kind == "nats":
        async with over_nats(paths) as nats:
            yield nats
    elif kind == "viewer":
        async with over_nats(paths, "vera", "viewer") as viewer:
            yield viewer
    else:
        machine = Machine(name="there", ssh="box", command=command_of(paths))
        async with contextlib.aclosing(await open_bus(machine, box().ssh)) as remote:
            yield remote


@dataclass
class Copy:
    """What a reader has after some updates."""

    welcome: BusWelcome | None = None
    entries: dict[str, SessionEntry] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    positions: dict[SessionId, LogPosition] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    is_complete: bool = False
    heartbeats: int = 0
    order: list[Update] = field(default_factory=list)

    def apply(self, update: Update) -> None:
        self.order.append(update)
        match update:
            case BusWelcome():
                self.welcome = update
            case SessionEntry():
                self.entries[update.created.launch.session] = update
            case SessionRemoval():
                self.removed.append(update.session)
            case ListEnd():
                self.is_complete = True
            case Heartbeat():
                self.heartbeats += 1
            case LogPart():
                known = self.logs.get(update.session, b"") if update.offset else b""
                before = self.positions.get(update.session, LogPosition("", 0))
                assert update.offset in (0, before.offset), "a part that does not follow the one before"
                self.logs[update.session] = known + update.content
                self.positions[update.session] = LogPosition(update.log, update.offset + len(update.content))


class Reader:
    """Reads the updates of *bus* into a `Copy`."""

    def __init__(self, bus: Bus, positions: Mapping[SessionId, LogPosition] | None = None) -> None:
        self.copy = Copy(positions=dict(positions or {}))
        self._updates = bus.updates(positions or {})

    async def until(self, condition: Callable[[Copy], object]) -> Copy:
        """Read on until *condition* is true of the copy."""
        async with asyncio.timeout(40):
            while not condition(self.copy):
                self.copy.apply(await anext(self._updates))
        return self.copy

    async def aclose(self) -> None:
        await self._updates.aclose()
