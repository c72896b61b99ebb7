"""`kasmon web`: listen on loopback, check access, and give each page its own dashboard."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from kasmon.asyncio_tasks import TaskSet
from kasmon.errors import UnavailableError
from kasmon.host.journal.known_secrets import add_secrets
from kasmon.web.access import COOKIE, LINK, LOG_OUT, AccessGuard, AccessRequest
from kasmon.web.connections import Connections, Listener
from kasmon.web.dashboard_session import DASHBOARD, DashboardSession, clamp_size
from kasmon.web.fleet import handler as fleet_handler
from kasmon.web.fleet.handler import FleetPages
from kasmon.web.forms import BODY_BYTES
from kasmon.web.page import ENTER, PageFile, headers, page_files
from kasmon.web.request_handler import PREFIX, RequestPages
from kasmon.web.request_limits import Pace
from kasmon.web.tls import TlsListener

MOST_VISITS: Final = 8
"""The maximum number of pages with a dashboard at once."""
MESSAGE_BYTES: Final = 1 << 20
"""The maximum length of a page's message; a paste is one message."""
HEARTBEAT_S: Final = 20.0
"""A page that has not answered for this long, in seconds, is gone."""
GOODBYE_S: Final = 2.0
"""How long a page may take to close its connection after its dashboard ended, in seconds; then it is cut."""
REFUSED_BURST: Final = 40
"""How many requests are refused at once, before those that follow wait; what is accepted never waits."""
REFUSED_RATE_HZ: Final = 40.0
"""How many are refused a second from then on."""
REFUSED_WAIT_S: Final = 2.0
REPEAT_S: Final = 60.0
"""The interval after which a repeated error is logged again, in seconds."""
FULL: Final = f"kasmon web: {MOST_VISITS} dashboards are already open. Close one of those pages first.\r\n"

log = logging.getLogger(__name__)


class OpenPage(msgspec.Struct, frozen=True):
    """The browser behind a WebSocket."""

    cookie: str
    transport: asyncio.BaseTransport | None


RequestHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebView:
    """The server. `open` it, then `access_guard.create_link` gives access; `close` ends all its dashboards."""

    def __init__(
        self,
        environment: Mapping[str, str],
        address: str,
        port: int,
        dashboard: Sequence[str] = DASHBOARD,
        request_pages: RequestPages | None = None,
        fleet_pages: FleetPages | None = None,
        tls: TlsListener | None = None,
    ) -> None:
        """*environment*: the dashboards' variables; *address*: a loopback address; *port*: 0 for a free one;
        *dashboard*: the command of each page; *request_pages*: the pages that links to requests open;
        *fleet_pages*: the list of sessions; *tls*: where these pages are served to other machines too.

        Raises:
            UnavailableError: if the page's files are not available.
        """
        self._environment = dict(environment)
        self._address, self.port, self._argv = address, port, dashboard
        self._request_pages, self._fleet_pages, self._tls = request_pages, fleet_pages, tls
        self._files: Mapping[str, PageFile] = page_files()
        self._enter = (files("kasmon.web") / "page" / ENTER).read_bytes()
        self._runner: web.AppRunner | None = None
        self._listeners: list[Listener] = []
        self._sockets: dict[web.WebSocketResponse, OpenPage] = {}
        self._logged_at: dict[str, float] = {}
        self._ending = TaskSet()
        self.tls_port = 0
        """The port for other machines; 0 for none."""
        self.connections = Connections()
        self._pace = Pace(REFUSED_BURST, REFUSED_RATE_HZ, REFUSED_WAIT_S)
        self.dashboards: set[DashboardSession] = set()
        self.access_guard = AccessGuard(address, port)

    async def open(self) -> None:
        """Listen. Raises `UnavailableError` if the port is not available."""
        app = web.Application(middlewares=[self._guard()], client_max_size=BODY_BYTES)
        app.router.add_get("/{place}/ws", self._serve_socket)
        app.router.add_get("/{place}/{name:.*}", self._file)
        app.router.add_post(f"/{{place}}/{LOG_OUT}", self._log_out)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=GOODBYE_S)
        await runner.setup()
        assert runner.server is not None
        factory, where = self.connections.protocol_factory(runner.server), (self._address, self.port)
        try:
            self._listeners.append(Listener(*where, factory))
            if self._tls is not None:
                where = self._tls.address, self._tls.port
                self._listeners.append(Listener(*where, factory, self._tls.context))
        except (OSError, OverflowError) as error:
            for listener in self._listeners:
                listener.close()
            await runner.cleanup()
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            hint = "`--port 0` uses a free port." if where[0] == self._address else ""
            raise UnavailableError(f"port {where[1]} of {where[0]} is unavailable: {why}.", hint=hint) from error
        asyncio.get_running_loop().set_exception_handler(self._log_unhandled)
        self._runner = runner
        self.port = self._listeners[0].port
        if self._tls is not None:
            self.tls_port = self._listeners[1].port
        self.access_guard = AccessGuard(self._address, self.port)

    def revoke(self, cookie: str | None = None) -> None:
        """Log out the browser with *cookie*, or all: revoke the cookie, and end the dashboards."""
        self.access_guard.revoke(cookie)
        sockets = [socket for socket, of in self._sockets.items() if cookie is None or of.cookie == cookie]
        self._ending.start(self._hang_up(sockets))

    async def _hang_up(self, sockets: Sequence[web.WebSocketResponse]) -> None:
        """Close each of *sockets*, and cut those that do not answer in time."""
        opened = [self._sockets[socket] for socket in sockets]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                going = [socket.close(code=WSCloseCode.GOING_AWAY) for socket in sockets]
                await asyncio.gather(*going, return_exceptions=True)
                return
        for each in opened:
            _abort(each.transport)

    def _log_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the loop in one line, such as too many open files; not again for a while."""
        error = context.get("exception")
        what = f"{context.get('message') or 'something failed'}: {error!r}" if error else str(context.get("message"))
        if loop.time() >= self._logged_at.get(what, 0.0):
            self._logged_at = {**dict(list(self._logged_at.items())[-20:]), what: loop.time() + REPEAT_S}
            log.warning("%s", what)

    async def close(self) -> None:
        """Stop listening, and end every dashboard; the agents keep running."""
        if self._runner is not None:
            for listener in self._listeners:
                listener.close()
            await self._hang_up(list(self._sockets))
            await self._runner.cleanup()
            if self._fleet_pages is not None:
                await self._fleet_pages.streams.aclose()
            self._runner = None

    def _guard(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: RequestHandler) -> web.StreamResponse:
            """Check every request, also those for unknown paths. Refusals wait during a flood."""
            answer = await check(request, handler)
            if answer.status >= 400 and (wait_s := self._pace.add(asyncio.get_running_loop().time())):
                await asyncio.sleep(wait_s)
            if answer.status == 503:  # more than are served at once: it must not keep its connection
                answer.force_close()
            return answer

        async def check(request: web.Request, handler: RequestHandler) -> web.StreamResponse:
            if self._request_pages is not None and request.path.startswith(PREFIX):
                return await self._serve_page(self._request_pages, request)
            if self._fleet_pages is not None and request.path.startswith(fleet_handler.PREFIX):
                return await self._serve_page(self._fleet_pages, request)
            if request.secure:
                return self._plain(404, "not found.")
            asked = parse_request(request)
            if refusal := self.access_guard.refusal(asked):
                return self._plain(refusal.status, refusal.why)
            self.connections.mark_accepted(request.transport)
            if asked.link is not None and asked.method == "GET":
                return self._log_in()
            try:
                return await handler(request)
            except web.HTTPException as error:
                return self._plain(error.status, "not found.")
            except Exception as error:  # noqa: BLE001 - the server keeps running, and the client gets no details
                self._log_unhandled(
                    asyncio.get_running_loop(), {"message": f"a request for {request.path!r}", "exception": error}
                )
                return self._plain(500, "internal error; see the terminal of `kasmon web`.")

        return guard

    async def _serve_page(self, pages: RequestPages | FleetPages, request: web.Request) -> web.StreamResponse:
        try:
            hosts = frozenset[str]() if request.secure else self.access_guard.hosts
            return await pages.handle(request, hosts, self.connections)
        except Exception as error:  # noqa: BLE001 - as for other paths; this one is a secret
            self._log_unhandled(asyncio.get_running_loop(), {"message": "a page", "exception": error})
            return self._plain(500, "internal error; see the terminal of `kasmon web`.")

    def _plain(self, status: int, sentence: str) -> web.Response:
        return web.Response(status=status, text=f"kasmon: {sentence}\n", headers=headers(self._own_name))

    @property
    def url(self) -> str:
        """The address of the server, without a path."""
        return f"http://{self.access_guard.address}:{self.port}"

    @property
    def _own_name(self) -> str:
        return f"{self._address}:{self.port}"

    def _log_in(self) -> web.Response:
        answer = web.Response(body=self._enter, content_type="text/html", headers=headers(self._own_name))
        cookie = self.access_guard.change()
        add_secrets([cookie])
        answer.set_cookie(COOKIE, cookie, path=f"/{self.access_guard.folder}/", httponly=True, samesite="Strict")
        return answer

    async def _log_out(self, request: web.Request) -> web.Response:
        self.revoke(request.cookies.get(COOKIE, ""))
        answer = self._plain(200, "logged out.")
        answer.del_cookie(COOKIE, path=f"/{self.access_guard.folder}/")
        return answer

    async def _file(self, request: web.Request) -> web.Response:
        file = self._files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound
        return web.Response(body=file.body, content_type=file.kind, headers=headers(request.headers["Host"]))

    async def _serve_socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MESSAGE_BYTES, compress=False)
        await socket.prepare(request)
        self._sockets[socket] = OpenPage(request.cookies.get(COOKIE, ""), request.transport)
        try:
            if len(self._sockets) > MOST_VISITS:
                await socket.send_bytes(FULL.encode())
            else:
                columns, rows = (clamp_size(request.query.get(name)) for name in ("width", "height"))
                await self._serve_dashboard(socket, columns or 80, rows or 24)
            await socket.close()
        finally:
            opened = self._sockets.pop(socket)
            asyncio.get_running_loop().call_later(GOODBYE_S, _abort, opened.transport)  # if it does not read the end
        return socket

    async def _serve_dashboard(self, socket: web.WebSocketResponse, columns: int, rows: int) -> None:
        try:
            session = await DashboardSession.open(columns, rows, self._environment, self._argv)
        except OSError as error:
            await socket.send_bytes(f"kasmon web: no dashboard could be started: {error.strerror}.\r\n".encode())
            return
        self.dashboards.add(session)
        try:
            await _connect(session, socket)
        finally:
            await session.close()
            self.dashboards.discard(session)


def parse_request(request: web.Request) -> AccessRequest:
    """Return the parts of *request* that matter for access."""
    request_headers = request.headers
    return AccessRequest(
        path=request.path,
        method=request.method,
        hosts=request_headers.getall("Host", []),
        origins=request_headers.getall("Origin", []),
        sites=request_headers.getall("Sec-Fetch-Site", []),
        purpose=request_headers.get("Sec-Purpose", "") or request_headers.get("Purpose", ""),
        link=request.query.get(LINK),
        cookie=request.cookies.get(COOKIE, ""),
        is_socket="Upgrade" in request_headers or request.path.endswith("/ws"),
    )


async def _connect(session: DashboardSession, socket: web.WebSocketResponse) -> None:
    """Transfer output and input between dashboard and page, until either ends."""

    async def show() -> None:
        with contextlib.suppress(ConnectionError):  # the page is gone, which ends the loop below too
            while drawn := await session.read():
                await socket.send_bytes(drawn)
        await socket.close()

    showing = asyncio.create_task(show())
    try:
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await handle_message(session, message.data)
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing


async def handle_message(session: DashboardSession, text: str) -> None:
    """Apply one message of textual-serve's script; ignore one that contains neither keys nor a size."""
    try:
        message = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    match message:
        case ["stdin", str(keys)]:
            await session.write(keys.encode())
        case ["resize", {"width": width, "height": height}]:
            columns, rows = clamp_size(width), clamp_size(height)
            if columns and rows:
                session.resize(columns, rows)


def _abort(transport: asyncio.BaseTransport | None) -> None:
    if isinstance(transport, asyncio.Transport):
        transport.abort()
