"""A connection to a host, through which only those frames pass that the client may send."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Collection
from typing import Final, NamedTuple

import msgspec

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.bus.abilities import ability_of_control, ability_of_frame, check
from kasmon.errors import RefusedError
from kasmon.host.rpc import codec, control
from kasmon.host.rpc.codec import WireError
from kasmon.host.rpc.frames import FromClient, NumberedFrame, SubscriptionEnd
from kasmon.model.commands import Ability

READ_BYTES: Final = 64 * 1024


async def serve(client: socket.socket, host: socket.socket, abilities: Collection[Ability]) -> None:
    """Connect *client* with *host* until one of them closes the connection; both are closed then.

    A frame passes once it is complete and was decoded, and is encoded again: the host gets what was checked. One that
    the client may not send is answered with a refusal instead. What is no frame ends the connection.
    """
    with client, host:
        from_client, to_client = await asyncio.open_connection(sock=client)
        from_host, to_host = await asyncio.open_connection(sock=host)
        try:
            await _Gate(from_client, to_client, from_host, to_host, abilities).run()
        except (OSError, WireError, msgspec.DecodeError):
            return
        finally:
            to_client.close()
            to_host.close()


class _Gate(NamedTuple):
    from_client: asyncio.StreamReader
    to_client: asyncio.StreamWriter
    from_host: asyncio.StreamReader
    to_host: asyncio.StreamWriter
    abilities: Collection[Ability]

    async def run(self) -> None:
        first = b""
        while control.MAGIC.startswith(first[: len(control.MAGIC)]):
            if (kind := control.parse_request(first)) is not None:
                await self._pass_control(kind)
                return
            if not (data := await self.from_client.read(READ_BYTES)):
                return
            first += data
        requests = asyncio.ensure_future(self._pass_requests(first))
        answers = asyncio.ensure_future(self._pass_answers())
        try:
            done, _ = await asyncio.wait([requests, answers], return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            await cancel_and_wait(requests, answers)

    async def _pass_control(self, kind: int) -> None:
        try:
            check(ability_of_control(kind), self.abilities)
        except RefusedError as error:
            self.to_client.write(control.build_refusal(str(error)))
        else:
            self.to_host.write(control.build_frame(kind))
            await self.to_host.drain()
            while data := await self.from_host.read(READ_BYTES):
                self.to_client.write(data)
        await self.to_client.drain()

    async def _pass_requests(self, first: bytes) -> None:
        async for body in _bodies(self.from_client, first):
            frame = codec.decode_client_frame(body)
            try:
                check(ability_of_frame(frame), self.abilities)
            except RefusedError as error:
                self._refuse(frame, error)
                await self.to_client.drain()
            else:
                self.to_host.write(codec.pack(frame))
                await self.to_host.drain()

    def _refuse(self, frame: FromClient, error: RefusedError) -> None:
        if isinstance(frame, NumberedFrame):
            self.to_client.write(codec.pack(codec.failed(frame.n, error)))
        else:
            self.to_client.write(codec.pack(SubscriptionEnd(session=frame.session, why=str(error))))

    async def _pass_answers(self) -> None:
        """Pass the host's frames as wholes: a refusal never comes into the middle of one."""
        async for body in _bodies(self.from_host):
            self.to_client.write(struct.pack(">I", len(body)) + body)
            await self.to_client.drain()


async def _bodies(reader: asyncio.StreamReader, first: bytes = b"") -> AsyncIterator[bytes]:
    unpacker, data = codec.Unpacker(), first
    with contextlib.suppress(ConnectionError):
        while data or (data := await reader.read(READ_BYTES)):
            for body in unpacker.feed(data):
                yield body
            data = b""
