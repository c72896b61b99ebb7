"""A WebSocket client over a unix socket (RFC 6455): each text message is one line, in both directions."""

import asyncio
import contextlib
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Callable
from hashlib import sha1
from os import urandom
from pathlib import Path
from typing import Final

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.backends.common.child_process import KEPT_BYTES, LINE_BYTES
from kasmon.errors import SessionEndedError

GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""What RFC 6455 adds to a key before it is hashed."""
MASK: Final = bytes(4)
"""A client must mask what it sends, against proxies; there are none on this socket, and zeros change nothing."""
CONTINUED, TEXT, CLOSE, PING, PONG = 0x0, 0x1, 0x8, 0x9, 0xA
FINAL: Final = 0x80
HEAD_BYTES: Final = 16 * 1024
BUFFER_BYTES: Final = 1 << 26
"""How much waits for the reader before the socket is no longer read: the server drops a client that is slow."""


class WebSocketError(ConnectionError):
    """The other side does not speak the protocol."""


class WebSocketChannel:
    """One connection. Messages are received at once, whether they are read or not, up to `BUFFER_BYTES`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stir: Callable[[], None] = lambda: None
    ) -> None:
        """*stir* is called for each message."""
        self._reader, self._writer, self._stir = reader, writer, stir
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._came, self._taken = asyncio.Event(), asyncio.Event()
        self._is_over = False
        self._receiving = asyncio.create_task(self._receive())

    @classmethod
    async def connect(cls, path: Path, stir: Callable[[], None] = lambda: None) -> "WebSocketChannel":
        """Connect to the server that listens at *path*.

        Raises:
            OSError: if none listens there.
            WebSocketError: if it does not speak the protocol.
        """
        reader, writer = await asyncio.open_unix_connection(str(path), limit=HEAD_BYTES)
        key = b64encode(urandom(16))
        try:
            writer.write(
                b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
            )
            await writer.drain()
            status, *fields = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            accepted = b64encode(sha1(key + GUID).digest())
            values = [value.strip() for name, _, value in (each.partition(b":") for each in fields)]
            if not status.startswith(b"HTTP/1.1 101") or accepted not in values:
                raise WebSocketError(f"it answered {status[:80]!r}")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            writer.close()
            raise WebSocketError("it did not answer") from error
        except BaseException:
            writer.close()
            raise
        return cls(reader, writer, stir)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the messages until the connection ends. A longer one than `LINE_BYTES` is truncated to `KEPT_BYTES`."""
        while self._waiting or not self._is_over:
            while not self._waiting and not self._is_over:
                self._came.clear()
                await self._came.wait()
            if self._waiting:
                line = self._waiting.popleft()
                self._size -= len(line)
                self._taken.set()
                yield line

    async def write(self, line: bytes) -> None:
        """Send *line*; waits while the server does not read.

        Raises:
            SessionEndedError: if the connection has ended.
        """
        try:
            if self._is_over or self._writer.is_closing():
                raise BrokenPipeError
            await self._send(TEXT, line)
        except (ConnectionError, RuntimeError) as error:
            raise SessionEndedError("codex") from error

    async def aclose(self) -> None:
        """Close the connection. Idempotent."""
        await cancel_and_wait(self._receiving)
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            length = bytes([0x80 | size])
        elif size < 1 << 16:
            length = b"\xfe" + size.to_bytes(2)
        else:
            length = b"\xff" + size.to_bytes(8)
        self._writer.write(bytes([FINAL | kind]) + length + MASK + payload)
        await self._writer.drain()

    async def _receive(self) -> None:
        message = bytearray()
        try:
            while True:
                first, second = await self._reader.readexactly(2)
                size = second & 0x7F
                if size > 125:
                    size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8))
                kind = first & 0xF
                if kind in (CONTINUED, TEXT):
                    await self._add(message, size)
                    if first & FINAL:
                        await self._put(bytes(message))
                        message.clear()
                    continue
                payload = await self._reader.readexactly(size)
                if kind == PING:
                    await self._send(PONG, payload)
                elif kind == CLOSE:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self._is_over = True
            self._came.set()

    async def _add(self, message: bytearray, size: int) -> None:
        """Add the next *size* bytes to *message*; of a message that gets too long only the beginning is kept."""
        is_cut = len(message) + size > LINE_BYTES
        while size:
            block = await self._reader.read(min(size, 1 << 16))
            if not block:
                raise asyncio.IncompleteReadError(b"", size)
            size -= len(block)
            message += block if not is_cut or len(message) < KEPT_BYTES else b""
        if is_cut:
            del message[KEPT_BYTES:]

    async def _put(self, line: bytes) -> None:
        self._stir()
        self._waiting.append(line)
        self._size += len(line)
        self._came.set()
        while self._size > BUFFER_BYTES:
            self._taken.clear()
            await self._taken.wait()
