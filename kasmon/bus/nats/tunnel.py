"""One stream of bytes over NATS: from an operator to a machine in signed commands, and back in replies.

Each message has a number, so that a lost one ends the stream and never shifts it. The bus in the stream limits what is
under way (`kasmon.bus.stream`); a stream that ended is opened again by its user, who then says what is missing.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

CHUNK_BYTES: Final = 256 * 1024
"""Of which a signed message is 460 KB, less than half of what a server accepts."""
NUMBER: Final = struct.Struct("!Q")
END: Final = 2**64 - 1
"""The number of the message that ends a stream."""

Send = Callable[[bytes], Awaitable[None]]


class TunnelEnd:
    """One end of a stream. `reader` and `writer` are for what speaks over it."""

    def __init__(self, send: Send, ended: Callable[[], object]) -> None:
        """Args:
        send: sends a message to the other end.
        ended: called once, when the stream has ended on either side.
        """
        self._send, self._ended = send, ended
        self._sent = self._received = 0
        self.is_open = True
        """Whether neither side has ended it."""
        self._writer: asyncio.StreamWriter | None = None
        self._pump: asyncio.Task[None] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams; what is written to one of them is sent."""
        ours, theirs = socket.socketpair()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        streams = await asyncio.open_connection(sock=theirs)
        self._pump = asyncio.create_task(self._send_all(reader))
        return streams

    async def receive(self, message: bytes) -> None:
        """Pass on *message* of the other end. One that does not follow the last ends the stream."""
        if len(message) < NUMBER.size or not self.is_open or self._writer is None:
            return
        (number,) = NUMBER.unpack_from(message)
        if number != self._received:
            self.close()
            return
        self._received += 1
        if len(message) > NUMBER.size:
            with contextlib.suppress(OSError):
                self._writer.write(message[NUMBER.size :])
                await self._writer.drain()

    async def send_empty(self) -> None:
        """Send a message without content."""
        await self._send_chunk(b"")

    def close(self) -> None:
        """End the stream; idempotent."""
        if self.is_open:
            self.is_open = False
            if self._writer is not None:
                self._writer.close()
            if self._pump is not None:
                self._pump.cancel()
            self._ended()

    async def _send_all(self, reader: asyncio.StreamReader) -> None:
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                await self._send_chunk(chunk)
            await self._send(NUMBER.pack(END))
        except OSError:
            pass
        finally:
            self.close()

    async def _send_chunk(self, chunk: bytes) -> None:
        number, self._sent = self._sent, self._sent + 1
        await self._send(NUMBER.pack(number) + chunk)


class TaskSet:
    """Tasks that end with their owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def cancel(self) -> None:
        """End them; repeated, because nats-py's `wait_for` can lose a cancellation."""
        while tasks := [task for task in self._tasks if task is not asyncio.current_task()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0.5)
