"""The nats-server that the tests run, and the one of Debian 12, which is too old for a cluster."""

import contextlib
import os
import shutil
import socket
from pathlib import Path
from typing import Final

import pytest

from kasmon.bus.nats.creation import find_free_port
from kasmon.bus.nats.server import ServerProgram, find_server, is_new_enough, read_version
from kasmon.errors import UnavailableError

EXTRACTED: Final = Path(__file__).parents[3] / ".cache" / "nats-server" / "usr" / "sbin" / "nats-server"
"""Where `make old-nats-server` extracts Debian's package; it is not installed, because its service starts then."""

LEAF = 1000
"""How far the ports for leafnodes are from those for members."""


def need_server() -> ServerProgram:
    """A cluster's server; skips the test without one, or fails it where KASMON_REQUIRE_NATS_SERVER asks for one."""
    try:
        return find_server()
    except UnavailableError as error:
        if os.environ.get("KASMON_REQUIRE_NATS_SERVER"):
            pytest.fail(f"{error} (KASMON_REQUIRE_NATS_SERVER asks for one)", pytrace=False)
        pytest.skip(str(error))


def old_server() -> ServerProgram:
    """Skips the test without one."""
    for path in (str(EXTRACTED), shutil.which("nats-server")):
        if path and (version := read_version(path)) and not is_new_enough(version):
            return ServerProgram(path, version)
    pytest.skip("no nats-server older than 2.11 is here; `make old-nats-server` gets one where apt is")


def free_ports(count: int) -> list[int]:
    """Ports that are free, as are those of the routes and the leafnodes of each."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            client, route, leaf = (stack.enter_context(socket.socket()) for _ in range(3))
            port = find_free_port()
            with contextlib.suppress(OSError):
                client.bind(("127.0.0.1", port))
                route.bind(("127.0.0.1", port + 2000))
                leaf.bind(("127.0.0.1", port + LEAF))
                found.append(port)
    return found
