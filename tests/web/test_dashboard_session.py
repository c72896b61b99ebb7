"""One dashboard for each page: what is typed, drawn and resized goes through, and each ends with the other."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import psutil
import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from kasmon.web import dashboard_session, server
from kasmon.web.dashboard_session import TERMINAL_VARS, DashboardSession, clamp_size, page_environment
from kasmon.web.server import MESSAGE_BYTES, WebView
from tests.support.wait import auntil

ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
SIZE = 'import os, signal; say = lambda *_: print("size", *os.get_terminal_size(), flush=True); '
SIZES = f"""{SIZE}
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
say()
while signal.sigwait([signal.SIGWINCH]):
    say()
"""
ECHO = "stty raw -echo; echo ready; exec cat"
STAYS = "trap '' HUP TERM; echo ready; while :; do sleep 1000 & wait; done"


class Page:
    """What textual-serve's script is to the server."""

    def __init__(self, client: ClientSession, socket: ClientWebSocketResponse) -> None:
        self.client, self.headers = client, client.headers
        self.socket = socket
        self.drawn = b""

    async def say(self, *message: object) -> None:
        await self.socket.send_str(json.dumps(message))

    async def shows(self, wanted: bytes) -> None:
        async with asyncio.timeout(60):
            while wanted not in self.drawn:
                message = await self.socket.receive()
                assert message.type is WSMsgType.BINARY, (message, self.drawn)
                self.drawn += message.data

    async def ends(self) -> None:
        async with asyncio.timeout(60):
            while (message := await self.socket.receive()).type is WSMsgType.BINARY:
                self.drawn += message.data


Opened = Callable[..., AsyncIterator[Page]]


@asynccontextmanager
async def served(*argv: str) -> AsyncIterator[WebView]:
    view = await asyncio.to_thread(WebView, ENVIRONMENT, "127.0.0.1", 0, argv)  # it reads the files of the page
    await view.open()
    try:
        yield view
    finally:
        await view.close()


@asynccontextmanager
async def page(view: WebView, size: str = "width=80&height=24") -> AsyncIterator[Page]:
    here = f"127.0.0.1:{view.port}"
    headers = {"Origin": f"http://{here}", "Cookie": f"kasmon={view.access_guard.change()}"}
    async with (
        ClientSession(headers=headers) as client,
        client.ws_connect(f"ws://{here}/{view.access_guard.folder}/ws?{size}") as socket,
    ):
        yield Page(client, socket)


async def pid_of(view: WebView) -> int:
    await auntil(lambda: len(view.dashboards) == 1)
    [one] = view.dashboards
    return one.pid


async def test_input_arrives_and_output_returns() -> None:
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as it:
        await it.shows(b"ready")
        await it.say("stdin", "ä\x1b[A\x03\r")
        await it.shows("ä\x1b[A\x03\r".encode())


async def test_the_dashboard_has_the_pages_size_and_is_notified_of_another() -> None:
    async with served(sys.executable, "-c", SIZES) as view, page(view, "width=132&height=43") as it:
        await it.shows(b"size 132 43")
        await it.say("resize", {"width": 99, "height": 33})
        await it.shows(b"size 99 33")


@pytest.mark.parametrize("size", ["", "width=&height=x", "width=-5&height=24.5", "width=٣٣&height=null"])
async def test_a_page_without_a_size_gets_the_default_one(size: str) -> None:
    async with served(sys.executable, "-c", f"{SIZE}say()") as view, page(view, size) as it:
        await it.shows(b"size 80 24")


def test_a_size_is_a_number_within_limits() -> None:
    assert [1, 1, 80, 1000, 1000] == [clamp_size(each) for each in (0, -7, "80", 10**9, "99999999")]
    assert [None] * 7 == [clamp_size(each) for each in (None, True, 8.5, "", "9" * 5000, "²", [80])]


async def test_it_is_the_controlling_terminal_of_the_dashboard() -> None:
    leads = "echo ready </dev/tty >/dev/tty; ps -o stat= -p $$; exec cat"
    async with served("/bin/sh", "-c", leads) as view, page(view) as it:
        await it.shows(b"ready")
        await it.shows(b"s+")


async def test_a_dashboard_ends_with_its_page() -> None:
    async with served("/bin/sh", "-c", ECHO) as view:
        async with page(view) as it:
            await it.shows(b"ready")
            pid = await pid_of(view)
        await auntil(lambda: not view.dashboards)

        assert not psutil.pid_exists(pid)


async def test_a_page_ends_with_its_dashboard_and_keeps_its_last_output() -> None:
    async with served("/bin/sh", "-c", "echo over") as view, page(view) as it:
        await it.ends()

        assert b"over\r\n" == it.drawn
        await auntil(lambda: not view.dashboards)


async def test_a_dashboard_that_does_not_exit_is_killed_with_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_session, "END_S", 0.05)
    async with served("/bin/sh", "-c", STAYS) as view:
        async with page(view) as it:
            await it.shows(b"ready")
            pid = await pid_of(view)
            [child] = await auntil(lambda: psutil.Process(pid).children())
        await auntil(lambda: not view.dashboards)

        assert not psutil.pid_exists(pid)
        await auntil(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


async def test_the_end_of_the_web_view_ends_every_dashboard() -> None:
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as one, page(view) as other:
        await one.shows(b"ready")
        await other.shows(b"ready")
        pids = [each.pid for each in view.dashboards]

        await asyncio.gather(view.close(), one.ends(), other.ends())

        assert 2 == len(pids)
        assert [] == [pid for pid in pids if psutil.pid_exists(pid)]


async def test_the_dashboards_of_two_pages_are_separate() -> None:
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as one, page(view) as other:
        await one.say("stdin", "of one")
        await one.shows(b"of one")
        await other.say("stdin", "of the other")
        await other.shows(b"of the other")

        assert b"of one" not in other.drawn


async def test_one_page_too_many_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_VISITS", 1)
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as it:
        await it.shows(b"ready")
        async with page(view) as one_more:
            await one_more.ends()

            assert b"already open" in one_more.drawn
        await it.say("stdin", "still here")
        await it.shows(b"still here")
        assert 1 == len(view.dashboards)


async def test_if_no_dashboard_can_start_the_page_reports_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_session, "EXEC", ("/nonexistent",))
    async with served("/bin/sh") as view, page(view) as it:
        await it.ends()

        assert b"no dashboard could be started: No such file" in it.drawn


NONSENSE = [
    *('"stdin"', "[]", "{}", "null", "[", "", "\x00", "[" * 5000, '["stdin"]', '["stdin", 5]', '["stdin", "a", "b"]'),
    *('["resize"]', '["resize", {"width": "x", "height": 3}]', '["resize", {"width": 1e400, "height": 3}]'),
    *('["ping", "1"]', '["blur"]', '["open_url", {"url": "http://evil.example"}]', '["stdin", "\\ud800"]'),
]


async def test_an_invalid_message_has_no_effect() -> None:
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as it:
        await it.shows(b"ready")
        for message in NONSENSE:
            await it.socket.send_str(message)
        await it.socket.send_bytes(b"typed?")
        await it.say("stdin", "end")
        await it.shows(b"end")

        assert b"ready\nend" == it.drawn


async def test_a_message_that_is_too_long_ends_that_page_alone() -> None:
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as it, page(view) as other:
        await it.say("stdin", "x" * MESSAGE_BYTES)
        await it.ends()
        await auntil(lambda: len(view.dashboards) == 1)
        await other.say("stdin", "untouched")
        await other.shows(b"untouched")


async def test_a_paste_as_long_as_a_message_may_be_arrives_whole() -> None:
    async with served("/bin/sh", "-c", ECHO) as view, page(view) as it:
        await it.shows(b"ready")
        pasted = "0123456789" * (MESSAGE_BYTES // 10 - 10)
        await it.say("stdin", f"{pasted}.")
        await it.shows(b".")

        assert it.drawn.endswith(pasted.encode() + b".")


async def test_a_page_whose_dashboard_reads_nothing_can_still_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_session, "UNREAD_S", 0.05)
    async with served("/bin/sh", "-c", "stty raw -echo; echo ready; exec sleep 1000") as view:
        async with page(view) as it:
            await it.shows(b"ready")
            await it.say("stdin", "x" * (MESSAGE_BYTES // 2))
        await auntil(lambda: not view.dashboards)


async def test_closing_a_connection_while_it_is_read_and_written_ends_both() -> None:
    """The program reads nothing, and nobody asks it to draw."""
    seen = await DashboardSession.open(
        80, 24, ENVIRONMENT, ("/bin/sh", "-c", "stty raw -echo; echo ready; exec sleep 1000")
    )
    assert b"ready\n" == await seen.read()
    reading = asyncio.create_task(seen.read())
    writing = asyncio.create_task(seen.write(b"x" * (1 << 20)))
    await auntil(lambda: len(seen._waiting) == 2)

    await seen.close()
    await seen.close()

    assert b"" == await reading
    await writing
    assert not psutil.pid_exists(seen.pid)


def test_the_dashboard_has_the_environment_without_the_variables_of_the_terminal() -> None:
    ours = dict.fromkeys(TERMINAL_VARS, "x") | {"TERM": "dumb", "ANTHROPIC_API_KEY": "k", "XDG_STATE_HOME": "/s"}

    its = page_environment(ours)

    assert {"ANTHROPIC_API_KEY": "k", "XDG_STATE_HOME": "/s", "TERM": "xterm-256color", "COLORTERM": "truecolor"} == its
