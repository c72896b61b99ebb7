"""A machine's end of the bus over NATS: publishes its sessions, and executes the signed commands of operators."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from kasmon import __version__
from kasmon.asyncio_tasks import TaskSet, end_tasks
from kasmon.bus.nats.cluster import Member
from kasmon.bus.nats.connection import Connection, connect
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.jetstream.orders import OrderWorker
from kasmon.bus.nats.jetstream.outbox import Outbox, PositionFile
from kasmon.bus.nats.jetstream.publisher import OutdatedKeyError
from kasmon.bus.nats.signatures import CommandRefusedError, CommandVerifier
from kasmon.bus.nats.subjects import roster_subject, subject
from kasmon.bus.nats.tunnel import NUMBER, TunnelEnd
from kasmon.bus.stream import ServedBus, StreamServer
from kasmon.errors import KasmonError, TimedOutError, UnavailableError
from kasmon.model.commands import ABILITIES, Ability

RETRY_S: Final = 3.0
STREAMS: Final = 64
"""How many streams may be open at once."""
SILENT_S: Final = 30.0
"""A stream whose operator gave no sign of life for this time is ended when another one is opened, in seconds."""
REFUSAL: Final = "Kasmon-Refusal"
"""The header of a reply that says why a command was refused."""

log = logging.getLogger(__name__)


class MachineHello(msgspec.Struct, frozen=True):
    """What a machine answers to `hello`, which needs no signature."""

    epoch: str
    kasmon: str


async def serve_until_refused(
    open_server: Callable[[], "MachineServer"], started: Callable[[], None], *, waits: bool
) -> KasmonError:
    """Serve until the cluster admits this machine no longer, and return why.

    Args:
        open_server: returns a server that has not started.
        started: called when it serves.
        waits: whether to wait for a cluster that cannot be reached.

    Raises:
        UnavailableError: if it cannot be reached.
    """
    problem = ""
    while True:
        server = open_server()
        try:
            await server.start()
            started()
            return await server.wait_until_refused()
        except (UnavailableError, TimedOutError) as error:
            if not waits:
                raise
            if error.message != problem:
                problem = error.message
                log.warning("%s", error)
        finally:
            await server.aclose()
        await asyncio.sleep(RETRY_S)


class _OpenStream:
    def __init__(self, member: Member, end: TunnelEnd, reply: str, received_at: float) -> None:
        self.member, self.end, self.reply = member, end, reply
        self.received_at = received_at
        """When its operator sent something last, by the monotonic clock."""


class MachineServer:
    """Serves the bus of this machine to the operators of its cluster, as far as *abilities* allow."""

    def __init__(
        self,
        identity: Identity,
        open_bus: Callable[[], ServedBus],
        abilities: Collection[Ability] = ABILITIES,
        file: PositionFile | None = None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """*file*: where is kept how far the logs are published.

        *monotonic*: the time in seconds that silence is measured by: a clock that is set ends no stream.
        """
        self._now, self._monotonic = now, monotonic
        self._identity, self._open_bus, self._abilities = identity, open_bus, abilities
        self.outbox = Outbox(identity, open_bus, abilities, file, now)
        self._publishing: asyncio.Future[None] | None = None
        self._worker: OrderWorker | None = None
        self._worker_bus: ServedBus | None = None
        self._streams: dict[tuple[str, str], _OpenStream] = {}
        self._tasks = TaskSet()
        self._connection: Connection | None = None

    async def start(self) -> None:
        """Connect, and serve until `aclose`.

        Raises:
            UnavailableError, RefusedError: if the machine cannot connect.
        """
        connection = await connect(self._identity, rewatch=self._rewatch, lost=self._end_streams, now=self._now)
        self._connection = connection
        try:
            await self.outbox.begin(connection)
        except (UnavailableError, TimedOutError, OutdatedKeyError) as error:  # it is tried again
            log.warning("nothing is published: %s", error)
        self._epoch = f"{self.outbox.epoch}-{os.urandom(16).hex()}"
        self._verifier = CommandVerifier(
            self._identity.cluster, self._identity.team, self._identity.cluster_key, self._identity.name, self._epoch
        )
        self._verifier.update_roster(connection.roster_message)
        await connection.subscribe(roster_subject(self._identity.cluster), self._handle_roster)
        await connection.subscribe(subject(self._identity.cluster, "cmd", self._identity.name) + ".>", self._handle)
        await connection.flush()
        self._publishing = asyncio.ensure_future(self.outbox.run())
        self._worker_bus = self._open_bus()
        self._worker = OrderWorker(connection, self.outbox, self._verifier, self._worker_bus, self._abilities)
        self._tasks.start(self._worker.run())

    async def wait_until_refused(self) -> KasmonError:
        """Return why the cluster admits this machine no longer, or another process serves it, once that is so."""
        assert self._connection is not None
        assert self._publishing is not None
        waited: list[asyncio.Future[Any]] = [self._connection.refusal, self._publishing]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if self._connection.refusal.done():
            return self._connection.refusal.result()
        error = self._publishing.exception()
        if not isinstance(error, KasmonError):
            raise error or RuntimeError("the outbox ended")
        return error

    async def aclose(self) -> None:
        """End all streams and the connection; idempotent."""
        if self._publishing is not None:
            await end_tasks([self._publishing])
            self._publishing = None
            await self.outbox.end()
        await self._end_streams()
        await self._tasks.aclose()
        if self._worker_bus is not None:
            await self._worker_bus.aclose()
        if self._connection is not None:
            await self._connection.aclose()

    async def _handle_roster(self, message: Msg) -> None:
        """Use the new list of members; the streams of a removed operator end."""
        try:
            roster = self._verifier.update_roster(message.data)
        except CommandRefusedError as error:
            log.warning("%s", error)
            return
        operators = {member.public_key for member in roster.members if member.role == "operator"}
        for stream in [each for each in self._streams.values() if each.member.public_key not in operators]:
            stream.end.abort()

    async def _rewatch(self) -> None:
        self.outbox.interrupt()
        if self._worker is not None:
            self._worker.interrupt()
        assert self._connection is not None
        try:
            await self._connection.read_roster()
            self._verifier.update_roster(self._connection.roster_message)
        except KasmonError as error:
            log.warning("%s", error)

    async def _end_streams(self) -> None:
        for stream in list(self._streams.values()):
            stream.end.abort()

    async def _handle(self, message: Msg) -> None:
        name = message.subject.rpartition(".")[2]
        if name == "hello":
            await self._reply(message.reply, msgspec.json.encode(MachineHello(self._epoch, __version__)))
            return
        try:
            member, command = self._verifier.verify(message.data, self._now())
            if command.verb != "stream" or command.stream != name:
                raise CommandRefusedError(f"it has the verb {command.verb!r} for {command.stream!r}")
        except CommandRefusedError as error:
            await self._reply(message.reply, b"", refusal=error.why)
            return
        stream = self._streams.get((member.public_key, name))
        if stream is None:
            stream = await self._open(member, name, message.reply)
        if stream is not None:
            stream.reply, stream.received_at = message.reply or stream.reply, self._monotonic()
            await stream.end.receive(command.body)
            if len(command.body) == NUMBER.size and stream.end.is_open:  # a sign of life, which needs another
                await stream.end.send_empty()

    async def _open(self, member: Member, name: str, reply: str) -> _OpenStream | None:
        now = self._monotonic()
        for each in [each for each in self._streams.values() if now - each.received_at > SILENT_S]:
            each.end.abort()  # its operator was killed, or cut off
        if len(self._streams) >= STREAMS:
            await self._reply(reply, b"", refusal=f"{STREAMS} streams are open already")
            return None

        async def send(content: bytes) -> None:
            await self._reply(stream.reply, content)

        end = TunnelEnd(send, lambda: self._streams.pop((member.public_key, name), None))
        stream = self._streams[member.public_key, name] = _OpenStream(member, end, reply, now)
        reader, writer = end.open()
        self._tasks.start(StreamServer(self._open_bus(), reader, writer, self._abilities).serve())
        return stream

    async def _reply(self, reply: str, content: bytes, refusal: str = "") -> None:
        assert self._connection is not None
        if not reply:
            return
        headers = {REFUSAL: refusal.encode("ascii", "replace").decode()} if refusal else None
        try:
            await self._connection.client.publish(reply, content, headers=headers)
        except nats.errors.Error as error:
            raise OSError(str(error)) from error
