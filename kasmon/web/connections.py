"""Limits on connections: how many may be open at once, and how long each may take to send an accepted request.

Every user of this machine can connect to a loopback port and then send nothing, or one byte a minute. A new connection
above a limit closes the oldest one without an accepted request, so early idle connections cannot lock out a browser.
Connections are accepted at a pace: those of a flood wait in the system's queue, and cost the dashboards no time.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from aiohttp import web

from kasmon.asyncio_tasks import TaskSet
from kasmon.web.request_limits import Pace

MAX_PER_ADDRESS: Final = 32
"""Open connections per client address; a page uses up to seven."""
MAX_CONNECTIONS: Final = 64
"""Open connections in all: every user of this machine can connect from each address of 127.0.0.0/8."""
REQUEST_TIMEOUT_S: Final = 10.0
"""How long a connection may take until one complete request on it was accepted, in seconds."""
KEEPALIVE_S: Final = 15.0
"""How long a connection with an accepted request stays open without another one, in seconds."""
LINGER_S: Final = 1.0
"""How long the rest of a refused request is read, in seconds."""
ACCEPTED_BURST: Final = 64
ACCEPTED_RATE_HZ: Final = 100.0
"""How many are accepted a second from then on."""
QUEUE: Final = 128
"""How many the system keeps that are not accepted yet; the next ones wait for a second try of their own."""
RETRY_S: Final = 1.0
"""How long nothing is accepted after that failed, for example as too many files are open; in seconds."""
HANDSHAKE_S: Final = 5.0
"""How long a connection for TLS may take to begin, in seconds."""

UNUSED_LOG: Final = logging.getLogger(f"{__name__}.http")
"""Drops aiohttp's reports of malformed requests: they quote them, secrets included."""
UNUSED_LOG.disabled = True


class Listener:
    """Accepts connections at an address until it is closed."""

    def __init__(
        self, address: str, port: int, factory: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None = None
    ) -> None:
        """Listen; *port*: 0 for a free one. Raises `OSError` or `OverflowError` if the port is not available."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, port), family=family, backlog=QUEUE)
        self._socket.setblocking(False)
        self._factory, self._context = factory, context
        self._tasks = TaskSet()
        self._tasks.start(self._accept())

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Stop listening; idempotent. Accepted connections stay open."""
        self._tasks.cancel()
        self._socket.close()

    async def _accept(self) -> None:
        loop, pace = asyncio.get_running_loop(), Pace(ACCEPTED_BURST, ACCEPTED_RATE_HZ)
        while True:
            try:
                line, _ = await loop.sock_accept(self._socket)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                loop.call_exception_handler({"message": "no connection is accepted", "exception": error})
                await asyncio.sleep(RETRY_S)
                continue
            self._tasks.start(self._begin(line))
            await asyncio.sleep(pace.add(loop.time()))  # also of 0: what else waits on the loop comes before the next

    async def _begin(self, line: socket.socket) -> None:
        limit_s = None if self._context is None else HANDSHAKE_S
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._factory, line, ssl=self._context, ssl_handshake_timeout=limit_s
            )
        except OSError:  # it is gone, or speaks no TLS
            line.close()


class Connections:
    """The open connections of one server, within the limits above. Use it on the server's loop."""

    def __init__(self) -> None:
        self._timers: dict[asyncio.Transport, asyncio.TimerHandle | None] = {}
        """Each connection, the oldest first, with the timer that closes it; None after an accepted request."""

    def __len__(self) -> int:
        return len(self._timers)

    def protocol_factory(self, server: web.Server) -> Callable[[], asyncio.Protocol]:
        """Return what `loop.create_server` needs to serve *server* within these limits."""
        loop = asyncio.get_running_loop()
        return lambda: _LimitedHandler(self, server, loop)

    def mark_accepted(self, transport: asyncio.BaseTransport | None) -> None:
        """Cancel the time limit of *transport*: a request on it was accepted."""
        if isinstance(transport, asyncio.Transport) and (timer := self._timers.get(transport)) is not None:
            timer.cancel()
            self._timers[transport] = None

    def add(self, transport: asyncio.Transport) -> bool:
        """Add a new connection; False if it must be closed because a limit is reached and every other is in use."""
        address = _address(transport)
        of_address = [each for each in self._timers if _address(each) == address]
        for known, limit in ((of_address, MAX_PER_ADDRESS), (list(self._timers), MAX_CONNECTIONS)):
            if len(known) >= limit:
                oldest = next((each for each in known if self._timers.get(each) is not None), None)
                if oldest is None:
                    return False
                self.remove(oldest)
                oldest.abort()
        self._timers[transport] = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_S, transport.abort)
        return True

    def remove(self, transport: asyncio.Transport) -> None:
        if (timer := self._timers.pop(transport, None)) is not None:
            timer.cancel()


class _LimitedHandler(web.RequestHandler):
    """aiohttp's handler of one connection, which is added to a `Connections` and removed from it."""

    __slots__ = ("_connections", "_limited")

    def __init__(self, connections: Connections, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to have none
            logger=UNUSED_LOG,
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=LINGER_S,
        )
        self._connections = connections
        self._limited: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._limited = transport
        super().connection_made(transport)
        if not self._connections.add(transport):
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._limited is not None:
            self._connections.remove(self._limited)
        super().connection_lost(exc)


def _address(transport: asyncio.Transport) -> str:
    return str((transport.get_extra_info("peername") or [""])[0])
