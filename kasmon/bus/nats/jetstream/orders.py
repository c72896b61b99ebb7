"""Carries out the orders in a machine's work queue: each at most once. `order_queue` places them.

An order is a command of kasmon that an operator signed, for one run of the machine's service (its epoch) and one
attempt at a task. The server delivers it until the machine has acknowledged it, at most `MOST_DELIVERIES` times. The
machine records in its directory that it begins, and what became of it; so an order that is delivered again is not
carried out again, and what was under way when the machine stopped is reported as unsure.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Collection
from typing import Final

import msgspec
from nats.aio.msg import Msg

from kasmon.asyncio_tasks import TaskSet, end_tasks
from kasmon.bus.abilities import ability_of_arguments, check
from kasmon.bus.nats.connection import FAILURES, Connection, explain
from kasmon.bus.nats.jetstream.machine_records import OrderReport, OrderState
from kasmon.bus.nats.jetstream.outbox import Outbox
from kasmon.bus.nats.server_config import ACK_WAIT_S, MOST_DELIVERIES, WORKER
from kasmon.bus.nats.signatures import CommandRefusedError, CommandVerifier, Order
from kasmon.bus.nats.subjects import stream
from kasmon.bus.stream import ServedBus
from kasmon.errors import KasmonError, RefusedError
from kasmon.model.commands import Ability

log = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 8
"""How many orders a machine carries out at once; the others wait."""
PULL_S: Final = 30
PAUSE_S: Final = 1.0
OUTPUT_BYTES: Final = 16 * 1024
"""How much of a command's output is reported: its end."""
DONE, IN_PROGRESS, TERMINATED = b"+ACK", b"+WPI", b"+TERM"


class OrderWorker:
    """Carries out the orders of one machine. *bus* runs their commands, if *abilities* allow it."""

    def __init__(
        self,
        connection: Connection,
        outbox: Outbox,
        verifier: CommandVerifier,
        bus: ServedBus,
        abilities: Collection[Ability],
    ) -> None:
        self._connection, self._outbox, self._verifier = connection, outbox, verifier
        self._bus, self._abilities = bus, abilities
        self._queue = stream("tasks", connection.identity.name)
        self._running: set[str] = set()
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        """Orders, and None where the server has forgotten that this worker asked for one."""
        self._tasks = TaskSet()
        self._free = asyncio.Semaphore(MOST_AT_ONCE)

    async def run(self) -> None:
        """Carry out orders until cancelled; what is under way then is reported as unsure after the next start."""
        inbox = self._connection.client.new_inbox()
        await self._connection.subscribe(inbox, self._arrived.put)
        query = json.dumps({"batch": 1, "expires": PULL_S * 10**9}).encode()
        try:
            while True:
                await self._free.acquire()
                message = None
                try:
                    await self._connection.client.publish(
                        f"$JS.API.CONSUMER.MSG.NEXT.{self._queue}.{WORKER}", query, reply=inbox
                    )
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(PULL_S + PAUSE_S):
                            message = await self._arrived.get()
                except FAILURES as error:
                    log.info("%s", explain(error, self._connection.identity))
                    await asyncio.sleep(PAUSE_S)
                if message is None or (message.headers or {}).get("Status"):
                    self._free.release()
                    if message is not None and message.headers and message.headers["Status"] != "408":
                        await asyncio.sleep(PAUSE_S)  # not 408, the end of a request: the server has no queue now
                else:
                    self._tasks.start(self._handle(message))
        finally:
            await self._tasks.aclose()

    def interrupt(self) -> None:
        """Ask for the next order again: the connection was lost, and the request with it."""
        self._arrived.put_nowait(None)

    async def _handle(self, message: Msg) -> None:
        try:
            await self._process(message)
        except (KasmonError, *FAILURES) as error:  # it is delivered again
            log.warning("an order is not carried out now: %s", explain(error, self._connection.identity))
        finally:
            self._free.release()

    async def _process(self, message: Msg) -> None:
        try:
            order = self._verifier.verify_order(message.data, time.time())
        except CommandRefusedError as error:
            log.warning("%s", error)
            if not error.is_temporary or message.metadata.num_delivered >= MOST_DELIVERIES:
                await self._end(message, TERMINATED)
            return  # else it is delivered again
        if order.key in self._running:
            return  # it is delivered again while it is carried out, which renews it
        self._running.add(order.key)
        renewing = asyncio.create_task(self._renew(message))
        try:
            acknowledgement = await self._carry_out(order)
        finally:
            await end_tasks([renewing])
            self._running.discard(order.key)
        await self._end(message, acknowledgement)

    async def _renew(self, message: Msg) -> None:
        """Keep the server from delivering the order again."""
        while True:
            with contextlib.suppress(*FAILURES):
                await self._connection.client.publish(message.reply, IN_PROGRESS)
            await asyncio.sleep(ACK_WAIT_S / 3)

    async def _carry_out(self, order: Order) -> bytes:
        """Carry out *order*, unless that was done or must not be; return how it is acknowledged."""
        known = self._outbox.reports().get(order.key)
        if known is not None and known.state is not OrderState.RUNNING:
            return TERMINATED
        if known is not None:
            why = "the machine's service stopped while it was carried out: look at what it did"
            await self._record(msgspec.structs.replace(known, state=OrderState.UNSURE, why=why))
            return TERMINATED
        if why := self._refusal(order):
            await self._record(self._report(order, OrderState.REFUSED, why))
            return TERMINATED
        await self._record(self._report(order, OrderState.RUNNING))
        await self._record(await self._execute(order))
        return DONE

    def _refusal(self, order: Order) -> str:
        """Return why *order* must not be carried out; empty if it may."""
        if order.epoch != self._outbox.epoch:
            return f"it is for run {order.epoch} of the machine's service, and this is run {self._outbox.epoch}"
        if not order.arguments:
            return "it was withdrawn"
        reports = self._outbox.reports().values()
        later = [each.attempt for each in reports if (each.plan, each.task) == (order.plan, order.task)]
        if max(later, default=0) > order.attempt:
            return f"attempt {max(later)} at the task was ordered since"
        try:
            check(ability_of_arguments(order.arguments), self._abilities)
        except RefusedError as error:
            return error.message
        return ""

    async def _execute(self, order: Order) -> OrderReport:
        try:
            output = await self._bus.run(order.arguments, order.stdin)
        except (KasmonError, OSError) as error:
            return self._report(order, OrderState.FAILED, f"it could not be started: {error}")
        state = OrderState.FAILED if output.exit_code else OrderState.DONE
        report = self._report(order, state)
        return msgspec.structs.replace(
            report,
            exit_code=output.exit_code,
            stdout=output.stdout[-OUTPUT_BYTES:],
            stderr=output.stderr[-OUTPUT_BYTES:],
        )

    async def _record(self, report: OrderReport) -> None:
        """Store what became of an order, however long that takes: the server must not deliver it as unsure."""
        while True:
            try:
                await self._outbox.report(report)
            except (KasmonError, *FAILURES) as error:
                log.warning("what became of an order is not reported yet: %s", error)
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def _end(self, message: Msg, acknowledgement: bytes) -> None:
        """Take the order out of the queue, and return when the server has done so."""
        await self._connection.request(message.reply, acknowledgement)

    def _report(self, order: Order, state: OrderState, why: str = "") -> OrderReport:
        return OrderReport(order.plan, order.task, order.attempt, state, order.epoch, time.time(), why=why)
