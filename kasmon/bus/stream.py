"""A bus over one stream of bytes, such as the stdin and stdout of `ssh HOST kasmon bus --stdio`.

Both ends send frames (`kasmon.sandbox.guest.frames`) with records (`kasmon.sandbox.guest.mux`). A record of kind
`REQUEST` holds a request, one of kind `MESSAGE` a reply or an update, as MessagePack; the others belong to connections
to hosts, each with a window of its own, so that a slow reader of one holds up nothing else.
"""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from kasmon.asyncio_tasks import TaskSet, complete
from kasmon.bus import frame_gate
from kasmon.bus.abilities import ability_of_arguments, check
from kasmon.bus.base import Bus, BusWelcome, LogPart, LogPosition, Update, check_protocol, connect_by_join
from kasmon.errors import HostUnreachableError, KasmonError, RefusedError, RemoteUnreachableError
from kasmon.host.rpc.codec import failed, rebuilt
from kasmon.host.rpc.frames import FailureReply
from kasmon.model.commands import ABILITIES, Ability
from kasmon.model.permission import SessionId
from kasmon.sandbox.guest.frames import FrameReader
from kasmon.sandbox.guest.mux import (
    CLOSE,
    CONNECT,
    INSIDE,
    MESSAGE,
    OUTSIDE,
    REQUEST,
    ConnectionMux,
    connect_path,
    pack_record,
    parse_record,
)
from kasmon.supervisor.machines.link_client import (
    CommandOutput,
    CommandReply,
    FileReply,
    LinkReply,
    ReadFile,
    RunCommand,
)

UNREADABLE: Final = (ValueError, msgspec.MsgspecError)
"""What is raised for records that mean nothing; nothing after them can be trusted."""
UNREAD_BYTES: Final = 4 * 1024 * 1024
"""How many bytes of logs a machine sends at most before the reader has accepted them."""
QUEUED_BYTES: Final = 16 * 1024 * 1024
"""How many bytes of updates may wait for the reader here. A machine that sends more ignores the limit above."""
READ_BYTES: Final = 256 * 1024
CONNECT_S: Final = 10.0
CLOSE_S: Final = 2.0
"""How long the end of a stream may take: the other end may not read what was sent before, in seconds."""
SUBSCRIPTION: Final = 0
"""The number of the request for updates, which has none of its own."""


class Subscribe(msgspec.Struct, frozen=True, tag="subscribe", tag_field="t"):
    positions: dict[SessionId, LogPosition]


class Accept(msgspec.Struct, frozen=True, tag="accept", tag_field="t"):
    """The reader has processed so many further bytes of logs."""

    size: int


StreamRequest = Subscribe | Accept | RunCommand | ReadFile

_encode = msgspec.msgpack.Encoder().encode
_requests: msgspec.msgpack.Decoder[StreamRequest] = msgspec.msgpack.Decoder(StreamRequest)
_messages: msgspec.msgpack.Decoder[Update | LinkReply] = msgspec.msgpack.Decoder(Update | LinkReply)


class ServedBus(Bus, Protocol):
    """A bus that a machine serves to others: its hosts' sockets and its logs are on this machine."""

    def socket_path(self, session: SessionId) -> str: ...

    def read_log(self, session: SessionId, offset: int, size: int) -> LogPart: ...


class _End:
    """One end of the stream: what both have in common."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: int) -> None:
        self._reader, self._writer = reader, writer
        self._mux = ConnectionMux(self._emit, first, self._connect_host)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._mux.fileno(), self._mux.serve)
        self._tasks = TaskSet()

    def _connect_host(self, destination: str) -> socket.socket:
        raise OSError(1, "connections are opened from the other end only")

    def _emit(self, kind: int, channel: int, content: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(pack_record(kind, channel, content))

    def _send(self, kind: int, value: object) -> None:
        self._emit(kind, 0, _encode(value))

    async def _read(self, handle: Callable[[int, bytes], None]) -> None:
        """Read records until the stream ends; those of no connection go to *handle*. Raises `ValueError`."""
        frames = FrameReader()
        while data := await self._reader.read(READ_BYTES):
            for frame in frames.feed(data):
                kind, channel, content = parse_record(frame)
                if kind in (REQUEST, MESSAGE):
                    handle(kind, content)
                else:
                    self._handle_record(kind, channel, content)

    def _handle_record(self, kind: int, channel: int, content: bytes) -> None:
        self._mux.handle_record(kind, channel, content)

    async def _close(self) -> None:
        self._loop.remove_reader(self._mux.fileno())
        self._mux.close_all()
        self._writer.close()  # before anything is waited for, which may be cancelled
        await self._tasks.aclose()
        closing = asyncio.ensure_future(self._writer.wait_closed())
        await asyncio.wait([closing], timeout=CLOSE_S)
        if not closing.done():
            self._writer.transport.abort()
        await asyncio.gather(closing, return_exceptions=True)


class StreamServer(_End):
    """Serves *bus* to the other end of a stream, until that ends; only what *abilities* allow."""

    def __init__(
        self,
        bus: ServedBus,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        abilities: Collection[Ability] = ABILITIES,
    ) -> None:
        super().__init__(reader, writer, INSIDE)
        self._bus = bus
        self._abilities = tuple(each for each in ABILITIES if each in abilities)
        self._unread = 0
        self._accepted = asyncio.Event()
        self._is_subscribed = False
        self._paths: dict[bytes, str] = {}
        """The sockets that connections are being opened to."""

    async def serve(self) -> None:
        """Serve until the other end has closed the stream, or sent what is no request."""
        try:
            await self._read(self._handle)
        except (*UNREADABLE, OSError):
            return
        finally:
            await self._bus.aclose()
            await self._close()

    def _handle_record(self, kind: int, channel: int, content: bytes) -> None:
        if kind == CONNECT:
            self._tasks.start(self._connect(channel, content))
        else:
            super()._handle_record(kind, channel, content)

    async def _connect(self, channel: int, content: bytes) -> None:
        """Find the socket of the host first: nothing else of this connection comes before it is open."""
        try:
            session = SessionId(content.decode("ascii", "replace"))
            self._paths[content] = await asyncio.to_thread(self._bus.socket_path, session)
        except KasmonError as error:
            self._emit(CLOSE, channel, error.message.encode())
        else:
            super()._handle_record(CONNECT, channel, content)
            self._paths.pop(content, None)

    def _connect_host(self, destination: str) -> socket.socket:
        path = self._paths[destination.encode()]
        host = connect_path(destination, destination, path)
        if self._abilities == ABILITIES:
            return host
        ours, theirs = socket.socketpair()
        self._tasks.start(frame_gate.serve(theirs, host, self._abilities))
        return ours

    def _handle(self, kind: int, content: bytes) -> None:
        request = _requests.decode(content)
        if isinstance(request, Accept):
            self._unread -= request.size
            self._accepted.set()
        elif isinstance(request, Subscribe):
            if not self._is_subscribed:
                self._is_subscribed = True
                self._tasks.start(self._publish(request))
        else:
            self._tasks.start(self._answer(request))

    async def _publish(self, request: Subscribe) -> None:
        try:
            check("see", self._abilities)
        except RefusedError as error:
            self._send(MESSAGE, failed(SUBSCRIPTION, error))
            return
        async with contextlib.aclosing(self._bus.updates(request.positions)) as updates:
            async for update in updates:
                if isinstance(update, BusWelcome):
                    update = msgspec.structs.replace(update, abilities=self._abilities)
                self._send(MESSAGE, update)
                if isinstance(update, LogPart):
                    self._unread += len(update.content)
                while self._unread > UNREAD_BYTES:
                    self._accepted.clear()
                    await self._accepted.wait()
                await self._writer.drain()

    async def _answer(self, request: RunCommand | ReadFile) -> None:
        reply: LinkReply
        try:
            if isinstance(request, RunCommand):
                check(ability_of_arguments(request.arguments), self._abilities)
                reply = CommandReply(request.n, await self._bus.run(request.arguments, request.stdin))
            else:
                check("see", self._abilities)
                reply = FileReply(request.n, await self._bus.read_file(request.session, request.name, request.offset))
        except (KasmonError, OSError) as error:
            reply = failed(request.n, error)
        self._send(MESSAGE, reply)
        await self._writer.drain()


class StreamBus(_End):
    """The bus at the other end of a stream; *machine* names it in errors, and *end* ends what carries the stream."""

    def __init__(
        self,
        machine: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        end: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(reader, writer, OUTSIDE)
        self._end = end
        self._machine = machine
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[LinkReply]] = {}
        self._updates: asyncio.Queue[tuple[Update, int] | FailureReply | None] = asyncio.Queue()
        """The updates that the reader has not taken yet, each with its size in bytes."""
        self._queued = 0
        self._why = ""
        """Why the stream has ended; empty before that."""
        self._tasks.start(self._receive())

    async def updates(self, positions: Mapping[SessionId, LogPosition]) -> AsyncGenerator[Update, None]:
        self._send(REQUEST, Subscribe(dict(positions)))
        while (queued := await self._updates.get()) is not None:
            if isinstance(queued, FailureReply):
                raise rebuilt(queued)
            update, size = queued
            self._queued -= size
            if isinstance(update, BusWelcome):
                check_protocol(update, self._machine)
            yield update
            if isinstance(update, LogPart):
                self._send(REQUEST, Accept(len(update.content)))
        raise self._unreachable()

    async def connect(self, session: SessionId) -> socket.socket:
        return await connect_by_join(self, session)

    async def join(self, session: SessionId, client: socket.socket) -> None:
        if self._why:
            raise self._unreachable()
        result: asyncio.Future[str] = self._loop.create_future()
        stream = client.dup()
        self._mux.connect(stream, session, lambda why: None if result.done() else result.set_result(why))
        try:
            async with asyncio.timeout(CONNECT_S):
                refusal = await result
        except TimeoutError as error:
            self._mux.disconnect(stream, "it is not needed any more")
            raise RemoteUnreachableError(
                self._machine, f"it did not answer within {CONNECT_S:g} s", is_registered=True
            ) from error
        except BaseException:
            self._mux.disconnect(stream, "it is not needed any more")
            raise
        if refusal and self._why:
            raise self._unreachable()
        if refusal:
            raise HostUnreachableError(session, refusal)

    async def run(self, arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
        reply = await self._request(lambda n: RunCommand(n, tuple(arguments), stdin))
        assert isinstance(reply, CommandReply)
        return reply.output

    async def read_file(self, session: SessionId, name: str, offset: int = 0) -> bytes:
        reply = await self._request(lambda n: ReadFile(n, session, name, offset))
        assert isinstance(reply, FileReply)
        return reply.content

    async def aclose(self) -> None:
        self._why = self._why or "the connection was closed here"
        await complete(self._close())

    async def _close(self) -> None:
        await super()._close()
        await self._end()

    async def _request(self, build: Callable[[int], StreamRequest]) -> LinkReply:
        if self._why:
            raise self._unreachable()
        n = next(self._numbers)
        self._replies[n] = self._loop.create_future()
        try:
            self._send(REQUEST, build(n))
            reply = await self._replies[n]
        finally:
            del self._replies[n]
        if isinstance(reply, FailureReply):
            raise rebuilt(reply)
        return reply

    async def _receive(self) -> None:
        try:
            await self._read(self._handle)
            self._why = self._why or "the connection ended"
        except UNREADABLE as error:
            self._why = f"it sent what kasmon does not understand: {error}"
        except OSError as error:
            self._why = error.strerror or str(error)
        finally:
            self._why = self._why or "the connection was closed here"
            self._updates.put_nowait(None)
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(self._unreachable("; it is unknown whether this was done"))
            self._mux.close_all()
            self._writer.close()  # nothing more is read: the other end must not wait for that

    def _handle(self, kind: int, content: bytes) -> None:
        message = _messages.decode(content)
        if not isinstance(message, LinkReply):
            self._queued += len(content)
            if self._queued > QUEUED_BYTES:
                raise ValueError("more updates than it may send at once")
            self._updates.put_nowait((message, len(content)))
        elif isinstance(message, FailureReply) and message.n == SUBSCRIPTION:
            self._updates.put_nowait(message)
        elif (reply := self._replies.get(message.n)) is not None and not reply.done():
            reply.set_result(message)

    def _unreachable(self, more: str = "") -> RemoteUnreachableError:
        why = f"{self._why or 'the connection ended'}{more}"
        return RemoteUnreachableError(self._machine, why, is_registered=True)
