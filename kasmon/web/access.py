"""Who may come in: told from what a browser says of itself, and from a secret that only our own page has.

Any page in a browser can send requests to this machine, and any user of it can. So four things are asked, in order: the
host that the browser believes to talk to (a foreign name that leads here is an attack), the method, the page that asks,
and a secret: a link that opens once, then a cookie. The cookie's path is secret, too: cookies know no ports, so without
one every other server on this machine would be sent it.
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
"""What a page posts to, in its own folder, to have its browser's cookie revoked."""
LINK: Final = "t"
"""The name of the link's secret in its query."""
SECRET_BYTES: Final = 32
PLACE_BYTES: Final = 6
"""Enough where each guess takes a request, and few enough for a link that fits in 80 columns."""
OURS: Final = frozenset({"same-origin", "none"})
"""What a browser says of a request that no other page is behind (`Sec-Fetch-Site`)."""


class AccessRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says that matters here; each header as often as it was given."""

    path: str
    method: str = "GET"
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    sites: Sequence[str] = ()
    purpose: str = ""
    """Not empty where the browser only guesses that a person will want this."""
    link: str | None = None
    cookie: str = ""
    is_socket: bool = False
    """Whether it wants to become a WebSocket, which browsers let every page open to everywhere."""


class Refusal(msgspec.Struct, frozen=True):
    """Why somebody does not come in."""

    status: int
    why: str


class AccessGuard:
    """Lets in whoever has the link, once, and whoever has a cookie that a link was changed for, until it is revoked."""

    def __init__(self, address: str, port: int) -> None:
        """*address*: a loopback address without brackets; *port*: the one that is listened on."""
        self._address = f"[{address}]" if ":" in address else address
        self._port = port
        names = (self._address, "localhost")
        self.hosts = frozenset(f"{name}:{port}" for name in names) | frozenset(names if port == 80 else ())
        """Every name that this server goes by."""
        self.place = token_urlsafe(PLACE_BYTES)
        """The first part of every path."""
        self._cookies: set[str] = set()
        """One of each browser that was let in."""
        self._link: str | None = None

    def link(self) -> str:
        """An address that lets one browser in, once; an earlier one that nobody used leads nowhere from now on."""
        self._link = token_urlsafe(SECRET_BYTES)
        return f"http://{self._address}:{self._port}/{self.place}/?{LINK}={self._link}"

    def refusal(self, asked: AccessRequest) -> Refusal | None:
        """Why *asked* is refused; None where it comes in. The link is left as it is, see `change`."""
        if len(asked.hosts) != 1 or asked.hosts[0].lower() not in self.hosts:
            return Refusal(403, "unknown host name for kasmon's server.")
        does = asked.path == f"/{self.place}/{LOG_OUT}"
        if asked.method != ("POST" if does else "GET"):
            return Refusal(405, "method not allowed.")
        if (asked.origins or asked.is_socket or does) and list(asked.origins) != [f"http://{asked.hosts[0]}"]:
            return Refusal(403, "the request came from another site.")
        if not _same(asked.path[1:].partition("/")[0], self.place):
            return Refusal(403, "not logged in: open the link that `kasmon web` prints.")
        if asked.link is not None and not does:
            return self._of_link(asked)
        if not OURS.issuperset(asked.sites):
            return Refusal(403, "the request came from another site.")
        if not self._knows(asked.cookie):
            return Refusal(403, "not logged in: open the link that `kasmon web` prints.")
        return None

    def change(self) -> str:
        """A cookie for whoever brought the link, which is used up by that."""
        self._link = None
        cookie = token_urlsafe(SECRET_BYTES)
        self._cookies.add(cookie)
        return cookie

    def revoke(self, cookie: str | None = None) -> None:
        """Let nobody in by *cookie* any more; without one, by no cookie that was given so far."""
        if cookie is None:
            self._cookies.clear()
        else:
            self._cookies.discard(cookie)

    def _knows(self, cookie: str) -> bool:
        """Whether *cookie* counts; it is compared with each that does, however soon one is found."""
        return sum(_same(cookie, known) for known in self._cookies) > 0

    def _of_link(self, asked: AccessRequest) -> Refusal | None:
        if asked.purpose or asked.is_socket:
            return Refusal(403, "open the link in a browser.")
        if self._link is None or not _same(asked.link or "", self._link):
            return Refusal(
                403,
                ("this link is unknown or already used: press Enter in the terminal of `kasmon web` for a new one."),
            )
        return None


def loopback(address: str) -> str:
    """*address* as it is listened on.

    Raises:
        UsageError: if it is not one of this machine's own.
    """
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
    """Compare in a time that tells nothing of *wanted*."""
    return compare_digest(given.encode("utf-8", "backslashreplace"), wanted.encode())
