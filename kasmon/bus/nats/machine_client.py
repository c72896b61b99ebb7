"""Commands to a machine over NATS, for an operator of its cluster: a `StreamBus` in signed commands."""

import asyncio
import contextlib
import os
import time
from typing import Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from kasmon.asyncio_tasks import TaskSet
from kasmon.bus.base import LOST_S
from kasmon.bus.nats.connection import FAILURES, Connection, connect, explain
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.machine import REFUSAL, MachineHello
from kasmon.bus.nats.signatures import RemoteCommand, make_nonce, sign_command
from kasmon.bus.nats.subjects import check_name, subject
from kasmon.bus.nats.tunnel import TunnelEnd
from kasmon.bus.stream import StreamBus
from kasmon.errors import KasmonError, RemoteUnreachableError, TimedOutError, UnavailableError

ALIVE_S: Final = 5.0
"""How often a message shows that this end is there; the machine gets a new reply subject with it, and answers it."""


async def open_command_bus(identity: Identity, machine: str) -> StreamBus:
    """Connect to *machine* as *identity*.

    Raises:
        RemoteUnreachableError: if the cluster or the machine cannot be reached, or refuses it.
        UsageError: if *machine* is no valid name.
    """
    client = _MachineClient(identity, check_name(machine, "a machine"))
    try:
        return await client.open()
    except KasmonError as error:
        await client.aclose()
        raise RemoteUnreachableError(
            machine, error.message.rstrip("."), hint=error.hint or "`kasmon cluster status`"
        ) from error
    except BaseException:
        await client.aclose()
        raise


class _MachineClient:
    def __init__(self, identity: Identity, machine: str) -> None:
        self._identity, self._machine = identity, machine
        self._name = os.urandom(12).hex()
        self._subject = subject(identity.cluster, "cmd", machine, self._name)
        self._tasks = TaskSet()
        self._connection: Connection | None = None
        self._end = TunnelEnd(self._send, lambda: None)
        self._epoch = self._inbox = ""
        self._received_at = time.monotonic()

    async def open(self) -> StreamBus:
        connection = self._connection = await connect(self._identity, lost=self._lose, now=time.time)
        hello = subject(self._identity.cluster, "cmd", self._machine, "hello")
        try:
            greeting = await connection.request(hello, b"")
        except TimedOutError as error:  # the cluster answered just now
            raise UnavailableError(
                "it is connected to the cluster, but did not answer in time.",
                hint="Is it overloaded, or its `kasmon bus` stopped?",
            ) from error
        self._epoch = msgspec.json.decode(greeting.data, type=MachineHello).epoch
        self._inbox = connection.client.new_inbox()
        reader, writer = self._end.open()
        try:
            await connection.subscribe(self._inbox, self._handle)
            await connection.flush()
            if not self._end.is_open:  # the server ended it meanwhile
                raise nats.errors.ConnectionClosedError
        except FAILURES as error:
            writer.close()
            raise explain(error, self._identity) from error
        except BaseException:
            writer.close()
            raise
        self._tasks.start(self._watch())
        return StreamBus(self._machine, reader, writer, self.aclose)

    async def aclose(self) -> None:
        self._end.abort()
        await self._tasks.aclose()
        if self._connection is not None:
            await self._connection.aclose()

    async def _lose(self) -> None:
        self._end.abort()

    async def _handle(self, message: Msg) -> None:
        self._received_at = time.monotonic()
        if REFUSAL in (message.headers or {}):
            self._end.abort()
            return
        await self._end.receive(message.data)

    async def _watch(self) -> None:
        while self._end.is_open and time.monotonic() - self._received_at < LOST_S:
            with contextlib.suppress(OSError):
                await self._end.send_empty()
            await asyncio.sleep(ALIVE_S)
        self._end.abort()

    async def _send(self, content: bytes) -> None:
        assert self._connection is not None
        command = RemoteCommand(
            cluster=self._identity.cluster,
            machine=self._machine,
            epoch=self._epoch,
            verb="stream",
            stream=self._name,
            body=content,
            nonce=make_nonce(),
            at=time.time(),
        )
        try:
            signed = sign_command(self._identity.seed, command)
            await self._connection.client.publish(self._subject, signed, reply=self._inbox)
        except nats.errors.Error as error:
            raise OSError(str(error)) from error
