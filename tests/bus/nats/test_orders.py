"""Orders in a machine's work queue: each attempt is carried out at most once, and what became of it is known."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import msgspec
import pytest

from kasmon.bus.local import LocalBus
from kasmon.bus.nats.bus import NatsBus, open_nats_bus
from kasmon.bus.nats.connection import connect
from kasmon.bus.nats.identity import IdentityFile
from kasmon.bus.nats.jetstream import orders
from kasmon.bus.nats.jetstream.machine_records import OrderReport, OrderState
from kasmon.bus.nats.jetstream.order_queue import place_order
from kasmon.bus.nats.jetstream.orders import MOST_AT_ONCE
from kasmon.bus.nats.machine import MachineServer
from kasmon.bus.nats.signatures import Order, order_key, sign_order
from kasmon.bus.nats.subjects import subject
from kasmon.errors import RefusedError, RemoteUnreachableError
from kasmon.model.commands import ABILITIES, Ability
from kasmon.paths import Paths, user_paths
from kasmon.store.machines import Machine, write_machine
from kasmon.supervisor.machines.link_client import CommandOutput, QueuedOrder
from tests.support.bus.cluster_server import CLUSTER, ClusterServer
from tests.support.wait import auntil

ENDED = (OrderState.DONE, OrderState.FAILED, OrderState.REFUSED, OrderState.UNSURE)


class RecordingBus(LocalBus):
    """Records what it runs, instead of starting sessions; `wait` ends with *waited*."""

    def __init__(self, where: Paths, ran: list[str], waited: asyncio.Event) -> None:
        super().__init__(where)
        self._ran, self._waited = ran, waited

    async def run(self, arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
        self._ran.append(" ".join(arguments))
        if arguments[-1] == "wait":
            await self._waited.wait()
        return CommandOutput(exit_code=int(arguments[-1] == "fail"), stdout=stdin, stderr=b"")


@pytest.fixture
async def cluster(cluster: ClusterServer) -> ClusterServer:
    """The shared one, with nothing of m1."""
    await cluster.clear("m1")
    return cluster


class ServedMachine:
    """What m1 carried out, and its service while it runs."""

    def __init__(self, cluster: ClusterServer) -> None:
        self._cluster = cluster
        self._where = user_paths()
        self._where.make()
        self.ran: list[str] = []
        self.waited = asyncio.Event()

    @contextlib.asynccontextmanager
    async def serving(self, abilities: Collection[Ability] = ABILITIES) -> AsyncIterator[MachineServer]:
        identity = self._cluster.identity("m1", "machine")
        server = MachineServer(identity, lambda: RecordingBus(self._where, self.ran, self.waited), abilities)
        await server.start()
        try:
            yield server
        finally:
            await server.aclose()


@pytest.fixture
def machine(cluster: ClusterServer) -> ServedMachine:
    return ServedMachine(cluster)


@pytest.fixture
def own_machine(own_cluster: ClusterServer) -> ServedMachine:
    return ServedMachine(own_cluster)


@pytest.fixture
async def otto(cluster: ClusterServer) -> AsyncIterator[NatsBus]:
    async with contextlib.aclosing(await open_nats_bus(cluster.identity("otto", "operator"), "m1")) as bus:
        yield bus


async def report(bus: NatsBus, task: str, attempt: int = 1) -> OrderReport:
    """What became of an order, once that is certain."""
    async with asyncio.timeout(40):
        while True:
            for each in await bus.orders():
                if (each.task, each.attempt) == (task, attempt) and each.state in ENDED:
                    return each
            await asyncio.sleep(0.05)


def viewers_kasmon(cluster: ClusterServer, folder: Path) -> Paths:
    """A kasmon of vera, where m1 is registered."""
    where = user_paths({"XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)})
    write_machine(where, Machine(name="m1", cluster=CLUSTER))
    IdentityFile(where, CLUSTER, "viewer").save(cluster.identity("vera", "viewer"))
    return where


def listed(where: Paths, *options: str) -> list[tuple[str, str, int | None]]:
    """What `kasmon machines orders` lists."""
    environment = {**os.environ, **where.environment_variables()}
    argv = [sys.executable, "-P", "-m", "kasmon", "machines", "orders", "m1", "--json", *options]
    output = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True).stdout
    return sorted((each["task"], each["state"], each["exit_code"]) for each in json.loads(output)["orders"])


async def test_an_order_is_carried_out_once_and_reported(
    cluster: ClusterServer, machine: ServedMachine, otto: NatsBus, tmp_path: Path
) -> None:
    async with machine.serving():
        for _ in range(2):
            await otto.order("p1", "build", 1, ["new", "docs"], b"the prompt")
        await otto.order("p1", "test", 1, ["new", "fail"])

        built, failed = await report(otto, "build"), await report(otto, "test")

        where = await asyncio.to_thread(viewers_kasmon, cluster, tmp_path)
        assert [("test", "failed", 1)] == await asyncio.to_thread(listed, where)
        assert [("build", "done", 0), ("test", "failed", 1)] == await asyncio.to_thread(listed, where, "--all")

    assert (OrderState.DONE, 0, b"the prompt") == (built.state, built.exit_code, built.stdout)
    assert (OrderState.FAILED, 1) == (failed.state, failed.exit_code)
    assert ["new docs", "new fail"] == sorted(machine.ran)


async def test_an_order_for_an_earlier_run_of_the_service_is_refused(machine: ServedMachine, otto: NatsBus) -> None:
    async with machine.serving():
        pass
    await otto.order("p1", "build", 1, ["new", "docs"])
    (waiting,) = await otto.orders()
    async with machine.serving():
        refused = await report(otto, "build")

    assert OrderState.WAITING is waiting.state
    assert OrderState.REFUSED is refused.state
    assert [] == machine.ran


async def test_an_order_for_an_earlier_attempt_is_refused(machine: ServedMachine, otto: NatsBus) -> None:
    async with machine.serving():
        await otto.order("p1", "build", 2, ["new", "second"])
        await report(otto, "build", 2)
        await otto.order("p1", "build", 1, ["new", "first"])
        refused = await report(otto, "build", 1)

    assert (OrderState.REFUSED, "attempt 2 at the task was ordered since") == (refused.state, refused.why)
    assert ["new second"] == machine.ran


async def test_an_order_in_progress_when_the_service_stopped_is_unsure_and_not_repeated(
    cluster: ClusterServer, machine: ServedMachine, otto: NatsBus
) -> None:
    async with machine.serving():
        await otto.order("p1", "build", 1, ["new", "wait"])
        await auntil(lambda: machine.ran)
    service = await cluster.connect_service()
    async with machine.serving():
        # as the server does once the machine was silent for long enough
        order = Order(cluster=CLUSTER, machine="m1", epoch=1, plan="p1", task="build", attempt=1, arguments=(), at=0)
        signed = sign_order(cluster.identity("otto", "operator").seed, msgspec.structs.replace(order, at=time.time()))
        await service.publish(subject(CLUSTER, "tasks", "m1", order.key), signed)
        unsure = await report(otto, "build")
    await service.aclose()

    assert OrderState.UNSURE is unsure.state
    assert "stopped while it was carried out" in unsure.why
    assert ["new wait"] == machine.ran


async def test_an_order_needs_an_operator_and_the_permission_of_the_owner(
    cluster: ClusterServer, machine: ServedMachine, otto: NatsBus
) -> None:
    async with contextlib.aclosing(await open_nats_bus(cluster.identity("vera", "viewer"), "m1")) as viewer:
        with pytest.raises(RefusedError, match="only operators"):
            await viewer.order("p1", "build", 1, ["new", "docs"])
    order = Order(
        cluster=CLUSTER,
        machine="m1",
        epoch=1,
        plan="p1",
        task="forged",
        attempt=1,
        arguments=("new", "forged"),
        at=time.time(),
    )
    vera = await connect(cluster.identity("vera", "viewer"))
    with pytest.raises(RefusedError, match="may not send"):
        await place_order(vera, order)
    await vera.aclose()
    service = await cluster.connect_service()
    allowed: tuple[Ability, ...] = ("see", "prompt")
    async with machine.serving(allowed):
        for sent in (
            b"x",
            sign_order(cluster.identity("vera", "viewer").seed, order),
            sign_order(cluster.identity("otto", "operator").seed, msgspec.structs.replace(order, machine="m2")),
            sign_order(cluster.identity("otto", "operator").seed, msgspec.structs.replace(order, at=time.time() + 999)),
        ):
            await service.publish(subject(CLUSTER, "tasks", "m1", order.key), sent)
        await otto.order("p1", "build", 1, ["new", "docs"])
        refused = await report(otto, "build")
    await service.aclose()

    assert OrderState.REFUSED is refused.state
    assert "does not let you start" in refused.why
    assert [] == machine.ran


BUILD = QueuedOrder(plan="p1", task="build", attempt=1)


async def test_an_order_that_waits_for_its_machine_is_carried_out_once_by_the_next_run_of_its_service(
    machine: ServedMachine, otto: NatsBus
) -> None:
    async with machine.serving():
        pass
    with pytest.raises(RemoteUnreachableError, match="an order waits for it"):
        await otto.run_order(BUILD, ["new", "docs"], b"the prompt")
    async with machine.serving():
        outputs = [await otto.run_order(BUILD, ["new", "docs"], b"the prompt") for _ in range(2)]
        failed = await otto.run_order(msgspec.structs.replace(BUILD, task="test"), ["new", "fail"])

    assert [(0, b"the prompt")] * 2 == [(each.exit_code, each.stdout) for each in outputs]
    assert 1 == failed.exit_code
    assert ["new docs", "new fail"] == machine.ran


async def test_an_order_after_the_server_was_restarted_does_not_wait_for_the_request_from_before(
    own_cluster: ClusterServer, own_machine: ServedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "PULL_S", 3600)
    otto = own_cluster.identity("otto", "operator")
    async with own_machine.serving():
        async with contextlib.aclosing(await open_nats_bus(otto, "m1")) as before:
            await before.run_order(BUILD, ["new", "docs"])
        await asyncio.to_thread(own_cluster.stop)
        await asyncio.to_thread(own_cluster.start)
        async with contextlib.aclosing(await open_nats_bus(otto, "m1")) as after, asyncio.timeout(60):
            await after.run_order(msgspec.structs.replace(BUILD, task="test"), ["new", "test"])

    assert ["new docs", "new test"] == own_machine.ran


async def test_an_order_that_was_withdrawn_while_it_waited_is_not_carried_out(
    machine: ServedMachine, otto: NatsBus
) -> None:
    async with machine.serving():
        for number in range(MOST_AT_ONCE):
            await otto.order("p1", f"t{number}", 1, ["new", "wait"])
        await auntil(lambda: len(machine.ran) == MOST_AT_ONCE)
        await otto.order("p1", "build", 1, ["new", "docs"])
        await otto.run_order(msgspec.structs.replace(BUILD, is_withdrawn=True), ["task", "end"])
        machine.waited.set()
        refused = await report(otto, "build")
        with pytest.raises(RefusedError, match="it was withdrawn"):
            await otto.run_order(BUILD, ["new", "docs"])

    assert (OrderState.REFUSED, "it was withdrawn") == (refused.state, refused.why)
    assert ["new wait"] * MOST_AT_ONCE + ["task end"] == machine.ran


async def test_an_order_that_its_machine_refuses_has_failed(
    cluster: ClusterServer, machine: ServedMachine, otto: NatsBus
) -> None:
    key = order_key("p1", "build", 1, 1)
    service = await cluster.connect_service()
    async with machine.serving():
        await service.publish(subject(CLUSTER, "tasks", "m1", key), b"x", headers={"Nats-Msg-Id": key})
        with pytest.raises(RefusedError, match="did not accept an order"):
            await otto.run_order(BUILD, ["new", "docs"])
    await service.aclose()

    assert [] == machine.ran
