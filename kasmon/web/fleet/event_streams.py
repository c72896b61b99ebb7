"""Follows the fleet while a page is open, and streams what changed in its live part as server-sent events.

All streams share one `FleetWatch`. A slow reader gets the newest state, never a backlog.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import msgspec
from aiohttp import web

from kasmon.asyncio_tasks import cancel_and_wait, wait_within
from kasmon.model.fleet import Fleet
from kasmon.paths import Paths
from kasmon.supervisor.fleet.watch import FleetWatch
from kasmon.web.fleet.html import Blocks

MAX_STREAMS: Final = 16
MAX_LOGIN_STREAMS: Final = 4
TICK_S: Final = 0.5
"""How often a stream checks that its login is active, in seconds."""
HEARTBEAT_S: Final = 15.0
"""How often something is sent, so that proxies keep the connection, in seconds."""
WRITE_S: Final = 10.0
"""How long a reader may take to accept an event, in seconds."""


class EventStreams:
    """The open streams of one server. Use it on the server's loop."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._fleet: Fleet | None = None
        self._following: asyncio.Task[None] | None = None
        self._streams: dict[asyncio.Event, str] = {}
        """What tells each stream of a new fleet, and its login."""

    def __len__(self) -> int:
        return len(self._streams)

    def has_space(self, login: str) -> bool:
        return len(self) < MAX_STREAMS and list(self._streams.values()).count(login) < MAX_LOGIN_STREAMS

    async def stream(
        self,
        response: web.StreamResponse,
        login: str,
        render: Callable[[Fleet], Blocks],
        is_active: Callable[[], Awaitable[bool]],
    ) -> None:
        """Write each change of what *render* returns to *response*, until *login* is not active any more.

        Raises:
            OSError: if the reader is gone, or does not read.
        """
        sent: dict[str, int] = {}
        written_at = 0.0
        with self._subscribe(login) as changed:
            while await is_active():
                await wait_within(TICK_S, changed)
                event = b""
                if changed.is_set() and self._fleet is not None:
                    changed.clear()
                    blocks = await asyncio.to_thread(render, self._fleet)
                    event = _encode_change(blocks, sent)
                if not event and time.monotonic() - written_at >= HEARTBEAT_S:
                    event = b":\n\n"
                if event:
                    written_at = time.monotonic()
                    await _write(response, event)
            await _write(response, b"event: end\ndata:\n\n")

    async def aclose(self) -> None:
        """End the watch; idempotent."""
        await cancel_and_wait(self._following)
        self._following = None

    @contextlib.contextmanager
    def _subscribe(self, login: str) -> Iterator[asyncio.Event]:
        changed = asyncio.Event()
        self._streams[changed] = login
        if self._following is None or self._following.done():
            self._fleet = None
            self._following = asyncio.get_running_loop().create_task(self._follow())
        elif self._fleet is not None:
            changed.set()
        try:
            yield changed
        finally:
            del self._streams[changed]
            if not self._streams and self._following is not None:
                self._following.cancel()

    async def _follow(self) -> None:
        changes = FleetWatch(self._paths, writes=False).changes()
        try:
            async for fleet in changes:
                self._fleet = fleet
                for changed in self._streams:
                    changed.set()
        finally:
            await changes.aclose()


def _encode_change(blocks: Blocks, sent: dict[str, int]) -> bytes:
    """Return the event with those of *blocks* that differ from the *sent* hashes, which it updates; empty if none."""
    hashes = {name: hash(html) for name, html in blocks.items()}
    changed = [(name, html) for name, html in blocks.items() if sent.get(name) != hashes[name]]
    if not changed and list(sent) == list(hashes):
        return b""
    sent.clear()
    sent.update(hashes)
    data = msgspec.json.encode({"blocks": changed, "order": list(blocks), "now": round(time.time(), 1)})
    return b"data: " + data + b"\n\n"


async def _write(response: web.StreamResponse, event: bytes) -> None:
    try:
        async with asyncio.timeout(WRITE_S):
            await response.write(event)
    except TimeoutError as error:
        raise ConnectionError("the reader does not read") from error
