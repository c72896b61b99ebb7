"""Limits on connections: how many may be open at once, and how long each may take to send an accepted request.

Every user of this machine can connect to a loopback port and then send nothing, or one byte a minute. A new connection
above a limit closes the oldest one without an accepted request, so early idle connections cannot lock out a browser.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from aiohttp import web

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
        """Forget *transport*, which is closed or about to be."""
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
            logger=_disabled_logger(),
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


def _disabled_logger() -> logging.Logger:
    """Return a logger that drops aiohttp's reports of malformed requests: they quote them, secrets included."""
    logger = logging.getLogger(f"{__name__}.http")
    logger.disabled = True
    return logger
