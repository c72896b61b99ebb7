"""A host's socket and clients: accepts only its own user, answers each numbered frame, waits for no slow reader."""

import asyncio
import contextlib
import functools
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Hashable
from pathlib import Path
from typing import TypeAlias

import msgspec

from kasmon import __version__, system
from kasmon.asyncio_tasks import complete
from kasmon.errors import KasmonError, RefusedError, UsageError
from kasmon.host.rpc import control
from kasmon.host.rpc.codec import Unpacker, WireError, decode_client_frame, failed, pack
from kasmon.host.rpc.control import ControlKind, HostStatus
from kasmon.host.rpc.frames import VERSION, Frame, FromClient, Hello, NumberedFrame, Welcome
from kasmon.host.rpc.peer import is_ours
from kasmon.system.base import PeerProcess

SEND_BUFFER_BYTES = 64 * 1024
"""How much the system buffers for a slow reader; later frames wait here and can still be replaced."""

FrameSource: TypeAlias = Frame | Callable[[], Frame | None]


class ClientConnection(asyncio.Protocol):
    def __init__(self, owner: "HostServer") -> None:
        self.as_agent = False
        """Whether the client declared itself an agent."""
        self.greeted = False
        self.closed = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._peer = PeerProcess(-1, 0)
        self._transport: asyncio.Transport | None = None
        self._unpacker = Unpacker()
        self._first: bytes | None = b""
        """The bytes so far, until it is known whether a control frame comes; None once it is another one."""
        self._paused = False
        self._waiting: dict[Hashable, FrameSource] = {}

    @property
    def peer_pid(self) -> int:
        """The process that connected; 0 if the system does not report it."""
        return self._peer.pid

    @property
    def is_open(self) -> bool:
        """Whether pushed frames can still reach the client."""
        return self._transport is not None and not self._transport.is_closing()

    def push(self, frame: FrameSource, key: Hashable | None = None) -> None:
        """Send *frame*, or the result of calling it at the moment of sending.

        A slow client gets only the newest of all pushes with the same *key*; without a key, each.
        """
        if self._transport is None or not self.is_open:
            return
        if self._paused:
            key = object() if key is None else key
            self._waiting.pop(key, None)
            self._waiting[key] = frame
            return
        built = frame() if callable(frame) else frame
        if built is None:
            return
        try:
            self._transport.write(pack(built))
        except UsageError as error:
            log.warning("%s", error)
            if isinstance(built, NumberedFrame):
                self._transport.write(pack(failed(built.n, RefusedError(error.message))))

    def send_control(self, frame: bytes) -> None:
        """Send a control frame, then close the connection."""
        if self._transport is not None and self.is_open:
            self._transport.write(frame)
            self._transport.close()

    def close(self) -> None:
        """Send what is waiting, then close the connection."""
        if self._transport is None:
            return
        waiting, self._waiting = self._waiting, {}
        for frame in waiting.values():
            self._paused = False  # the transport buffers what is too much for the client
            self.push(frame)
        self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connected: socket.socket = transport.get_extra_info("socket")
        try:
            self._peer = system.HERE.identify_peer(connected)
        except OSError:
            log.warning("a client was refused: the system does not report its user")
            transport.abort()
            return
        if self._owner.is_closing:
            transport.abort()
            return
        if not is_ours(self._peer):
            log.warning("a client of user %s was refused", self._peer.uid)
            transport.abort()
            return
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._owner.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._first is not None:
            self._first += data
            if control.MAGIC.startswith(self._first[: len(control.MAGIC)]):
                if (kind := control.parse_request(self._first)) is not None and self.is_open:
                    self._owner.handle_control(self, kind)
                return
            data, self._first = self._first, None
        try:
            for body in self._unpacker.feed(data):
                if not self.is_open:
                    return
                if (frame := self._decode(body)) is None:
                    continue
                try:
                    answer = self._owner.receive(self, frame)
                except Exception as error:  # noqa: BLE001 - a frame must not end the host; `_answer_error` records it
                    _answer_error(self, frame, error)
                    continue
                if isinstance(answer, Frame):
                    self.push(answer)
                elif answer is not None:
                    self._owner.track(asyncio.ensure_future(answer), self, frame)
                elif isinstance(frame, Hello):
                    self.push(Welcome(n=frame.n, pid=os.getpid(), kasmon=__version__))
        except WireError as error:
            log.warning("a client was dropped: %s", error)
            self.abort()

    def _decode(self, body: bytes) -> FromClient | None:
        """Return the frame in *body*; None if it was refused.

        Raises:
            WireError: if there is no number to refuse it by, or the client did not say hello before.
        """
        try:
            frame = decode_client_frame(body)
        except msgspec.DecodeError as error:
            n = None
            with contextlib.suppress(msgspec.DecodeError, AttributeError):
                n = msgspec.msgpack.decode(body).get("n")
            if not isinstance(n, int):
                raise WireError(f"a frame that cannot be read: {error}") from error
            self.push(failed(n, RefusedError(f"the host does not understand this: {error}.")))
            return None
        if isinstance(frame, Hello):
            if frame.version != VERSION:
                text = f"this host (kasmon {__version__}) speaks protocol version {VERSION}, the client version"
                hint = "Restart the session with the newer kasmon, or use the same version for both."
                self.push(failed(frame.n, RefusedError(f"{text} {frame.version}.", hint=hint)))
                self.close()
                return None
            self.greeted, self.as_agent = True, frame.as_agent
        elif not self.greeted:
            raise WireError("a client that did not say hello")
        return frame

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        while self._waiting and not self._paused:
            self.push(self._waiting.pop(next(iter(self._waiting))))

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.clear()
        if not self.closed.done():
            self.closed.set_result(None)
        self._owner.forget(self)


BACKLOG = 128
ACCEPTING = 3
"""How many loop iterations it takes to set up an accepted connection. One that is set up while the server closes
would hang: python/cpython#109564, open."""
GOODBYE_S = 2.0
"""How long a closing server waits for requests in progress."""

Control: TypeAlias = Callable[[ControlKind], HostStatus]
"""Executes a request of any version; raises `RefusedError` if it does not."""
Receive: TypeAlias = Callable[[ClientConnection, FromClient], Awaitable[Frame | None] | Frame | None]

log = logging.getLogger(__name__)


class HostServer:
    """The socket of one host. `receive` gets each frame on arrival; `lost` each client that has disconnected.

    `receive` is called at once. It returns the answer, None for none, or an awaitable of either, which then runs
    beside. A `KasmonError` becomes a `FailureReply`. A frame before `Hello`, or of another version, is not passed
    on.
    """

    def __init__(
        self, socket: Path, receive: Receive, lost: Callable[[ClientConnection], None], control: Control | None = None
    ) -> None:
        self.connections: set[ClientConnection] = set()
        self.is_closing = False
        """Whether new connections are refused, visibly: they are closed before any greeting."""
        self._path = socket
        self.receive = receive
        self._control = control
        self._lost = lost
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Future[Frame | None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a client is connected, or a request is in progress, also of a client that disconnected."""
        return bool(self.connections or self._tasks)

    @property
    def is_working(self) -> bool:
        return bool(self._tasks)

    async def start(self) -> None:
        """Listen. An old socket is removed first: the caller holds the host's lock.

        Raises:
            OSError: if the socket cannot be created.
        """
        binding = asyncio.create_task(asyncio.to_thread(bind, self._path))
        try:
            listening = await complete(binding)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                binding.result().close()
                await complete(asyncio.to_thread(self._path.unlink, missing_ok=True))
            raise
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: ClientConnection(self), sock=listening, backlog=BACKLOG, start_serving=False
        )
        await self._server.start_serving()

    async def aclose(self) -> None:
        """Stop listening, finish requests in progress, send what is waiting, close connections. Idempotent and bounded.

        Connections are refused from the moment of the call, before anything is awaited.
        """
        self.is_closing = True
        if self._server is None:
            return
        server, self._server = self._server, None
        await asyncio.to_thread(self._path.unlink, missing_ok=True)
        for _ in range(ACCEPTING):
            await asyncio.sleep(0)
        server.close()
        this = asyncio.current_task()
        if tasks := {task for task in self._tasks if task is not this}:
            _, slow = await asyncio.wait(tasks, timeout=GOODBYE_S)
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)
            await asyncio.sleep(0)  # `_answer` of a task that has just ended sends before the connection closes
        for connection in set(self.connections):
            connection.close()
        if closed := [connection.closed for connection in self.connections]:
            await asyncio.wait(closed, timeout=GOODBYE_S)
        for connection in set(self.connections):
            connection.abort()

    def track(self, task: asyncio.Future[Frame | None], connection: ClientConnection, frame: FromClient) -> None:
        """Send *connection* the result of *task*, which executes *frame*, when it is done."""
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._answer, connection, frame))

    def _answer(self, connection: ClientConnection, frame: FromClient, task: asyncio.Future[Frame | None]) -> None:
        """Send the result of *task*, which executed *frame*."""
        self._tasks.discard(task)
        if task.cancelled():
            _answer_error(connection, frame, RefusedError("the host ended before this was done.", hint="See its log."))
        elif (error := task.exception()) is not None:
            _answer_error(connection, frame, error)
        elif (answered := task.result()) is not None:
            connection.push(answered)

    def handle_control(self, connection: ClientConnection, kind: int) -> None:
        """Execute a request that clients of every version can make, answer it, and close the connection."""
        if self._control is None or kind not in (ControlKind.STATUS, ControlKind.HAND_OVER, ControlKind.STOP):
            answer = control.build_refusal(f"kasmon {__version__} has no request of kind {kind}.")
        else:
            try:
                status = self._control(ControlKind(kind))
                answer = control.build_frame(ControlKind.DONE, msgspec.json.encode(status))
            except KasmonError as error:
                answer = control.build_refusal(str(error))
            except Exception as error:  # one client's request must not end the host; the log records it
                log.error("the host failed to carry out %s", ControlKind(kind).name, exc_info=error)
                answer = control.build_refusal(f"the host failed: {error!r}.")
        connection.send_control(answer)

    def forget(self, connection: ClientConnection) -> None:
        """Remove *connection*, which has closed."""
        if connection in self.connections:
            self.connections.discard(connection)
            self._lost(connection)


def bind(path: Path) -> socket.socket:
    """Return a socket at *path* for this user only. It appears there once it listens, so it refuses no connection."""
    unfinished = path.with_name(f".{path.stem}.new")
    unfinished.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(os.fspath(unfinished))
        unfinished.chmod(0o600)  # before it listens; a umask would be that of all threads
        listening.listen(BACKLOG)
        listening.setblocking(False)
        unfinished.replace(path)
    except BaseException:
        listening.close()
        raise
    return listening


def _answer_error(connection: ClientConnection, frame: FromClient, error: BaseException) -> None:
    if not isinstance(error, KasmonError):
        log.error("the host stumbled over %s", type(frame).__name__, exc_info=error)
        error = KasmonError(f"the host failed: {error!r}.", hint="See its log.")
    if isinstance(frame, NumberedFrame):
        connection.push(failed(frame.n, error))
