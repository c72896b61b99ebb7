"""Access control: by the headers that a browser sends, and by a secret that only kasmon's own page has.

Any page in a browser can send requests to this machine, and so can any of its users. So four things are checked, in
order: the requested host name (a foreign name that resolves to this machine is an attack), the method, the requesting
page, and a secret: a link that works once, then a cookie. The cookie's path is secret too: cookies ignore ports, so
every other server on this machine would otherwise receive it.
"""

import ipaddress
from collections.abc import Sequence
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Final

import msgspec

from kasmon.errors import UsageError

COOKIE: Final = "kasmon"
LOG_OUT: Final = "logout"
"""The path, in the page's folder, that a page posts to in order to revoke its browser's cookie."""
LINK: Final = "t"
"""The query parameter with the link's secret."""
SECRET_BYTES: Final = 32
PLACE_BYTES: Final = 6
"""Long enough if each guess takes a request, and short enough for a link of 80 columns."""
OURS: Final = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site` for requests that no other page caused."""


class AccessRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The relevant parts of a request; repeated headers are all included."""

    path: str
    method: str = "GET"
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    sites: Sequence[str] = ()
    purpose: str = ""
    """Not empty if the browser only prefetches the page."""
    link: str | None = None
    cookie: str = ""
    is_socket: bool = False
    """Whether it requests a WebSocket, which browsers let every page open to every host."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is refused."""

    status: int
    why: str


class AccessGuard:
    """Accepts the one-time link, and the cookies that links were exchanged for, until these are revoked."""

    def __init__(self, address: str, port: int) -> None:
        """*address*: a loopback address without brackets; *port*: the listening port."""
        self.address = f"[{address}]" if ":" in address else address
        """As a URL contains it."""
        self._port = port
        names = (self.address, "localhost")
        self.hosts = frozenset(f"{name}:{port}" for name in names) | frozenset(names if port == 80 else ())
        """All valid names of this server."""
        self.folder = token_urlsafe(PLACE_BYTES)
        """The first part of every path."""
        self._cookies: set[str] = set()
        """One cookie for each browser with access."""
        self._link: str | None = None

    def create_link(self) -> str:
        """Return a URL that gives one browser access, once; an earlier unused one becomes invalid."""
        self._link = token_urlsafe(SECRET_BYTES)
        return f"http://{self.address}:{self._port}/{self.folder}/?{LINK}={self._link}"

    def refusal(self, asked: AccessRequest) -> Refusal | None:
        """Return why *asked* is refused; None if it is accepted. Does not use up the link, see `change`."""
        if len(asked.hosts) != 1 or asked.hosts[0].lower() not in self.hosts:
            return Refusal(403, "unknown host name for kasmon's server.")
        does = asked.path == f"/{self.folder}/{LOG_OUT}"
        if asked.method != ("POST" if does else "GET"):
            return Refusal(405, "method not allowed.")
        if (asked.origins or asked.is_socket or does) and list(asked.origins) != [f"http://{asked.hosts[0]}"]:
            return Refusal(403, "the request came from another site.")
        if not _same(asked.path[1:].partition("/")[0], self.folder):
            return Refusal(403, "not logged in: open the link that `kasmon web` prints.")
        if asked.link is not None and not does:
            return self._refuse_link(asked)
        if not OURS.issuperset(asked.sites):
            return Refusal(403, "the request came from another site.")
        # compares with every cookie, so that the time does not depend on a match
        if not sum(_same(asked.cookie, known) for known in self._cookies):
            return Refusal(403, "not logged in: open the link that `kasmon web` prints.")
        return None

    def change(self) -> str:
        """Use up the link and return a new cookie for its browser."""
        self._link = None
        cookie = token_urlsafe(SECRET_BYTES)
        self._cookies.add(cookie)
        return cookie

    def revoke(self, cookie: str | None = None) -> None:
        """Revoke *cookie*; without one, all cookies."""
        if cookie is None:
            self._cookies.clear()
        else:
            self._cookies.discard(cookie)

    def _refuse_link(self, asked: AccessRequest) -> Refusal | None:
        if asked.purpose or asked.is_socket:
            return Refusal(403, "open the link in a browser.")
        if self._link is None or not _same(asked.link or "", self._link):
            return Refusal(
                403,
                ("this link is unknown or already used: press Enter in the terminal of `kasmon web` for a new one."),
            )
        return None


def loopback(address: str) -> str:
    """Return *address* in the form to listen on. Raises `UsageError` if it is not a loopback address."""
    try:
        parsed = ipaddress.ip_address("127.0.0.1" if address == "localhost" else address.strip("[]"))
    except ValueError:
        parsed = None
    if parsed is None or not parsed.is_loopback:
        raise UsageError(
            f"kasmon web listens on this machine only, and {address!r} is not a loopback address.",
            hint="From elsewhere: `ssh -t -L 8000:127.0.0.1:8000 HOST kasmon web --port 8000`; open its link here.",
        )
    return str(parsed)


def _same(given: str, wanted: str) -> bool:
    """Compare in a time that reveals nothing about *wanted*."""
    return compare_digest(given.encode("utf-8", "backslashreplace"), wanted.encode())
