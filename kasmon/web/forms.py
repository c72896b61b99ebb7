"""Checks of a request for a page that works without the dashboard, and its form: who sent it, from which page, what."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import psutil
from aiohttp import web

from kasmon.host.rpc.peer import must_be_a_person
from kasmon.web.connections import Connections
from kasmon.web.request_page import HEADERS, render_notice

BODY_BYTES: Final = 64 * 1024
TEXT_LENGTH: Final = 4000
"""The most characters of a reason, or of a custom answer."""
EMBEDDED: Final = frozenset({"iframe", "frame", "embed", "object"})
"""Values of `Sec-Fetch-Dest` for a page inside another one."""

Fields = dict[str, list[str]]
"""The fields of a form, each with all of its values."""


class RefusedPageError(Exception):
    """The answer to a request that changes nothing: a page with a heading and sentences."""

    def __init__(self, status: int, heading: str, *sentences: str) -> None:
        super().__init__(heading)
        self.status, self.heading, self.sentences = status, heading, sentences


def respond(html: str, status: int = 200, headers: Mapping[str, str] = HEADERS) -> web.Response:
    """Return a page with these *headers*, by default those of one without a script."""
    return web.Response(status=status, text=html, content_type="text/html", charset="utf-8", headers=headers)


def respond_notice(status: int, heading: str, sentences: Sequence[str]) -> web.Response:
    """Return a page that has only text."""
    return respond(render_notice(heading, sentences), status)


def must_be_own_host(request: web.Request, hosts: Collection[str]) -> str:
    """Return the host name of *request*. Raises `RefusedPageError` unless it is one of *hosts*."""
    named = [name.lower() for name in request.headers.getall("Host", [])]
    if len(named) != 1 or named[0] not in hosts or not named[0]:
        raise RefusedPageError(403, "Unknown host name")
    return named[0]


def must_be_alone(request: web.Request) -> None:
    """Refuse a page inside another one."""
    if request.headers.get("Sec-Fetch-Dest", "") in EMBEDDED:
        raise RefusedPageError(403, "Open the link in a tab of its own")


def must_be_own_page(request: web.Request, public_url: str) -> None:
    """Refuse a form that another page sent; *public_url* as `WebConfig.link_url`.

    Our pages have the policy `no-referrer`, so browsers send their origin as `null`; then the browser's own statement
    has to say that the page is of the same origin.
    """
    host = request.headers["Host"].lower()
    own = public_url if host == public_url.removeprefix("https://") else f"http://{host}"
    origins, sites = request.headers.getall("Origin", []), request.headers.getall("Sec-Fetch-Site", [])
    is_own = origins == [own] and sites in ([], ["same-origin"])
    if not is_own and not (origins == ["null"] and sites == ["same-origin"]):
        raise RefusedPageError(403, "The form came from another site", "Nothing was sent.")


async def must_be_sent_by_a_person(request: web.Request, action: str = "answer requests") -> None:
    """Refuse *request* if a process that belongs to an agent sent it. Raises `RefusedError` then.

    *action*: what it wants to do, for the message.
    """
    if (sender := await asyncio.to_thread(_find_sender, request)) is not None:
        await must_be_a_person(sender, None, action=action)


async def accept_form(request: web.Request, public_url: str, connections: Connections) -> Fields:
    """Return the fields of a form of our own page; its connection is marked as accepted then."""
    must_be_own_page(request, public_url)
    fields = await read_form(request)
    connections.mark_accepted(request.transport)
    return fields


async def read_form(request: web.Request) -> Fields:
    if request.content_type != "application/x-www-form-urlencoded" or (request.content_length or 0) > BODY_BYTES:
        raise RefusedPageError(413, "This is no form of this page")
    try:
        fields = await request.post()
    except (web.HTTPException, ValueError, LookupError) as error:  # too long, or in an unknown encoding
        raise RefusedPageError(413, "This is no form of this page") from error
    return {name: [value for value in fields.getall(name) if isinstance(value, str)] for name in fields}


def _find_sender(request: web.Request) -> int | None:
    """Return the pid of the process that sent *request*; None if it is another user's, or on another machine."""
    if request.transport is None:
        return None
    theirs, ours = (request.transport.get_extra_info(name)[:2] for name in ("peername", "sockname"))
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):  # macOS tells only root
        return None
    return next((each.pid for each in connections if (each.laddr, each.raddr) == (theirs, ours) and each.pid), None)
