"""Answers requests for the page of one request: who may open it, what a form changes, and what became of it.

Opening a page changes nothing, since programs that preview links open it too. A form is accepted only from that page,
in a browser of this user, and the link is used up, on disk, before the answer is sent.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from aiohttp import web

from kasmon.config.schema import WebConfig
from kasmon.errors import KasmonError, RefusedError, SessionNotFoundError, TimedOutError, UnavailableError, UsageError
from kasmon.host.journal.secrets import secrets_of
from kasmon.host.session.request_registry import CHANGED
from kasmon.model.answer import must_be_complete
from kasmon.model.commands import Answer, Mode
from kasmon.model.permission import CONSENTS, ClosedRequest, Decision, Request
from kasmon.model.session import Session, number
from kasmon.model.transcript.request_text import RequestDocument, sheet
from kasmon.paths import Paths
from kasmon.sanitize import clean_line
from kasmon.store.request_links import Form, LinkState, RequestLink, RequestLinks
from kasmon.store.web_logins import WebLogins
from kasmon.supervisor.fleet.snapshot import read_session
from kasmon.supervisor.request_links import FOLDER, LIST_FOLDER
from kasmon.supervisor.sessions import session_operations
from kasmon.web.connections import Connections
from kasmon.web.forms import (
    TEXT_LENGTH,
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
from kasmon.web.request_page import HEADERS, RequestPage, offered, render_outcome, render_request, split

PREFIX: Final = f"/{FOLDER}/"
MAX_RENDERED: Final = 2
"""How many pages are rendered at once; others wait."""
MAX_DOCUMENTS: Final = 4
"""How many requests are kept as they are read."""
UNKNOWN: Final = (
    "Unknown link",
    ("It is not known here, or was forgotten.", "Answer the request in kasmon, or open a newer link."),
)
STATES: Final = {
    LinkState.EXPIRED: ("This link has expired", ("Answer the request in kasmon, or open a newer link.",)),
    LinkState.REVOKED: ("This link was revoked", ("Answer the request in kasmon.",)),
    LinkState.USED: ("This link was used", ("It answered its request, and opens nothing more.",)),
}
UNDELIVERED: Final = "The answer was not delivered"
UNSURE: Final = "It is unknown whether the answer arrived"
LOOK: Final = "Look at the session in kasmon."

log = logging.getLogger(__name__)


class RequestPages:
    """Serves the pages of requests below `PREFIX`. Use it on the server's loop."""

    def __init__(self, paths: Paths, config: WebConfig) -> None:
        self._paths, self._config = paths, config
        self._links, self._logins = RequestLinks(paths), WebLogins(paths)
        self._rendering = asyncio.Semaphore(MAX_RENDERED)
        self._documents: OrderedDict[tuple[str, tuple[str, ...]], tuple[RequestDocument, Sequence[str]]] = OrderedDict()
        """The requests that were shown last, by digest and hidden secrets, with their parts."""
        self.limits = RequestLimits()

    @property
    def public_host(self) -> str:
        """The host name under which only these pages are served; empty for none."""
        return self._config.link_url.removeprefix("https://")

    async def handle(self, request: web.Request, hosts: Collection[str], connections: Connections) -> web.Response:
        """Return the answer to *request*, whose path begins with `PREFIX`.

        *hosts* are the server's own names. The connection is marked as accepted in *connections* once the whole request
        was read, if its link is valid.
        """
        try:
            return await self._handle(request, hosts, connections)
        except RefusedPageError as error:
            return respond_notice(error.status, error.heading, error.sentences)
        except KasmonError as error:
            status = 403 if isinstance(error, RefusedError) else 503
            return respond_notice(status, "Not possible", (error.message, error.hint))

    async def _handle(self, request: web.Request, hosts: Collection[str], connections: Connections) -> web.Response:
        if request.method not in ("GET", "POST"):
            raise RefusedPageError(405, "Method not allowed")
        link = await self._find_link(request, hosts)
        must_be_alone(request)
        if request.method == "POST":
            fields = await accept_form(request, self._config.link_url, connections)
            return await self._answer(request, link, fields)
        connections.mark_accepted(request.transport)
        return await self._show(link, _part_of(request))

    async def _find_link(self, request: web.Request, hosts: Collection[str]) -> RequestLink:
        must_be_own_host(request, {*hosts, self.public_host})
        address, now = request.remote or "", time.monotonic()
        link = await asyncio.to_thread(self._links.find, request.path.removeprefix(PREFIX))
        if link is None:
            if self.limits.is_locked(address, now):
                raise RefusedPageError(429, "Too many unknown links", f"Wait {LOCKED_S / 60:.0f} minutes.")
            self.limits.add_unknown(address, now)
            raise RefusedPageError(404, UNKNOWN[0], *UNKNOWN[1])
        if not self.limits.add_view(link.id, now):
            raise RefusedPageError(429, "Opened too often", f"Wait {WINDOW_S:.0f} seconds.")
        if link.login and not await asyncio.to_thread(self._logins.is_active, link.login, time.time()):
            raise RefusedPageError(410, "This browser was logged out", "Answer the request in kasmon.")
        return link

    async def _show(self, link: RequestLink, part: int, note: str = "", status: int = 200) -> web.Response:
        if link.state(time.time()) in (LinkState.EXPIRED, LinkState.REVOKED):
            heading, sentences = STATES[link.state(time.time())]
            raise RefusedPageError(410, heading, *sentences)
        async with self._rendering:
            return await asyncio.to_thread(self._render, link, part, note, status)

    def _render(self, link: RequestLink, part: int, note: str, status: int) -> web.Response:
        now = time.time()
        session = self._session_of(link)
        if session is None:
            raise RefusedPageError(410, "The session was removed", "Its request was withdrawn.")
        request = session.open_request(link.request)
        if request is not None and request.digest == link.digest:
            if link.state(now) is LinkState.USED:
                heading, sentences = STATES[LinkState.USED]
                raise RefusedPageError(410, heading, note or "The agent has not received that answer.", *sentences)
            page = self._page_of(link, session, request, now)
            return respond(render_request(msgspec.structs.replace(page, part=part, note=note)), status)
        closed = next((each for each in session.closed if each.id == link.request), None)
        new = request or _successor(session, link, closed)
        if new is not None and link.state(now) is LinkState.OPEN:
            changed = "The agent changed its request. This is the new one; this link cannot answer it."
            page = msgspec.structs.replace(self._page_of(link, session, new, now), part=part, note=changed, forms={})
            return respond(render_request(page), 409 if status == 200 else status)
        if closed is None and session.is_unreachable:
            heading = UNSURE if link.state(now) is LinkState.USED else "It is unknown whether the agent still waits"
            raise RefusedPageError(503, heading, note, f"{clean_line(session.via)} is unreachable. {LOOK}")
        if closed is None:
            raise RefusedPageError(410, "This request is closed", "The agent no longer waits for it.")
        return respond(render_outcome(closed, session.label, now, note, self._list_of(link)), status)

    def _session_of(self, link: RequestLink) -> Session | None:
        try:
            return read_session(self._paths, link.session)
        except SessionNotFoundError:
            return None

    def _page_of(self, link: RequestLink, session: Session, request: Request, now: float) -> RequestPage:
        is_told = session.mode is not Mode.TMUX and (not session.abilities or "receives_reasons" in session.abilities)
        forms: dict[Form, str] = {form: self._links.form_value(link, form) for form in ("consent", "other")}
        document, parts = self._document_of(request, secrets_of(self._paths, session.id))
        return RequestPage(
            session=session,
            document=document,
            parts=parts,
            now=now,
            expires_at=link.expires_at,
            forms=forms,
            rules=self._config.link_rules,
            reads_reasons=request.takes_reason or is_told,
            back=self._list_of(link),
        )

    def _list_of(self, link: RequestLink) -> str:
        """Return the path of the list of sessions that *link* was opened from; empty if it was sent."""
        return f"/{LIST_FOLDER}/{self._logins.place}/" if link.login else ""

    def _document_of(self, request: Request, secrets: tuple[str, ...]) -> tuple[RequestDocument, Sequence[str]]:
        """Return *request* as it is read, and its parts; that of a long one takes seconds, so a few are kept."""
        known = self._documents.pop((request.digest, secrets), None)
        if known is None:
            document = sheet(request, secrets)
            known = document, split(document)
        self._documents[request.digest, secrets] = known
        while len(self._documents) > MAX_DOCUMENTS:
            self._documents.popitem(last=False)
        return msgspec.structs.replace(known[0], request=request), known[1]  # it may have been set aside meanwhile

    async def _answer(self, request: web.Request, link: RequestLink, fields: Fields) -> web.Response:
        """Accept a form of the page of *link*: record that the link is used, then send the answer."""
        await must_be_sent_by_a_person(request)
        if link.state(time.time()) is not LinkState.OPEN:
            return await self._show(link, 1)
        session = await asyncio.to_thread(self._session_of, link)
        waiting = None if session is None else session.open_request(link.request)
        if session is None or waiting is None or waiting.digest != link.digest or fields.get("digest") != [link.digest]:
            return await self._show(link, 1, "Nothing was sent.", 409)
        async with self._rendering:
            page = await asyncio.to_thread(self._page_of, link, session, waiting, time.time())
        try:
            answer = _parse_answer(page, fields, link)
        except UsageError as error:
            return await self._show(link, 1_000_000, f"Nothing was sent: {error.message}", 400)
        if answer.decision is not Decision.LATER and not await asyncio.to_thread(
            self._links.use, link.id, answer.decision, time.time()
        ):
            raise RefusedPageError(409, "This link was used", "Nothing was sent.")
        if answer.decision is not Decision.LATER or not waiting.later:
            await self._send(session, answer)
        return web.Response(status=303, headers={**HEADERS, "Location": request.path})

    async def _send(self, session: Session, answer: Answer) -> None:
        try:
            await session_operations.execute(self._paths, session, answer)
        except KasmonError as error:
            log.warning("link %s: the answer to %s failed: %s", answer.link, answer.request, error.message)
            is_unsure = isinstance(error, TimedOutError) or (session.via and isinstance(error, UnavailableError))
            heading = UNSURE if is_unsure else UNDELIVERED
            used = "This link is used up." if answer.decision is not Decision.LATER else ""
            raise RefusedPageError(502, heading, error.message, used, LOOK) from error
        log.info("link %s answered %s: %s", answer.link, answer.request, answer.decision)


def _parse_answer(page: RequestPage, fields: Fields, link: RequestLink) -> Answer:
    """Return the answer that the form *fields* give.

    Raises:
        RefusedPageError: if the page has no such form.
        UsageError: if something is missing or wrong in it.
    """
    decision_text = (fields.get("decision") or [""])[0]
    decision = next((each for each in offered(page) if each.value == decision_text), None)
    form: Form = "consent" if decision in CONSENTS else "other"
    if decision is None or fields.get("form") != [page.forms[form]]:
        raise RefusedPageError(403, "The form is not of this page", "Nothing was sent.")
    document, request = page.document, page.document.request
    typed = (fields.get("letters") or [""])[0].strip().casefold()
    if decision in CONSENTS and document.hidden and typed != document.letters:
        raise UsageError(f"type {document.letters!r} to allow a request with hidden characters.")
    options = fields.get("option", []) if decision is Decision.CHOOSE else []
    if any(not (each.isascii() and each.isdecimal() and int(each) < len(request.options)) for each in options):
        raise UsageError("there is no such option.")
    reason = (fields.get("reason") or [""])[0].strip() if decision is Decision.DENY and page.reads_reasons else ""
    text = (fields.get("text") or [""])[0].strip() if decision is Decision.CHOOSE else ""
    if max(len(reason), len(text)) > TEXT_LENGTH:
        raise UsageError(f"the text is longer than {TEXT_LENGTH} characters.")
    answer = Answer(
        request=request.id,
        digest=link.digest,
        decision=decision,
        reason=reason,
        labels=tuple(request.options[int(each)] for each in options),
        text=text,
        link=link.login or link.id,
    )
    must_be_complete(request, answer)
    return answer


def _successor(session: Session, link: RequestLink, closed: ClosedRequest | None) -> Request | None:
    """Return the open request of *session* that replaced the one of *link*; None if it was not replaced."""
    if closed is None or closed.decision is not None or closed.by != CHANGED:
        return None
    later = [each for each in session.requests if number(each.id, 0) > number(link.request, 0)]
    return min(later, key=lambda each: number(each.id, 0), default=None)


def _part_of(request: web.Request) -> int:
    part = request.query.get("part", "1")
    return int(part) if part.isascii() and part.isdecimal() and len(part) < 7 else 1
