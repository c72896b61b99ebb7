"""`kasmon web`: the dashboard in a browser, until Ctrl+C."""

import asyncio
import os
import sys
from importlib.util import find_spec
from shutil import which
from typing import Annotated

import msgspec

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.cli.output.console import note
from kasmon.config.parser import load_or_default
from kasmon.errors import UnavailableError, UsageError
from kasmon.host.journal import process_log
from kasmon.host.journal.known_secrets import add_secrets
from kasmon.paths import user_paths

GET = "`pipx install --force '.[web]'` in kasmon's clone"
PORTS = range(65536)


def web(
    *,
    port: Annotated[int, Arg("Port to listen on (0: any free port).")] = 0,
    address: Annotated[str, Arg("Loopback address to listen on.")] = "127.0.0.1",
    bind: Annotated[str, Arg("Serve pages for phones to other machines at this ADDRESS[:PORT]; requires TLS.")] = "",
    tls_cert: Annotated[str, Arg("With --bind: PEM file of the certificate and its chain.")] = "",
    tls_key: Annotated[str, Arg("With --bind: PEM file of the key, which only you can read.")] = "",
    wants_json: Json = False,
) -> int:
    """Show the dashboard in a browser on this machine. Ctrl+C stops the server; agents keep running.

    With --bind, other machines reach the pages of requests and the list of sessions, never the dashboard.

    It prints a one-time link for one browser. Enter prints a new link; `r` and Enter first logs out every browser.
    """
    try:
        from kasmon.web.console import Console, serve
        from kasmon.web.fleet.handler import FleetPages
        from kasmon.web.request_handler import RequestPages
        from kasmon.web.server import WebView
        from kasmon.web.tls import tls_listener
    except ImportError as error:
        why = "another version is installed" if find_spec("aiohttp") else "it is not installed"
        raise UnavailableError(f"aiohttp, which serves the page: {why}.", hint=f"{GET}") from error
    from kasmon.web.access import loopback
    from kasmon.web.dashboard_session import page_environment

    if port not in PORTS:
        raise UsageError(f"{port} is not a valid port.", hint="--port must be from 0 to 65535.")
    where = user_paths()
    config = load_or_default(where, note).web
    variables = page_environment(os.environ) | where.environment_variables()
    if (tls_cert or tls_key) and not bind:
        raise UsageError("--tls-cert and --tls-key require --bind.")
    tls = tls_listener(bind, tls_cert, tls_key, config.link_url, port) if bind else None
    view = WebView(
        variables,
        loopback(address),
        port,
        request_pages=RequestPages(where, config),
        fleet_pages=FleetPages(where, config),
        tls=tls,
    )

    console = Console()

    def print_link(link: str) -> None:
        add_secrets([link.rpartition("=")[2]])
        made = {"schema": 1, "web": {"url": link, "address": loopback(address), "port": view.port}}
        console.print_line(msgspec.json.encode(made).decode() if wants_json else link)

    process_log.configure(console)
    if not wants_json:
        is_heard = sys.stdin is not None and sys.stdin.isatty()
        again = "Enter prints a new link; `r` and Enter logs out all browsers first. " if is_heard else ""
        note(f"one-time link. {again}Ctrl+C stops the server; agents keep running.")
    try:
        return 128 + asyncio.run(serve(where, view, print_link))
    finally:
        console.close()


def check() -> DoctorCheck:
    """Return the check for `kasmon doctor`."""
    if find_spec("aiohttp") is None or find_spec("textual_serve") is None:
        return DoctorCheck("web", "ok", f"`kasmon web` requires more packages: {GET}")
    from kasmon.web.tls import PROGRAMS  # only where `web` is installed

    found = [name for name in PROGRAMS if which(name)]
    reach = f"; {' and '.join(found)} can make its pages for phones available elsewhere" if found else ""
    return DoctorCheck("web", "ok", f"`kasmon web` shows the dashboard in a browser on this machine{reach}")
