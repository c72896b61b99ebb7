"""Reads what a stream has stored, by batched direct gets: no consumer is left behind, and none can be misused."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg

from kasmon.bus.nats.connection import FAILURES, REQUEST_S, Connection, explain
from kasmon.errors import TimedOutError, UnavailableError

BATCH: Final = 500
BATCH_BYTES: Final = 4 * 1024 * 1024
END, NOTHING_FOUND, NO_STREAM = "204", "404", "503"
"""The status of the message that ends a batch."""
MARKER: Final = "Nats-Marker-Reason"
"""The header of the message that the server stores in the place of one that expired."""


class StoredMessage(msgspec.Struct, frozen=True):
    subject: str
    sequence: int
    stored_at: str
    """When the server stored it, as RFC 3339."""
    is_marker: bool
    """Whether it stands for one that has expired."""
    content: bytes


async def read_stream(
    connection: Connection, stream: str, subject: str = ">", first: int = 1
) -> AsyncGenerator[StoredMessage, None]:
    """Yield the messages of *stream* under *subject* from the sequence number *first* on, oldest first.

    Raises:
        UnavailableError: if there is no such stream, or the server does not answer.
    """
    while True:
        query = {"seq": first, "next_by_subj": subject, "batch": BATCH, "max_bytes": BATCH_BYTES}
        found = await _read_batch(connection, stream, query)
        for message in found:
            yield message
        if not found:
            return
        first = found[-1].sequence + 1


async def read_last(connection: Connection, stream: str, subjects: Sequence[str]) -> list[StoredMessage]:
    """Return the last message under each of *subjects*, oldest first; none for a subject without one.

    Raises:
        UnavailableError: if there is no such stream, or the server does not answer.
    """
    found: list[StoredMessage] = []
    for at in range(0, len(subjects), BATCH):
        left = list(subjects[at : at + BATCH])
        while left:
            query = {"multi_last": left, "batch": BATCH, "max_bytes": BATCH_BYTES}
            if not (part := await _read_batch(connection, stream, query)):
                break
            found += part
            seen = {message.subject for message in part}
            left = [each for each in left if each not in seen]
    return sorted(found, key=lambda message: message.sequence)


async def read_newest(connection: Connection, stream: str, subject: str) -> StoredMessage | None:
    """Return the last message of *stream* under *subject*, which may have wildcards.

    Raises:
        UnavailableError: if there is no such stream, or the server does not answer.
    """
    query = json.dumps({"last_by_subj": subject}).encode()
    answer = await connection.request(connection.read_subject(stream), query)
    return None if "Status" in (answer.headers or {}) else _parse_message(answer)


async def _read_batch(connection: Connection, stream: str, query: dict[str, Any]) -> list[StoredMessage]:
    """Return one batch; an empty one at the end."""
    found: list[StoredMessage] = []
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    received = asyncio.Event()

    async def receive(message: Msg) -> None:
        received.set()
        headers = message.headers or {}
        if status := headers.get("Status"):
            if not ended.done():
                ended.set_result(status)
            return
        found.append(_parse_message(message))

    inbox = connection.client.new_inbox()
    subscription = await connection.subscribe(inbox, receive)
    try:
        await connection.client.publish(connection.read_subject(stream), json.dumps(query).encode(), reply=inbox)
        while not ended.done():
            received.clear()
            waiting = asyncio.ensure_future(received.wait())
            waited: list[asyncio.Future[Any]] = [ended, waiting]
            await asyncio.wait(waited, timeout=REQUEST_S, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if not received.is_set():
                raise TimedOutError(f"the cluster {connection.identity.cluster!r} does not send its stored messages.")
    except FAILURES as error:
        raise explain(error, connection.identity) from error
    finally:
        await _unsubscribe(subscription)
    status = ended.result()
    if status not in (END, NOTHING_FOUND):
        raise UnavailableError(
            f"the cluster {connection.identity.cluster!r} has no stream {stream!r} (status {status}).",
            hint="On the cluster's machine: `kasmon cluster status`.",
        )
    return found


def _parse_message(message: Msg) -> StoredMessage:
    headers = message.headers or {}
    return StoredMessage(
        subject=headers["Nats-Subject"],
        sequence=int(headers["Nats-Sequence"]),
        stored_at=headers.get("Nats-Time-Stamp", ""),
        is_marker=MARKER in headers,
        content=message.data,
    )


async def _unsubscribe(subscription: Any) -> None:
    try:
        await subscription.unsubscribe()
    except FAILURES:  # the connection is lost: so is the subscription
        return
