"""Publishes to streams without waiting for each acknowledgement.

nats-py 2.16 has `publish_async`, whose future never ends if the server refuses the message.
"""

import asyncio
import itertools
import json
from typing import Any

from nats.aio.msg import Msg

from kasmon.bus.nats.connection import Connection, explain_jetstream
from kasmon.bus.nats.identity import Identity
from kasmon.errors import KasmonError, UnavailableError

WRONG_SEQUENCE = 10071
"""JetStream's code for a key that another one has changed."""


class OutdatedKeyError(KasmonError):
    """A key is not as its writer knows it."""


class Publisher:
    """Publishes on one connection, also after a reconnect; what was sent before it is never acknowledged."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox = connection.client.new_inbox()
        self._numbers = itertools.count()
        self._acknowledgements: dict[str, asyncio.Future[int]] = {}

    async def open(self) -> None:
        await self._connection.subscribe(f"{self._inbox}.*", self._handle)

    async def publish(self, subject: str, content: bytes, headers: dict[str, str]) -> "asyncio.Future[int]":
        """Send *content*, and return what will be its number in the stream; cancel it to wait no longer.

        The future raises:
            OutdatedKeyError: if the key has another number than the headers expect.
            UnavailableError: if the server does not store it.
        """
        number = str(next(self._numbers))
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._acknowledgements[number] = future
        future.add_done_callback(lambda _: self._acknowledgements.pop(number, None))
        try:
            await self._connection.client.publish(subject, content, reply=f"{self._inbox}.{number}", headers=headers)
        except BaseException:
            future.cancel()
            raise
        return future

    async def _handle(self, message: Msg) -> None:
        future = self._acknowledgements.get(message.subject.rpartition(".")[2])
        if future is None or future.done():
            return
        result = parse_acknowledgement(message, self._connection.identity)
        if isinstance(result, KasmonError):
            future.set_exception(result)
        else:
            future.set_result(result)


def parse_acknowledgement(message: Msg, identity: Identity) -> int | KasmonError:
    """Return the number of the stored message, or why the server did not store it."""
    if (message.headers or {}).get("Status"):
        return UnavailableError(
            f"the cluster {identity.cluster!r} has no stream for {identity.name!r}.",
            hint="On the cluster's machine: `kasmon cluster status`.",
        )
    try:
        answer: dict[str, Any] = json.loads(message.data)
        if (error := answer.get("error")) is None:
            return int(answer["seq"])
    except (ValueError, KeyError, AttributeError) as why:
        return UnavailableError(f"the cluster {identity.cluster!r} sent what is no acknowledgement: {why}.")
    if error.get("err_code") == WRONG_SEQUENCE:
        return OutdatedKeyError("another process changed the directory.")
    return explain_jetstream(error, identity)
