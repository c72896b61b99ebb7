"""`kasmon web`: listens on loopback, lets in whom the gate lets in, and gives each page a dashboard of its own."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from kasmon.errors import UnavailableError
from kasmon.web.gate import COOKIE, LINK, Asked, Gate
from kasmon.web.page import PageFile, enter_page, headers, page_files
from kasmon.web.visit import DASHBOARD, Visit, fitting

MOST_VISITS: Final = 8
"""So many pages have a dashboard at once, at most."""
MESSAGE_BYTES: Final = 1 << 20
"""The longest message of a page; what is pasted into it is one."""
HEARTBEAT_S: Final = 20.0
"""A page that has not answered for so long, in seconds, is gone."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FULL: Final = f"kasmon web: {MOST_VISITS} dashboards are open already. Close one of those pages first.\r\n"

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebView:
    """The server. `open` it, then `link` leads in; `close` ends every dashboard that it showed."""

    def __init__(
        self, environment: Mapping[str, str], address: str, port: int, dashboard: Sequence[str] = DASHBOARD
    ) -> None:
        """*environment*: the dashboards' variables; *address*: a loopback address; *port*: 0 for a free one;
        *dashboard*: what each page shows.

        Raises:
            UnavailableError: if what the page is made of is not there.
        """
        self._environment = dict(environment)
        self._address, self.port, self._argv = address, port, dashboard
        self._files: Mapping[str, PageFile] = page_files()
        self._enter = enter_page()
        self._runner: web.AppRunner | None = None
        self._sockets: set[web.WebSocketResponse] = set()
        self.visits: set[Visit] = set()
        self.gate = Gate(address, port)

    async def open(self) -> None:
        """Listen.

        Raises:
            UnavailableError: if the port is not to be had.
        """
        app = web.Application(middlewares=[self._guarded()])
        app.router.add_get("/{place}/ws", self._visit)
        app.router.add_get("/{place}/{name:.*}", self._file)
        runner = web.AppRunner(app, access_log=None, logger=_unheard())
        await runner.setup()
        try:
            await web.TCPSite(runner, self._address, self.port).start()
        except (OSError, OverflowError) as error:
            await runner.cleanup()
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise UnavailableError(
                f"port {self.port} of {self._address} is not to be had: {why}.", hint="`--port 0` takes a free one."
            ) from error
        self._runner = runner
        self.port = int(runner.addresses[0][1])
        self.gate = Gate(self._address, self.port)

    async def close(self) -> None:
        """Let nobody in any more, and end every dashboard; the agents go on."""
        if self._runner is not None:
            going = [socket.close(code=WSCloseCode.GOING_AWAY) for socket in self._sockets]
            await asyncio.gather(*going, return_exceptions=True)
            await self._runner.cleanup()
            self._runner = None

    def _guarded(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            """Every request comes through here, also those that lead nowhere."""
            asked = asked_by(request)
            if refusal := self.gate.refusal(asked):
                return self._plain(refusal.status, refusal.why)
            if asked.link is not None:
                return self._let_in()
            try:
                return await handler(request)
            except web.HTTPException as error:
                return self._plain(error.status, "nothing is here.")
            except Exception:  # the server goes on, and says no more to whoever asked
                log.exception("a request failed")
                return self._plain(500, "that failed; kasmon web's terminal says why.")

        return guard

    def _plain(self, status: int, sentence: str) -> web.Response:
        return web.Response(status=status, text=f"kasmon: {sentence}\n", headers=headers(self._own_name))

    @property
    def _own_name(self) -> str:
        return f"{self._address}:{self.port}"

    def _let_in(self) -> web.Response:
        answer = web.Response(body=self._enter, content_type="text/html", headers=headers(self._own_name))
        cookie = self.gate.change()
        answer.set_cookie(COOKIE, cookie, path=f"/{self.gate.place}/", httponly=True, samesite="Strict")
        return answer

    async def _file(self, request: web.Request) -> web.Response:
        file = self._files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound
        return web.Response(body=file.body, content_type=file.kind, headers=headers(request.headers["Host"]))

    async def _visit(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MESSAGE_BYTES, compress=False)
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            if len(self._sockets) > MOST_VISITS:
                await socket.send_bytes(FULL.encode())
            else:
                columns, rows = (fitting(request.query.get(name)) for name in ("width", "height"))
                await self._dashboard(socket, columns or 80, rows or 24)
            await socket.close()
        finally:
            self._sockets.discard(socket)
        return socket

    async def _dashboard(self, socket: web.WebSocketResponse, columns: int, rows: int) -> None:
        try:
            visit = await Visit.open(columns, rows, self._environment, self._argv)
        except OSError as error:
            await socket.send_bytes(f"kasmon web: no dashboard could be started: {error.strerror}.\r\n".encode())
            return
        self.visits.add(visit)
        try:
            await _live(visit, socket)
        finally:
            await visit.close()
            self.visits.discard(visit)


def asked_by(request: web.Request) -> Asked:
    """What *request* says that matters at the gate."""
    told = request.headers
    return Asked(
        path=request.path,
        method=request.method,
        hosts=told.getall("Host", []),
        origins=told.getall("Origin", []),
        sites=told.getall("Sec-Fetch-Site", []),
        purpose=told.get("Sec-Purpose", "") or told.get("Purpose", ""),
        link=request.query.get(LINK),
        cookie=request.cookies.get(COOKIE, ""),
        is_socket="Upgrade" in told or request.path.endswith("/ws"),
    )


async def _live(visit: Visit, socket: web.WebSocketResponse) -> None:
    """Carry what is drawn there and what is typed here, until either ends."""

    async def show() -> None:
        with contextlib.suppress(ConnectionError):  # the page is gone, which `hear` is told, too
            while drawn := await visit.read():
                await socket.send_bytes(drawn)
        await socket.close()

    showing = asyncio.create_task(show())
    try:
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await hear(visit, message.data)
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing


async def hear(visit: Visit, text: str) -> None:
    """Do what one message of textual-serve's script says; one that says nothing of keys or size is left unanswered."""
    try:
        said = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    match said:
        case ["stdin", str(keys)]:
            await visit.write(keys.encode())
        case ["resize", {"width": width, "height": height}]:
            columns, rows = fitting(width), fitting(height)
            if columns and rows:
                visit.resize(columns, rows)


def _unheard() -> logging.Logger:
    """Where aiohttp tells of requests that are none: with all that was in them, which may be a secret."""
    logger = logging.getLogger(f"{__name__}.http")
    logger.disabled = True
    return logger


async def serve(view: WebView, tell: Callable[[str], None]) -> int:
    """Serve until a signal comes; its number. *tell* gets each link: the first, and another for each Enter."""
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    signals: list[int] = []

    def hear_signal(number: int) -> None:
        signals.append(number)
        heard.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, hear_signal, number)
    await view.open()
    try:
        tell(view.gate.link())
        if sys.stdin is not None and sys.stdin.isatty():
            loop.add_reader(0, _again, view, tell)
        await heard.wait()
        return signals[0]
    finally:
        loop.remove_reader(0)
        await view.close()


def _again(view: WebView, tell: Callable[[str], None]) -> None:
    """Somebody pressed Enter, here or, if we are in the background, for another program of this terminal."""
    with contextlib.suppress(OSError):
        if os.tcgetpgrp(0) == os.getpgrp() and os.read(0, 4096):
            tell(view.gate.link())
            return
    asyncio.get_running_loop().remove_reader(0)
