"""A machine's work queue, for operators: places orders in it, and reads what became of them.

An order stays in the queue while the machine or the server is away (`kasmon.bus.nats.jetstream.orders`).
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from nats.aio.msg import Msg

from kasmon.asyncio_tasks import wait_within
from kasmon.bus.nats.connection import FAILURES, Connection
from kasmon.bus.nats.jetstream.machine_records import (
    FACTS_KEY,
    LEASE_KEY,
    MachineFacts,
    MachineLease,
    OrderReport,
    OrderState,
)
from kasmon.bus.nats.jetstream.publisher import parse_acknowledgement
from kasmon.bus.nats.jetstream.snapshot import MachineSnapshotReader
from kasmon.bus.nats.jetstream.stored_messages import read_last, read_newest, read_stream
from kasmon.bus.nats.signatures import Order, order_key, read_order, sign_order
from kasmon.bus.nats.subjects import stream, subject
from kasmon.errors import KasmonError, RefusedError, RemoteUnreachableError
from kasmon.supervisor.machines.link_client import QueuedOrder

MOST_RUNS: Final = 5
"""How many runs of the machine's service an order is placed for, before it counts as failed."""
LOOK_S: Final = 1.0
"""How often the machine's directory is read while an order waits; a report is read at once."""
WITHDRAWN: Final = ".withdrawn"


class _QueueState(NamedTuple):
    """What the server knows about one order."""

    epoch: int
    """That of the machine's service now."""
    is_connected: bool
    is_queued: bool
    report: OrderReport | None


async def place_order(connection: Connection, order: Order) -> None:
    """Put *order* into its machine's queue; one that is there already is not doubled, a withdrawal replaces it.

    Raises:
        RefusedError: if this member may not.
        UnavailableError: if the server does not store it. Whether it did is unknown if the connection was lost: place
            it again.
    """
    to = subject(order.cluster, "tasks", order.machine, order.key)
    signed = sign_order(connection.identity.seed, order)
    id_ = order.key if order.arguments else order.key + WITHDRAWN
    answer = await connection.request(to, signed, headers={"Nats-Msg-Id": id_})
    if isinstance(result := parse_acknowledgement(answer, connection.identity), KasmonError):
        raise result


class OrderQueue:
    """The work queue of *machine*; *reader* verifies what the machine published."""

    def __init__(self, connection: Connection, reader: MachineSnapshotReader, machine: str) -> None:
        self._connection, self._reader, self._machine = connection, reader, machine
        self._cluster = connection.identity.cluster

    async def place(self, named: QueuedOrder, arguments: Sequence[str], stdin: bytes = b"") -> Order:
        """Place an order for the run of the machine's service that published last, unless it is reported already.

        Raises:
            KasmonError: as `place_order`.
        """
        epoch = (await self._read("")).epoch
        order = Order(
            cluster=self._cluster,
            machine=self._machine,
            epoch=epoch,
            plan=named.plan,
            task=named.task,
            attempt=named.attempt,
            arguments=tuple(arguments),
            stdin=stdin,
            at=time.time(),
        )
        if (await self._read(order.key)).report is None:
            await place_order(self._connection, order)
        return order

    async def carry_out(self, named: QueuedOrder, arguments: Sequence[str], stdin: bytes) -> OrderReport:
        """Place an order, and return its report once it was carried out.

        The command must have the same effect when it is repeated: if the machine's service is restarted before it
        reported, the order is placed again, for the next run.

        Raises:
            RefusedError: if it is not carried out.
            RemoteUnreachableError: if the machine is not connected. The order waits; calling this again waits for it.
            KasmonError: as `place_order`.
        """
        for _ in range(MOST_RUNS):
            report = await self._wait(await self.place(named, arguments, stdin))
            if report is not None:
                return report
        raise RefusedError(
            f"{self._machine} did not carry out an order: its service was restarted {MOST_RUNS} times meanwhile.",
            hint=f"`kasmon machines orders {self._machine}` lists what became of it.",
        )

    async def read_all(self) -> list[OrderReport]:
        """Return what became of the orders in the last week, and those that wait."""
        snapshot = await self._reader.read()
        reports = {order_key(each.plan, each.task, each.attempt, each.epoch): each for each in snapshot.reports}
        async for message in read_stream(self._connection, stream("tasks", self._machine)):
            order = read_order(message.content)
            if order is None or order.key in reports:
                continue
            # the machine refuses it, if the server delivers it at all
            state = OrderState.WAITING if order.epoch == snapshot.epoch else OrderState.REFUSED
            why = "" if order.epoch == snapshot.epoch else "the machine's service was restarted since it was placed"
            reports[order.key] = OrderReport(
                order.plan, order.task, order.attempt, state, order.epoch, order.at, why=why
            )
        return list(reports.values())

    async def _wait(self, order: Order) -> OrderReport | None:
        """Return what became of *order*; None if another run of the machine's service began before it was carried out.

        Raises:
            RefusedError: if it was refused, or is gone without a report.
            RemoteUnreachableError: if the machine is not connected.
        """
        news = asyncio.Event()

        async def note(_: Msg) -> None:
            news.set()

        subscription = await self._connection.subscribe(self._subject_of(order.key), note)
        was_gone = False
        try:
            while True:
                news.clear()
                state = await self._read(order.key)
                report, is_earlier = state.report, state.epoch > order.epoch
                if report is not None and report.state in (OrderState.DONE, OrderState.FAILED):
                    return report
                if is_earlier or (report is not None and report.state is OrderState.UNSURE):
                    return None
                if report is not None and report.state is OrderState.REFUSED:
                    raise RefusedError(f"{self._machine} did not carry out an order: {report.why}.")
                if not state.is_connected:
                    why = "it is not connected to the cluster; an order waits for it"
                    raise RemoteUnreachableError(self._machine, why, is_registered=True)
                is_gone = report is None and not state.is_queued
                if is_gone and was_gone:  # twice, as servers of a cluster store a message one after the other
                    raise RefusedError(
                        f"{self._machine} did not accept an order, or could not carry it out, and did not say why.",
                        hint="Compare the clocks of both machines. The log of `kasmon bus` there has the reason.",
                    )
                was_gone = is_gone
                await wait_within(LOOK_S, news)
        finally:
            with contextlib.suppress(*FAILURES):  # the connection is lost: so is the subscription
                await subscription.unsubscribe()

    async def _read(self, key: str) -> _QueueState:
        """Return the machine's state, and with *key* that of an order. The queue is read first: reports come later."""
        queued = None
        if key:
            waiting = subject(self._cluster, "tasks", self._machine, key)
            queued = await read_newest(self._connection, stream("tasks", self._machine), waiting)
        subjects = [self._subject_of(each) for each in (FACTS_KEY, LEASE_KEY, key) if each]
        state = _QueueState(0, False, queued is not None, None)
        for message in await read_last(self._connection, stream("dir", self._machine), subjects):
            if message.is_marker or (record := self._reader.verify(message.subject, message.content)) is None:
                continue
            match record.value:
                case MachineFacts():
                    state = state._replace(epoch=record.epoch)
                case MachineLease(has_ended):
                    state = state._replace(is_connected=not has_ended)
                case OrderReport() as report:
                    state = state._replace(report=report)
        return state

    def _subject_of(self, key: str) -> str:
        return subject(self._cluster, "dir", self._machine, key)
