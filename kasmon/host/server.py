"""A host's socket: it lets in its own user only, answers each numbered frame once, never waits for a slow reader."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Hashable
from pathlib import Path
from typing import TypeAlias

import msgspec

from kasmon import __version__
from kasmon.errors import KasmonError, RefusedError, UsageError
from kasmon.host.failure import failed
from kasmon.host.peer import Peer, is_ours, peer_of
from kasmon.host.wire import (
    VERSION,
    Frame,
    FromClient,
    Hello,
    Numbered,
    Unpacker,
    Welcome,
    WireError,
    from_client,
    pack,
)

SEND_BUFFER_BYTES = 64 * 1024
"""How much the system keeps for a reader that is behind; what comes later waits here and can still be replaced."""
BACKLOG = 128
ACCEPTING = 3
"""How many turns of the loop it takes to make a connection that was accepted. One that is made while the server closes
would hang: python/cpython#109564, open."""
GOODBYE_S = 2.0
"""How long a closing server waits for what is under way."""

Receive: TypeAlias = Callable[["Connection", FromClient], Awaitable[Frame | None] | Frame | None]
Push: TypeAlias = Frame | Callable[[], Frame | None]

log = logging.getLogger(__name__)


class Connection(asyncio.Protocol):
    """One client of this host."""

    def __init__(self, server: "HostServer") -> None:
        self.as_agent = False
        """It said itself that an agent speaks here."""
        self.greeted = False
        self.closed = asyncio.get_running_loop().create_future()
        self._server = server
        self._peer = Peer(-1, 0)
        self._transport: asyncio.Transport | None = None
        self._unpacker = Unpacker()
        self._paused = False
        self._waiting: dict[Hashable, Push] = {}

    @property
    def peer_pid(self) -> int:
        """The process that connected; 0 where the system does not tell."""
        return self._peer.pid

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def push(self, frame: Push, key: Hashable | None = None) -> None:
        """Send *frame*, or what calling it gives at the moment of sending.

        A client that does not keep up gets only the newest of all pushes with the same *key*; without a key, each.
        """
        if not self.is_open:
            return
        if not self._paused:
            self._write(frame)
        elif key is None:
            self._waiting[object()] = frame
        else:
            self._waiting.pop(key, None)
            self._waiting[key] = frame

    def close(self) -> None:
        """Send what is waiting, then hang up."""
        if self._transport is None:
            return
        for frame in self._waiting.values():
            self._write(frame)
        self._waiting.clear()
        self._transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()

    def _write(self, frame: Push) -> None:
        made = frame() if callable(frame) else frame
        if made is None or self._transport is None:
            return
        try:
            self._transport.write(pack(made))
        except UsageError as error:
            log.warning("%s", error)
            if isinstance(made, Numbered):
                self._transport.write(pack(failed(made.n, RefusedError(error.message))))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connected: socket.socket = transport.get_extra_info("socket")
        try:
            self._peer = peer_of(connected)
        except OSError:
            log.warning("a client was refused: the system does not say whose it is")
            transport.abort()
            return
        if self._server.is_closing:
            transport.abort()
            return
        if not is_ours(self._peer):
            log.warning("a client of user %s was refused", self._peer.uid)
            transport.abort()
            return
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._unpacker.feed(data):
                if not self.is_open:
                    return
                self._server.handle(self, body)
        except WireError as error:
            log.warning("a client was dropped: %s", error)
            self.abort()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        while self._waiting and not self._paused:
            key = next(iter(self._waiting))
            self._write(self._waiting.pop(key))

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.clear()
        if not self.closed.done():
            self.closed.set_result(None)
        self._server.forget(self)


class HostServer:
    """The socket of one host. `receive` gets each frame as it comes; `lost` each client that is gone.

    `receive` is called at once. It gives the answer, None for none, or an awaitable of either, which then runs beside.
    A `KasmonError` becomes the answer `Failed`. A frame before `Hello`, or of another version, gets no further.
    """

    def __init__(self, socket: Path, receive: Receive, lost: Callable[[Connection], None]) -> None:
        self.connections: set[Connection] = set()
        self.is_closing = False
        """Who connects from now on is not let in, and sees that: the line ends before any greeting."""
        self._path = socket
        self._receive = receive
        self._lost = lost
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a client is there, or something is under way for one that left."""
        return bool(self.connections or self._tasks)

    async def start(self) -> None:
        """Listen. A socket that was left there is removed first: whoever calls this holds the host's lock.

        Raises:
            OSError: if the socket cannot be made.
        """
        listening = await asyncio.to_thread(_bound, self._path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: Connection(self), sock=listening, backlog=BACKLOG)

    async def aclose(self) -> None:
        """Stop listening, let what is under way end, send what is waiting, hang up. Idempotent and bounded.

        Nobody is let in from the moment of the call, before anything is awaited.
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
        for connection in set(self.connections):
            connection.close()
        if closed := [connection.closed for connection in self.connections]:
            await asyncio.wait(closed, timeout=GOODBYE_S)
        for connection in set(self.connections):
            connection.abort()

    def handle(self, connection: Connection, body: bytes) -> None:
        """Take one frame from *connection*."""
        try:
            frame = from_client.decode(body)
        except msgspec.DecodeError as error:
            _answer_unreadable(connection, body, error)
            return
        if isinstance(frame, Hello):
            if not _greet(connection, frame):
                return
        elif not connection.greeted:
            raise WireError("a client that did not say hello")
        try:
            answer = self._receive(connection, frame)
        except Exception as error:  # noqa: BLE001 - one client's frame must not take the host down; `_stumbled` records it
            _stumbled(connection, frame, error)
            return
        if isinstance(answer, Frame):
            connection.push(answer)
        elif answer is not None:
            task = asyncio.ensure_future(_answered(connection, frame, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(frame, Hello):
            connection.push(Welcome(n=frame.n, pid=os.getpid(), kasmon=__version__))

    def forget(self, connection: Connection) -> None:
        """*connection* is gone."""
        if connection in self.connections:
            self.connections.discard(connection)
            self._lost(connection)


def _bound(path: Path) -> socket.socket:
    """A socket at *path* that only we can reach. It appears there once it listens: who finds it is not refused."""
    unfinished = path.with_name(f".{path.stem}.new")
    unfinished.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            listening.bind(os.fspath(unfinished))
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
        listening.setblocking(False)
        unfinished.replace(path)
    except BaseException:
        listening.close()
        raise
    return listening


async def _answered(connection: Connection, frame: FromClient, answer: Awaitable[Frame | None]) -> None:
    try:
        made = await answer
    except asyncio.CancelledError:
        _stumbled(
            connection, frame, RefusedError("the host ended before this was done.", hint="See what the log says.")
        )
        raise
    except Exception as error:  # noqa: BLE001 - likewise
        _stumbled(connection, frame, error)
        return
    if made is not None:
        connection.push(made)


def _greet(connection: Connection, hello: Hello) -> bool:
    if hello.version == VERSION:
        connection.greeted, connection.as_agent = True, hello.as_agent
        return True
    error = RefusedError(
        f"this host (kasmon {__version__}) speaks protocol version {VERSION}, the client version {hello.version}.",
        hint="Restart the session with the newer kasmon, or use the same version for both.",
    )
    connection.push(failed(hello.n, error))
    connection.close()
    return False


def _answer_unreadable(connection: Connection, body: bytes, error: msgspec.DecodeError) -> None:
    """Tell the client that its frame says nothing to this version; without a number to answer, hang up."""
    n = None
    with contextlib.suppress(msgspec.DecodeError, AttributeError):
        n = msgspec.msgpack.decode(body).get("n")
    if not isinstance(n, int):
        raise WireError(f"a frame that cannot be read: {error}")
    connection.push(failed(n, RefusedError(f"the host does not understand this: {error}.")))


def _stumbled(connection: Connection, frame: FromClient, error: BaseException) -> None:
    if not isinstance(error, KasmonError):
        log.error("the host stumbled over %s", type(frame).__name__, exc_info=error)
        error = KasmonError(f"the host stumbled: {error!r}.", hint="Its log says more.")
    if isinstance(frame, Numbered):
        connection.push(failed(frame.n, error))
