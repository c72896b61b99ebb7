"""One stream of bytes over NATS: from an operator to a machine in signed commands, and back in replies.

Each message has a number, so that a lost one ends the stream and never shifts it. The bus in the stream limits what is
under way (`kasmon.bus.stream`); a stream that ended is opened again by its user, who then says what is missing.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Final

CHUNK_BYTES: Final = 256 * 1024
"""Of which a signed message is 460 KB, less than half of what a server accepts."""
NUMBER: Final = struct.Struct("!Q")
END: Final = 2**64 - 1
"""The number of the message that ends a stream."""
CLOSE_S: Final = 2.0
"""How long `close` may take to send what was written."""

SendBytes = Callable[[bytes], Awaitable[None]]


class TunnelEnd(asyncio.Transport):
    """One end of a stream: the transport of what `open` returns."""

    def __init__(self, send: SendBytes, ended: Callable[[], object]) -> None:
        """Args:
        send: sends a message to the other end. Raises OSError if it cannot.
        ended: called once, when the stream has ended on either side.
        """
        super().__init__()
        self._send, self._ended = send, ended
        self._sent = self._received = 0
        self.is_open = True
        """Whether neither side has ended it."""
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.StreamReaderProtocol | None = None
        self._unsent = bytearray()
        self._has_work, self._may_receive = asyncio.Event(), asyncio.Event()
        self._may_receive.set()
        self._is_closing = self._is_full = False
        self._sending: asyncio.Task[None] | None = None

    def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams; what is written to one of them is sent."""
        reader = asyncio.StreamReader(loop=self._loop)
        protocol = self._protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        protocol.connection_made(self)
        if self.is_open:
            self._sending = self._loop.create_task(self._send_all())
        else:
            self._loop.call_soon(protocol.connection_lost, None)
        return reader, asyncio.StreamWriter(self, protocol, reader, self._loop)

    async def receive(self, message: bytes) -> None:
        """Pass on *message* of the other end, once there is room. One that does not follow the last ends the stream."""
        if len(message) < NUMBER.size or not self.is_open or self._protocol is None:
            return
        (number,) = NUMBER.unpack_from(message)
        if number != self._received:
            self.abort()
            return
        self._received += 1
        if len(message) > NUMBER.size:
            self._protocol.data_received(message[NUMBER.size :])
            await self._may_receive.wait()

    async def send_empty(self) -> None:
        """Send a message without content."""
        await self._send_chunk(b"")

    # The transport.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send *data*, with what else is written before the event loop runs the task that sends."""
        if self.is_closing():
            return
        self._unsent += data
        self._has_work.set()
        if len(self._unsent) > CHUNK_BYTES and not self._is_full and self._protocol is not None:
            self._is_full = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._may_receive.clear()

    def resume_reading(self) -> None:
        self._may_receive.set()

    def is_closing(self) -> bool:
        return self._is_closing or not self.is_open

    def close(self) -> None:
        """Send what was written, then end the stream; idempotent."""
        if not self.is_closing():
            self._is_closing = True
            self._has_work.set()
            self._loop.call_later(CLOSE_S, self.abort)

    def abort(self) -> None:
        """End the stream now; idempotent."""
        if self.is_open:
            self.is_open = False
            self._has_work.set()
            self._may_receive.set()
            if self._sending is not None:
                self._sending.cancel()
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, None)
            self._ended()

    async def _send_all(self) -> None:
        try:
            while self._unsent or not self._is_closing:
                if not self._unsent:
                    self._has_work.clear()
                    await self._has_work.wait()
                    continue
                chunk = bytes(self._unsent[:CHUNK_BYTES])
                del self._unsent[:CHUNK_BYTES]
                await self._send_chunk(chunk)
                if self._is_full and self._protocol is not None and len(self._unsent) <= CHUNK_BYTES:
                    self._is_full = False
                    self._protocol.resume_writing()
            await self._send(NUMBER.pack(END))
        except OSError:
            pass
        finally:
            self.abort()

    async def _send_chunk(self, chunk: bytes) -> None:
        number, self._sent = self._sent, self._sent + 1
        await self._send(NUMBER.pack(number) + chunk)
