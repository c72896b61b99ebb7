"""A server that is killed again and again under load: `make test-faults`."""

import asyncio
import contextlib
import itertools
import json
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from kasmon.bus.local import LocalBus
from kasmon.bus.nats.bus import NatsBus, open_nats_bus
from kasmon.bus.nats.jetstream.machine_records import OrderReport, OrderState
from kasmon.bus.nats.machine import MachineServer
from kasmon.bus.nats.server import start_server
from kasmon.bus.nats.server_config import WORKER, worker_configuration
from kasmon.bus.nats.subjects import stream
from kasmon.errors import KasmonError
from kasmon.model.events import MessageWritten
from kasmon.model.permission import SessionId
from kasmon.supervisor.machines.link_client import CommandOutput
from tests.support.bus.buses import Copy, Reader
from tests.support.bus.cluster_server import ClusterServer, open_cluster
from tests.support.supervisor.env import NOW, Env, started
from tests.support.wait import auntil

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(300),
    # nats-py 2.16 leaves open what a killed server has ended
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ME = SessionId("abcdefgh")
LET = 20
"""After so many kills an order and an answer are waited for."""
KILLS = 100
LIMIT_S = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterServer]:
    with open_cluster(tmp_path) as server:
        yield server


class Load:
    """Events of m1, orders to it and answers to its host, all at once, until `stop`."""

    def __init__(self, cluster: ClusterServer, env: Env) -> None:
        self._cluster, self._env = cluster, env
        self.stop = asyncio.Event()
        self.placed: list[str] = []
        self.ran: list[str] = []
        self.answered: list[bytes] = []
        self.received: list[bytes] = []
        self.connections = 0

    @contextlib.asynccontextmanager
    async def bus(self) -> AsyncIterator[NatsBus]:
        async with contextlib.aclosing(await open_nats_bus(self._cluster.identity("otto", "operator"), "m1")) as bus:
            yield bus

    async def write_events(self) -> None:
        for number in itertools.count():
            if self.stop.is_set():
                return
            self._env.tells(ME, MessageWritten(at=NOW, text=f"event {number}"))
            await asyncio.sleep(0.01)

    async def place_orders(self) -> None:
        numbers = itertools.count()
        task = f"t{next(numbers)}"
        while not self.stop.is_set():
            with contextlib.suppress(KasmonError, OSError):
                async with self.bus() as bus:
                    while not self.stop.is_set():
                        await bus.order("p1", task, 1, ["new", task])
                        self.placed.append(task)
                        task = f"t{next(numbers)}"
                        await asyncio.sleep(0.05)

    async def answer(self) -> None:
        loop = asyncio.get_running_loop()
        numbers = itertools.count()
        while not self.stop.is_set():
            with contextlib.suppress(KasmonError, OSError):
                async with self.bus() as bus:
                    with await bus.connect(ME) as host:
                        while not self.stop.is_set():
                            sent = b"%08d" % next(numbers)
                            async with asyncio.timeout(5):
                                await loop.sock_sendall(host, sent)
                                if sent != await loop.sock_recv(host, 8):
                                    break
                            self.answered.append(sent)
                            await asyncio.sleep(0.02)

    async def until_done(self, bus: NatsBus) -> list[OrderReport]:
        """Return the reports of the orders that were carried out, once those are all that were placed."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                done = [each for each in await bus.orders() if each.state is OrderState.DONE]
                if len(done) >= len(self.placed):
                    return done
                await asyncio.sleep(0.2)

    async def serve_host(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A host that applies what it gets, then says so."""
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                received = await reader.readexactly(8)
                self.received.append(received)
                writer.write(received)
        writer.close()
        self.connections -= 1


class RecordingBus(LocalBus):
    """Records the commands of orders."""

    def __init__(self, env: Env, load: Load) -> None:
        super().__init__(env.paths)
        self._load = load

    async def run(self, arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
        self._load.ran.append(arguments[-1])
        return CommandOutput(exit_code=0, stdout=b"", stderr=b"")


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> None:
    """The load writes files from its loop."""


async def test_a_server_killed_a_hundred_times_loses_and_doubles_nothing(cluster: ClusterServer, env: Env) -> None:
    env.has(ME, started())
    load = Load(cluster, env)
    host = await asyncio.start_unix_server(load.serve_host, str(env.paths.socket(ME)))
    await redeliver_soon(cluster)
    machine = MachineServer(cluster.identity("m1", "machine"), lambda: RecordingBus(env, load))
    await machine.start()
    work = [asyncio.create_task(each) for each in (load.write_events(), load.place_orders(), load.answer())]
    kept = 0
    try:
        for number in range(KILLS):
            if number % LET == 0:  # else a slow machine's connections to hosts would never outlive a kill
                answered, placed = len(load.answered), len(load.placed)
                await auntil(lambda a=answered, p=placed: len(load.answered) > a and len(load.placed) > p, LIMIT_S)  # type: ignore[misc]
            before = acknowledged(machine)
            with contextlib.suppress(TimeoutError):
                await auntil(lambda before=before: acknowledged(machine) > before, 2.0)  # type: ignore[misc]
            kept = acknowledged(machine)
            assert cluster.process is not None
            cluster.process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(cluster.process.wait)
            cluster.process = await asyncio.to_thread(start_server, cluster.program, cluster.folder.configuration)
    finally:
        load.stop.set()
        await asyncio.gather(*work, return_exceptions=True)
    log = env.paths.log(ME).read_bytes()
    await auntil(lambda: acknowledged(machine) == len(log), LIMIT_S)

    assert kept, "events were acknowledged while the server was being killed"
    async with load.bus() as bus:
        done = await load.until_done(bus)
    assert set(load.placed) <= {each.task for each in done}, "no order is lost"
    assert len(load.ran) == len(set(load.ran)), "no order is carried out twice"
    assert set(load.answered) <= set(load.received), "no answer is lost"
    assert len(load.received) == len(set(load.received)), "no answer arrives twice"
    assert min(len(load.placed), len(load.answered)) >= KILLS // LET, "there was a load"
    await machine.aclose()
    await auntil(lambda: not load.connections)
    host.close()
    async with contextlib.aclosing(await open_nats_bus(cluster.identity("vera", "viewer"), "m1")) as viewer:
        copy: Copy = await Reader(viewer).until(lambda copy: copy.is_complete)
        assert log == copy.logs[ME], "the server has each event, also without the machine"


def acknowledged(machine: MachineServer) -> int:
    """How many bytes of the log the server has acknowledged."""
    at = machine.outbox.positions.get(ME)
    return at.offset if at is not None else 0


async def redeliver_soon(cluster: ClusterServer) -> None:
    """Have what was delivered to a lost connection delivered again after 2 s, instead of 30."""
    configuration = worker_configuration("m1")
    configuration["config"] |= {"ack_wait": 2 * 10**9, "max_deliver": -1}
    service = await cluster.connect_service()
    await service.request(
        f"$JS.API.CONSUMER.CREATE.{stream('tasks', 'm1')}.{WORKER}", json.dumps(configuration).encode()
    )
    await service.aclose()
