"""`kasmon web`: the dashboard in a browser, until Ctrl+C."""

import asyncio
import os
import sys
from importlib.util import find_spec

from kasmon.commands.check import Check
from kasmon.commands.output import note, say, tell
from kasmon.errors import UnavailableError, UsageError
from kasmon.host import own_log
from kasmon.paths import places

GET = "pip install 'kasmon[web]'"
PORTS = range(65536)


def web(port: int, address: str, *, wants_json: bool) -> int:
    """Serve until a signal comes, and print each link; the exit code, 128 and the signal's number.

    Raises:
        UsageError: if *address* is not loopback, or *port* is none.
        UnavailableError: if the packages that this takes are not there, or the port is not to be had.
    """
    try:
        from kasmon.web.server import WebView, serve
    except ImportError as error:
        why = "it is there, and another version" if is_installed() else "it is not installed"
        raise UnavailableError(f"aiohttp, which serves the page: {why}.", hint=f"`{GET}`") from error
    from kasmon.web.gate import loopback
    from kasmon.web.visit import surroundings

    if port not in PORTS:
        raise UsageError(f"{port} is no port.", hint="--port takes 0 to 65535.")
    where = places()
    view = WebView(surroundings(os.environ) | where.environment_variables(), loopback(address), port)

    def print_link(link: str) -> None:
        own_log.learn([view.gate.cookie, link.rpartition("=")[2]])
        if wants_json:
            tell({"schema": 1, "web": {"url": link, "address": loopback(address), "port": view.port}})
        else:
            say(link)

    own_log.keep()
    if not wants_json:
        again = "Enter prints another; " if sys.stdin is not None and sys.stdin.isatty() else ""
        note(f"the link opens once. {again}Ctrl+C ends this, the agents go on.")
    return 128 + asyncio.run(serve(view, print_link))


def is_installed() -> bool:
    """Whether the package is there; nothing of it is imported."""
    return find_spec("aiohttp") is not None


def check() -> Check:
    """What doctor says of it."""
    if not is_installed() or find_spec("textual_serve") is None:
        return Check(id="web", level="ok", text=f"`kasmon web` has no packages: {GET}")
    return Check(id="web", level="ok", text="`kasmon web` shows the dashboard in a browser on this machine")
