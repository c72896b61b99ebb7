"""Answers requests for the list of sessions: who is logged in, what a form changes, and what became of it.

A browser logs in by the form of a link that works once, and gets a cookie. Opening a page changes nothing.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Collection
from secrets import token_urlsafe
from typing import Final

import msgspec
from aiohttp import web

from kasmon.config.schema import WebConfig
from kasmon.errors import KasmonError, RefusedError, SessionNotFoundError, UsageError
from kasmon.host.journal.known_secrets import add_secrets
from kasmon.model.commands import LINK_ID_LENGTH
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sanitize import clean_line
from kasmon.store.passkeys import Passkeys
from kasmon.store.push_subscriptions import PushSubscriptions
from kasmon.store.request_links import RequestLinks
from kasmon.store.web_logins import LoginState, WebLogin, WebLogins
from kasmon.supervisor.fleet.snapshot import read_fleet, read_session
from kasmon.supervisor.notifications.notifier import start_notifier
from kasmon.supervisor.notifications.web_push import public_key
from kasmon.supervisor.request_links import FOLDER, LIST_FOLDER
from kasmon.supervisor.sessions import session_operations
from kasmon.web.access import OURS
from kasmon.web.connections import Connections
from kasmon.web.fleet import html
from kasmon.web.fleet.event_streams import EventStreams
from kasmon.web.fleet.html import Blocks
from kasmon.web.fleet.passkeys import PasskeyChecks, PasskeyHost
from kasmon.web.forms import (
    Fields,
    RefusedPageError,
    accept_form,
    must_be_alone,
    must_be_own_host,
    must_be_sent_by_a_person,
    respond,
    respond_notice,
)
from kasmon.web.request_limits import LOCKED_S, WINDOW_S, RequestLimits

PREFIX: Final = f"/{LIST_FOLDER}/"
COOKIE: Final = "kasmon_login"
SEND_S: Final = 30.0
"""How long a host may take to take a prompt, in seconds."""
MAX_SENT: Final = 256
"""How many forms for prompts are remembered, so that each sends once."""
STATUSES: Final[dict[type[KasmonError], int]] = {UsageError: 400, RefusedError: 403, SessionNotFoundError: 404}
"""The status of a page for each error; 503 for others."""
BROWSER_LENGTH: Final = 100
LOG_IN: Final = "Run `kasmon web links login` on your computer, and open its link here."

log = logging.getLogger(__name__)


class FleetPages:
    """Serves the list of sessions, and a page for each, below `PREFIX`. Use it on the server's loop."""

    def __init__(self, paths: Paths, config: WebConfig) -> None:
        self._paths, self._config = paths, config
        self._logins, self._links = WebLogins(paths), RequestLinks(paths)
        self._passkeys = Passkeys(paths)
        self._subscriptions = PushSubscriptions(paths)
        self._checks = PasskeyChecks(self._passkeys)
        self._sent: OrderedDict[str, None] = OrderedDict()
        """The values of forms whose prompts were sent, the oldest first."""
        self.streams = EventStreams(paths)
        self.limits = RequestLimits()

    @property
    def _public_host(self) -> str:
        """The host name under which the list is served elsewhere; empty for none."""
        return self._config.link_url.removeprefix("https://") if self._config.link_list else ""

    async def handle(
        self, request: web.Request, hosts: Collection[str], connections: Connections
    ) -> web.StreamResponse:
        """Return the answer to *request*, whose path begins with `PREFIX`.

        *hosts* are the server's own names. The connection is marked as accepted in *connections* once the whole request
        was read, if its browser is logged in or its link is valid.
        """
        try:
            return await self._handle(request, hosts, connections)
        except RefusedPageError as error:
            return respond_notice(error.status, error.heading, error.sentences)
        except KasmonError as error:
            known = (status for kind, status in STATUSES.items() if isinstance(error, kind))
            return respond_notice(next(known, 503), "Not possible", (error.message, error.hint))

    async def _handle(
        self, request: web.Request, hosts: Collection[str], connections: Connections
    ) -> web.StreamResponse:
        if request.method not in ("GET", "POST"):
            raise RefusedPageError(405, "Method not allowed")
        must_be_own_host(request, {*hosts, self._public_host})
        must_be_alone(request)
        place, _, path = request.path.removeprefix(PREFIX).partition("/")
        login = await self._find_login(request)
        if login is None and path.startswith("login/"):
            return await self._log_in(request, path.removeprefix("login/"), connections)
        if place != await asyncio.to_thread(lambda: self._logins.place):
            raise RefusedPageError(403, "Not logged in", LOG_IN)
        if login is None:
            return await self._log_in_by_passkey(request, path, connections)
        if path.startswith("login/"):
            return self._redirect(place, "")
        if not self.limits.add_view(login.id, time.monotonic()):
            raise RefusedPageError(429, "Opened too often", f"Wait {WINDOW_S:.0f} seconds.")
        if request.method == "POST":
            fields = await accept_form(request, self._config.link_url, connections)
            await self._must_be_form_of(login, fields)
            return await self._change(request, place, path, login, fields)
        if not OURS.issuperset(request.headers.getall("Sec-Fetch-Site", [])):
            raise RefusedPageError(403, "The request came from another site")
        connections.mark_accepted(request.transport)
        return await self._show(request, path, login)

    async def _find_login(self, request: web.Request) -> WebLogin | None:
        cookie = request.cookies.get(COOKIE, "")
        login = await asyncio.to_thread(self._logins.find, cookie, time.time()) if cookie else None
        if cookie and login is None:
            self._count_unknown(request)
        return login

    def _count_unknown(self, request: web.Request) -> None:
        """Count a cookie or a link that is unknown. Raises `RefusedPageError` if its address is locked out."""
        address, now = request.remote or "", time.monotonic()
        if self.limits.is_locked(address, now):
            raise RefusedPageError(429, "Too many unknown links", f"Wait {LOCKED_S / 60:.0f} minutes.")
        self.limits.add_unknown(address, now)

    async def _log_in(self, request: web.Request, token: str, connections: Connections) -> web.StreamResponse:
        """Show the page of a link that logs in, or accept its form."""
        link = await asyncio.to_thread(self._logins.find_link, token)
        if link is None:
            self._count_unknown(request)
            raise RefusedPageError(404, "Unknown link", "It is not known here, or was used.", LOG_IN)
        if link.state(time.time()) is not LoginState.UNUSED:
            raise RefusedPageError(410, f"This link is {link.state(time.time())}", LOG_IN)
        if request.method == "GET":
            connections.mark_accepted(request.transport)
            value = await asyncio.to_thread(self._logins.form_value, link)
            return respond(html.render_login(value), headers=html.HEADERS)
        fields = await accept_form(request, self._config.link_url, connections)
        await self._must_be_form_of(link, fields)
        await must_be_sent_by_a_person(request, "log in to the list of sessions")
        days, now = self._config.login_days, time.time()
        cookie = await asyncio.to_thread(self._logins.use, link.id, _browser_of(request), days, now)
        if not cookie:
            raise RefusedPageError(410, "This link was used", LOG_IN)
        return self._redirect_with(request, cookie)

    def _redirect_with(self, request: web.Request, cookie: str) -> web.Response:
        """Lead a browser that logged in to the list."""
        add_secrets([cookie])
        log.info("login %s: a browser logged in", cookie[:LINK_ID_LENGTH])
        place = self._logins.place
        answer = self._redirect(place, "")
        answer.set_cookie(
            COOKIE,
            cookie,
            path=f"{PREFIX}{place}/",
            max_age=round(self._config.login_days * 86_400),
            httponly=True,
            samesite="Strict",
            secure=request.headers["Host"].lower() == self._public_host,  # also behind a program that forwards HTTPS
        )
        return answer

    async def _log_in_by_passkey(self, request: web.Request, path: str, connections: Connections) -> web.StreamResponse:
        """Offer to log in by a passkey where there is one, or accept it."""
        host = self._passkey_host(request)
        passkeys = await asyncio.to_thread(self._passkeys.active, host.name) if host is not None else ()
        if host is None or not passkeys or path not in ("", "passkey/challenge", "passkey/login"):
            raise RefusedPageError(403, "Not logged in", LOG_IN)
        if request.method == "GET":
            connections.mark_accepted(request.transport)
            return respond(html.render_logged_out(LOG_IN), 403, html.HEADERS)
        fields = await accept_form(request, self._config.link_url, connections)
        if not self.limits.add_view(f"passkeys {request.remote}", time.monotonic()):
            raise RefusedPageError(429, "Tried too often", f"Wait {WINDOW_S:.0f} seconds.")
        if path == "passkey/challenge":
            return _respond_json(await asyncio.to_thread(self._checks.request_options, host))
        await must_be_sent_by_a_person(request, "log in to the list of sessions")
        credential, now = (fields.get("credential") or [""])[0], time.time()
        passkey = await asyncio.to_thread(self._checks.verify, host, credential, now)
        cookie = await asyncio.to_thread(
            self._logins.use_passkey, passkey.id, _browser_of(request), self._config.login_days, now
        )
        return self._redirect_with(request, cookie)

    def _passkey_host(self, request: web.Request) -> PasskeyHost | None:
        """Return the name that passkeys are bound to; None where browsers accept none: they need HTTPS or localhost."""
        host = request.headers["Host"].lower()
        if host == self._public_host:
            return PasskeyHost(host.partition(":")[0], self._config.link_url)
        name = host.partition(":")[0]
        return PasskeyHost(name, f"http://{host}") if name == "localhost" else None

    async def _must_be_form_of(self, login: WebLogin, fields: Fields) -> None:
        if fields.get("form") != [await asyncio.to_thread(self._logins.form_value, login)]:
            raise RefusedPageError(403, "The form is not of this page", "Nothing was sent.")

    async def _show(self, request: web.Request, path: str, login: WebLogin) -> web.StreamResponse:
        if path == "events":
            return await self._stream(request, login)
        if path in html.APP_FILES:
            kind, text = html.APP_FILES[path]
            return web.Response(text=text, content_type=kind, charset="utf-8", headers=html.HEADERS)
        value = await asyncio.to_thread(self._logins.form_value, login)
        if path == "":
            blocks = html.list_blocks(await asyncio.to_thread(read_fleet, self._paths))
            can_add = self._passkey_host(request) is not None
            page = html.render_list(blocks, value, time.time(), can_add_passkey=can_add)
            return respond(page, headers=html.HEADERS)
        if path.startswith("s/"):
            session = await asyncio.to_thread(read_session, self._paths, SessionId(path.removeprefix("s/")))
            return await self._show_session(session, login)
        raise RefusedPageError(404, "There is no such page")

    async def _show_session(
        self, session: Session, login: WebLogin, note: str = "", text: str = "", status: int = 200
    ) -> web.Response:
        value = await asyncio.to_thread(self._logins.form_value, login)
        page = html.render_session(
            session,
            html.session_blocks(session),
            form_value=value,
            once=token_urlsafe(12),
            now=time.time(),
            note=note,
            text=text,
        )
        return respond(page, status, html.HEADERS)

    async def _stream(self, request: web.Request, login: WebLogin) -> web.StreamResponse:
        """Stream the live part of the list, or of the page of one session, until the login ends."""
        wanted = request.query.get("session", "")
        if not self.streams.has_space(login.id):
            raise RefusedPageError(503, "Too many pages are open", "Close one of them; this one is not live.")

        def render(fleet: Fleet) -> Blocks:
            if not wanted:
                return html.list_blocks(fleet)
            session = fleet.get(SessionId(wanted))
            return html.session_blocks(session) if session is not None else {"b-state": html.REMOVED}

        async def is_active() -> bool:
            """Return whether the page is open and its login active: a closed page must not keep its place."""
            if request.transport is None or request.transport.is_closing():
                return False
            return await asyncio.to_thread(self._logins.is_active, login.id, time.time())

        response = web.StreamResponse(headers={**html.HEADERS, "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        try:
            await response.prepare(request)
            await self.streams.stream(response, login.id, render, is_active)
        except OSError:
            if isinstance(request.transport, asyncio.Transport):
                request.transport.abort()
        return response

    async def _change(
        self, request: web.Request, place: str, path: str, login: WebLogin, fields: Fields
    ) -> web.StreamResponse:
        if path == "logout":
            return await self._log_out(place, login)
        await must_be_sent_by_a_person(request, "use the list of sessions")
        if path.startswith("push/"):
            return await self._subscribe(path, login, fields)
        if path.startswith("passkey/"):
            return await self._add_passkey(request, path, login, fields)
        if path == "open":
            return await self._open_request((fields.get("request") or [""])[0], login)
        if path.startswith("s/"):
            return await self._send(place, SessionId(path.removeprefix("s/")), login, fields)
        raise RefusedPageError(404, "There is no such page")

    async def _add_passkey(
        self, request: web.Request, path: str, login: WebLogin, fields: Fields
    ) -> web.StreamResponse:
        """Return what a browser needs to create a passkey, or add the one that it created."""
        if (host := self._passkey_host(request)) is None:
            raise RefusedPageError(403, "A passkey needs HTTPS, or the name localhost", "Nothing was added.")
        if path == "passkey/options":
            options = await asyncio.to_thread(self._checks.creation_options, login, host, self._logins.place)
            return _respond_json(options)
        if path != "passkey/register":
            raise RefusedPageError(404, "There is no such page")
        credential = (fields.get("credential") or [""])[0]
        await asyncio.to_thread(self._checks.register, login, host, credential, time.time())
        log.info("login %s added a passkey", login.id)
        return _respond_json("{}")

    async def _subscribe(self, path: str, login: WebLogin, fields: Fields) -> web.StreamResponse:
        """Return the key that a browser subscribes with, or record or end its subscription."""
        if path == "push/key":
            key = public_key(await asyncio.to_thread(self._subscriptions.key))
            return _respond_json(msgspec.json.encode({"key": list(key)}).decode())
        if path == "push/subscribe":
            subscription = (fields.get("subscription") or [""])[0].encode()
            await asyncio.to_thread(self._subscriptions.add, subscription, login.id, time.time())
            await asyncio.to_thread(start_notifier, self._paths)
            log.info("login %s subscribed to Web Push", login.id)
        elif path == "push/end":
            await asyncio.to_thread(lambda: self._subscriptions.remove(login=login.id))
        else:
            raise RefusedPageError(404, "There is no such page")
        return _respond_json("{}")

    async def _log_out(self, place: str, login: WebLogin) -> web.StreamResponse:
        with contextlib.suppress(KasmonError):  # it was revoked at this moment
            await asyncio.to_thread(self._logins.revoke, time.time(), login.id)
        answer = respond_notice(200, "Logged out", (LOG_IN,))
        answer.del_cookie(COOKIE, path=f"{PREFIX}{place}/")
        return answer

    async def _open_request(self, wanted: str, login: WebLogin) -> web.StreamResponse:
        """Lead to the page of a request, by a link of this login."""
        found = html.find_request(await asyncio.to_thread(read_fleet, self._paths), wanted)
        if found is None:
            raise RefusedPageError(410, "This request is closed", "The agent no longer waits for it.")
        token = await asyncio.to_thread(self._links.create, found[1], self._config.link_minutes, time.time(), login.id)
        return web.Response(status=303, headers={**html.HEADERS, "Location": f"/{FOLDER}/{token}"})

    async def _send(self, place: str, wanted: SessionId, login: WebLogin, fields: Fields) -> web.StreamResponse:
        """Send a prompt once, and lead to the page that shows its receipt."""
        session = await asyncio.to_thread(read_session, self._paths, wanted)
        text = (fields.get("prompt") or [""])[0].replace("\r\n", "\n").strip()
        once = (fields.get("once") or [""])[0]
        if not text or len(text) > html.PROMPT_LENGTH:
            why = f"it is longer than {html.PROMPT_LENGTH} characters" if text else "there is no text"
            return await self._show_session(
                session, login, f"Nothing was sent: {why}.", text[: html.PROMPT_LENGTH], 400
            )
        if not 0 < len(once) <= 32 or once in self._sent:
            return await self._show_session(
                session, login, "This prompt was sent before. Nothing was sent now.", "", 409
            )
        self._sent[once] = None
        while len(self._sent) > MAX_SENT:
            self._sent.popitem(last=False)
        try:
            async with asyncio.timeout(SEND_S):
                receipt = await session_operations.send(
                    self._paths, session, text, "idle" if fields.get("when") == ["idle"] else "now", login=login.id
                )
        except TimeoutError:
            note = f"The host did not answer within {SEND_S:.0f} s. It is unknown whether it has the prompt."
            return await self._show_session(session, login, note, text, 504)
        except KasmonError as error:
            log.warning("login %s: the prompt to %s failed: %s", login.id, session.id, error.message)
            note = f"The prompt was not sent: {error.message} {error.hint or ''}".strip()
            return await self._show_session(session, login, note, text, 502)
        log.info("login %s sent a prompt to %s: %s", login.id, session.id, receipt.state)
        return self._redirect(place, f"s/{session.id}#p-{receipt.id}")

    def _redirect(self, place: str, path: str) -> web.Response:
        return web.Response(status=303, headers={**html.HEADERS, "Location": f"{PREFIX}{place}/{path}"})


def _respond_json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json", headers=html.HEADERS)


def _browser_of(request: web.Request) -> str:
    """Return what the browser calls itself, clean."""
    return clean_line(request.headers.get("User-Agent", ""))[:BROWSER_LENGTH]
