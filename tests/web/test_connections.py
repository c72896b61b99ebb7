"""What comes to the port and is no browser: slow, many, deaf; and browsers that are logged out."""

import asyncio
import contextlib
import fcntl
import http.client
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kasmon.web import connections, server
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON
from tests.support.tui.pty_program import OnTerminal
from tests.support.wait import auntil, until
from tests.support.web.web_server import UPGRADE, Served
from tests.web.test_command import LINK, status
from tests.web.test_dashboard_session import ECHO, page, served

PING, PONG = b"\x89\x80" + bytes(4), b"\x8a\x00"
"""Of a WebSocket's page, and the server's answer."""
SECURITY = Path(__file__).parents[2] / "SECURITY.md"
FLOOD = "stty raw -echo; echo ready; exec yes"


def connected(view: Served, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", view.view.port), 20, source_address=(address, 0))


def is_cut(line: socket.socket) -> bool:
    """Whether the other end is closed, waited for."""
    try:
        return line.recv(65536) == b""
    except ConnectionResetError:
        return True


def is_open(line: socket.socket) -> bool:
    """Whether the server still answers on *line*."""
    line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return not is_cut(line)


SLOW = [
    b"",
    b"GET / HTTP/1.1\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nbegin",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
]
KINDS = ["nothing", "a line", "half of a header", "a body that does not come", "a request that is refused"]


@pytest.mark.parametrize("begun", SLOW, ids=KINDS)
def test_a_slow_request_is_closed(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.1)
    monkeypatch.setattr(connections, "KEEPALIVE_S", 3600.0)
    with Served() as view, connected(view) as line:
        line.sendall(begun)
        while not is_cut(line):
            pass
        until(lambda: not view.view.connections)


def test_a_byte_now_and_then_does_not_keep_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.3)
    with Served() as view, connected(view) as line:
        line.sendall(b"GET / HTTP/1.1\r\nX: ")

        def is_refused() -> bool:
            try:
                line.sendall(b"x")
            except OSError:
                return True
            return False

        until(is_refused)


def test_a_client_with_access_stays_as_long_as_a_dashboard_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.1)
    with Served(dashboard=("/bin/sh", "-c", ECHO)) as view, connected(view) as mine, connected(view) as slow:
        headers = {**UPGRADE, **view.cookie, "Host": view.host, "Origin": f"http://{view.host}"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        mine.sendall(f"GET {view.path}ws HTTP/1.1\r\n{lines}\r\n".encode())
        assert b" 101 " in mine.recv(4096)
        assert is_cut(slow)  # which connected later

        mine.sendall(PING)
        said = b""
        while PONG not in said:
            more = mine.recv(4096)
            assert more, "it was cut"
            said += more


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX: "], ids=["nothing", "half of a header"])
def test_a_client_with_access_and_no_request_is_closed(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(connections, "KEEPALIVE_S", 0.1)
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 3600.0)
    with Served() as view, connected(view) as line:
        line.sendall(
            f"GET {view.path} HTTP/1.1\r\nHost: {view.host}\r\nCookie: {view.cookie['Cookie']}\r\n\r\n".encode()
        )
        assert b" 200 " in line.recv(20)
        line.sendall(begun)
        while not is_cut(line):
            pass
        until(lambda: not view.view.connections)


def test_the_limits_are_those_in_the_security_document() -> None:
    limits = connections.REQUEST_TIMEOUT_S, connections.MAX_PER_ADDRESS, connections.MAX_CONNECTIONS
    stated = re.search(r"has (\d+) s to send .* are (\d+) of one address and (\d+) in all", SECURITY.read_text())

    assert stated
    assert limits == tuple(map(float, stated.groups()))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is closed for its age."""
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 3600.0)
    monkeypatch.setattr(connections, "KEEPALIVE_S", 3600.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("limit", "addresses"),
    [("MAX_PER_ADDRESS", ["127.0.0.1"] * 12), ("MAX_CONNECTIONS", [f"127.0.0.{number}" for number in range(2, 14)])],
    ids=["of one address", "of all addresses together"],
)
def test_connections_are_limited_and_a_new_one_replaces_an_old_one(
    monkeypatch: pytest.MonkeyPatch, limit: str, addresses: list[str]
) -> None:
    """The oldest that was not let in goes: nobody keeps the person with the link out by being first."""
    monkeypatch.setattr(connections, limit, 5)
    with Served() as view, contextlib.ExitStack() as opened:
        lines = [opened.enter_context(connected(view, address)) for address in addresses]
        until(lambda: len(view.view.connections) == 5)
        for line in lines[:7]:
            assert is_cut(line)

        assert 200 == view.ask(view.link()).status
        assert len(view.view.connections) <= 5
        assert is_open(lines[-1])


@pytest.mark.usefixtures("patient")
def test_many_connections_of_one_address_close_none_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_PER_ADDRESS", 2)
    with Served() as view, contextlib.ExitStack() as opened:
        addresses = ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.2"]
        lines = [opened.enter_context(connected(view, address)) for address in addresses]

        assert is_cut(lines[0])
        assert [True] * 4 == [is_open(line) for line in lines[1:]]


@pytest.mark.usefixtures("patient")
async def test_if_all_have_access_a_new_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_PER_ADDRESS", 2)
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as one, page(view) as other:
        await one.shows(b"ready")
        await other.shows(b"ready")
        reader, writer = await asyncio.open_connection("127.0.0.1", view.port)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                assert b"" == await reader.read()
        writer.close()
        await one.say("stdin", "still here")
        await one.shows(b"still here")


async def test_in_a_flood_connections_wait_and_the_dashboards_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ACCEPTED_BURST", 3)
    monkeypatch.setattr(connections, "ACCEPTED_RATE_HZ", 1 / 3600)
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as mine:
        await mine.shows(b"ready")
        with contextlib.ExitStack() as opened:
            for _ in range(30):
                opened.enter_context(socket.create_connection(("127.0.0.1", view.port), 20))
            for word in ("one", "two", "three"):
                await mine.say("stdin", word)
                await mine.shows(word.encode())

            assert 0 < len(view.connections) <= 4  # what waits is the one after the burst


FEW_HANDLES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
sys.argv = ["kasmon", "web", "--json"]
from kasmon.__main__ import main
sys.exit(main())
"""


def take_all_handles(web: "subprocess.Popen[bytes]") -> list[socket.socket]:
    """Connections to *web*, which runs FEW_HANDLES: more than it has file handles for."""
    port = psutil_port(web.pid)
    lines = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(40)]
    until(lambda: psutil.Process(web.pid).num_fds() >= 24)
    return lines


def test_without_file_handles_it_reports_that_in_a_line_and_continues(line: Cli) -> None:
    """Python's own way is a traceback for each of 128 tries, each second."""
    argv = [sys.executable, "-P", "-c", FEW_HANDLES]
    with subprocess.Popen(argv, env=line.environment, cwd=line.home, stdout=-1, stderr=-1) as web:
        assert web.stdout
        assert web.stderr
        lines = take_all_handles(web)
        first = web.stderr.readline()
        for each in lines:
            each.close()
        link = web.stdout.readline().split(b'"')[7].decode()
        until(lambda: status(link) == 200)
        web.terminate()
        _, err = web.communicate(timeout=20)

    said = (first + err).decode()
    assert "Too many open files" in said
    assert "Traceback" not in said
    assert len(said) < 2000


def test_a_blocked_standard_error_stops_neither_the_server_nor_its_end(line: Cli) -> None:
    """A full pipe: what is logged waits in it for ever."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(65536))
    os.set_blocking(writing, True)
    argv = [sys.executable, "-P", "-c", FEW_HANDLES]
    with subprocess.Popen(argv, env=line.environment, cwd=line.home, stdout=-1, stderr=writing) as web:
        try:
            assert web.stdout
            link = web.stdout.readline().split(b'"')[7].decode()
            for each in take_all_handles(web):
                each.close()
            until(lambda: status(link) == 200)
            web.terminate()

            assert 128 + signal.SIGTERM == web.wait(20)
        finally:
            web.kill()
            os.close(reading)
            os.close(writing)


def psutil_port(pid: int) -> int:
    """The port that *pid* listens on, as soon as it does."""

    def listening() -> list[int]:
        found = psutil.Process(pid).net_connections("tcp")
        return [each.laddr.port for each in found if each.status == psutil.CONN_LISTEN]

    return until(listening)[0]


def test_a_failed_request_is_one_line_in_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    with Served() as view:
        view.view._files = None  # type: ignore[assignment]  # whatever may go wrong
        answers = {view.ask(view.path, view.cookie).status for _ in range(3)}

    assert {500} == answers
    [record] = [each for each in caplog.records if each.name == server.__name__]
    assert (logging.WARNING, None) == (record.levelno, record.exc_info)


def has_input(web: OnTerminal) -> bool:
    """Whether its program has not yet read all that was typed; Ctrl+C would discard the rest."""
    return bool(int.from_bytes(fcntl.ioctl(web.terminal, termios.FIONREAD, bytes(4)), sys.byteorder))


def test_a_stopped_terminal_does_not_stop_the_dashboards(line: Cli) -> None:
    """As after Ctrl+S. Enough links are asked for to fill it; the page is served all the same."""
    with OnTerminal([*KASMON, "web"], line.home, environment=line.environment) as web:
        [link] = until(lambda: LINK.findall(web.seen))
        web.send(b"\x13")
        for _ in range(300):
            web.send(b"\n")
        until(lambda: not has_input(web), what="every Enter was read")
        until(lambda: 403 == status(link.decode()))
        web.send(b"\x03")

        assert 130 == web.ended()


@contextlib.contextmanager
def deaf(view: server.WebView) -> Iterator[None]:
    """A page that opened a dashboard and reads nothing of it."""
    here = f"127.0.0.1:{view.port}"
    headers = {**UPGRADE, "Host": here, "Origin": f"http://{here}", "Cookie": f"kasmon={view.access_guard.change()}"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", view.port), 20) as line:
        line.sendall(f"GET /{view.access_guard.folder}/ws HTTP/1.1\r\n{lines}\r\n".encode())
        yield


async def test_a_page_that_reads_nothing_stops_no_other_page_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GOODBYE_S", 0.1)
    async with served("/bin/sh", "-c", FLOOD) as view:
        with deaf(view):
            await auntil(lambda: len(view.dashboards) == 1)
            async with page(view) as it:
                await it.shows(b"ready")
            await view.close()

            assert set() == view.dashboards
            await auntil(lambda: not view.connections)


async def test_a_page_without_a_heartbeat_is_disconnected_with_its_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(server, "GOODBYE_S", 0.1)
    async with served("/bin/sh", "-c", FLOOD) as view:
        with deaf(view):
            await auntil(lambda: len(view.dashboards) == 1)
            await auntil(lambda: not view.dashboards)
            await auntil(lambda: not view.connections)


async def test_a_logout_ends_the_dashboards_of_that_browser_alone() -> None:
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as mine, page(view) as other:
        await mine.shows(b"ready")
        await other.shows(b"ready")
        here = f"http://127.0.0.1:{view.port}"
        cookie = str(mine.headers["Cookie"])
        async with mine.client.post(f"{here}/{view.access_guard.folder}/logout") as answer:
            assert 200 == answer.status
            assert "kasmon=" in answer.headers["Set-Cookie"]
            assert "Max-Age=0" in answer.headers["Set-Cookie"]
        await mine.ends()
        async with mine.client.get(f"{here}/{view.access_guard.folder}/", headers={"Cookie": cookie}) as answer:
            assert 403 == answer.status
        await auntil(lambda: len(view.dashboards) == 1)
        await other.say("stdin", "still here")
        await other.shows(b"still here")


async def test_a_logout_of_all_ends_every_dashboard() -> None:
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as one, page(view) as other:
        await one.shows(b"ready")
        await other.shows(b"ready")
        view.revoke()

        await one.ends()
        await other.ends()
        await auntil(lambda: not view.dashboards)


def test_r_and_enter_log_out_all_earlier_browsers(line: Cli) -> None:
    def links() -> list[str]:
        return [each.decode() for each in LINK.findall(web.seen)]

    with OnTerminal([*KASMON, "web"], line.home, environment=line.environment) as web:
        until(links)
        cookie = let_in(links()[0])
        web.send(b"\n")
        until(lambda: len(links()) == 2)
        after_enter = status_with(links()[0], cookie)
        web.send(b"r\n")
        until(lambda: len(links()) == 3)

        assert (200, 403) == (after_enter, status_with(links()[0], cookie))
        assert 200 == status_with(links()[0], let_in(links()[2]))
        web.send(b"\x03")
        web.ended()


def let_in(link: str) -> str:
    """The cookie that *link* is changed for."""
    host, _, path = link.removeprefix("http://").partition("/")
    with contextlib.closing(http.client.HTTPConnection(host, timeout=60)) as asking:
        asking.request("GET", f"/{path}")
        return str(asking.getresponse().headers["Set-Cookie"]).partition(";")[0]


def status_with(link: str, cookie: str) -> int:
    """What the page that *link* leads to answers to *cookie*."""
    host, _, path = link.removeprefix("http://").partition("/")
    with contextlib.closing(http.client.HTTPConnection(host, timeout=60)) as asking:
        asking.request("GET", f"/{path.partition('?')[0]}", headers={"Cookie": cookie})
        return asking.getresponse().status
