"""The page's files, read once, and the headers of each response: browsers get nothing else."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

import msgspec

from kasmon.errors import UnavailableError

GET: Final = "`pipx install --force '.[web]'` in kasmon's clone"
PACKAGE_FILES: Final = {
    "textual.js": ("static/js/textual.js", "text/javascript"),
    "xterm.css": ("static/css/xterm.css", "text/css"),
    "upright.ttf": ("static/fonts/RobotoMono-VariableFont_wght.ttf", "font/ttf"),
    "italic.ttf": ("static/fonts/RobotoMono-Italic-VariableFont_wght.ttf", "font/ttf"),
}
"""Files of textual-serve: kasmon's name, its own path, and the MIME type."""
OWN_FILES: Final = {
    "": ("page.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
}
ENTER: Final = "enter.html"
"""The page behind the link. It redirects: a browser that came from another site only sends the cookie from here."""

POLICY: Final = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self' 'unsafe-inline'",  # xterm.js writes rules for its cells
    "font-src": "'self'",
    "img-src": "data:",
    "connect-src": "'self' {socket}",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
ALWAYS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), clipboard-read=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Server": "kasmon",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageFile(msgspec.Struct, frozen=True):
    kind: str
    body: bytes


def page_files() -> Mapping[str, PageFile]:
    """Return every file by its name in the page's folder; the page itself has an empty name.

    Raises:
        UnavailableError: if textual-serve is missing, or its files are elsewhere.
    """
    own_files = files("kasmon.web") / "page"
    try:
        package_files = files("textual_serve")
        found = {
            name: PageFile(kind, (package_files / path).read_bytes()) for name, (path, kind) in PACKAGE_FILES.items()
        }
    except ModuleNotFoundError as error:
        raise UnavailableError("textual-serve, which serves the page, is not installed.", hint=f"{GET}") from error
    except OSError as error:
        raise UnavailableError("textual-serve is installed in another version.", hint=f"{GET}") from error
    return found | {name: PageFile(kind, (own_files / path).read_bytes()) for name, (path, kind) in OWN_FILES.items()}


def headers(host: str) -> dict[str, str]:
    """Return the headers of every response to a request for *host*, a valid name of this server."""
    policy = "; ".join(f"{name} {sources.format(socket=f'ws://{host}')}" for name, sources in POLICY.items())
    return {**ALWAYS, "Content-Security-Policy": policy}
