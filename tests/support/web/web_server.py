"""The web view on a loop of its own, in a thread: what a browser, or something worse, finds on loopback."""

import asyncio
import http.client
import socket
import sys
import threading
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
import pytest

from kasmon.web.access import AccessRequest, Refusal
from kasmon.web.fleet.handler import FleetPages
from kasmon.web.request_handler import RequestPages
from kasmon.web.server import WebView
from kasmon.web.tls import TlsListener

LIMIT_S: Final = 100.0
UPGRADE: Final = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
"""What makes a request one for a WebSocket."""

Value = TypeVar("Value")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


async def _end_tasks() -> None:
    """Cancel what still runs on this loop, as `asyncio.run` does: the view logs a task that is destroyed later."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Served:
    """Listens from the start of the `with` block to its end."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        dashboard: Sequence[str] = (sys.executable, "-c", ""),
        address: str = "127.0.0.1",
        port: int = 0,
        request_pages: RequestPages | None = None,
        fleet_pages: FleetPages | None = None,
        tls: TlsListener | None = None,
    ) -> None:
        self.view = WebView(environment or {}, address, port, dashboard, request_pages, fleet_pages, tls)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def do(self, act: Coroutine[Any, Any, Value]) -> Value:
        """Await *act* on the server's loop."""
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(LIMIT_S)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.view.port}"

    @property
    def path(self) -> str:
        """Where the page is, with a slash at its end."""
        return f"/{self.view.access_guard.folder}/"

    @property
    def cookie(self) -> dict[str, str]:
        """The header of a browser that was let in."""
        return {"Cookie": f"kasmon={self.view.access_guard.change()}"}

    def taken_in(self, patch: pytest.MonkeyPatch, **good: object) -> None:
        """Have the gate see these parts instead of what a request has: it cannot refuse for them then.

        A request without a link stays one without, or the page behind the link would be asked for the link again.
        """
        refusal = self.view.access_guard.refusal

        def weakened(asked: AccessRequest) -> Refusal | None:
            seen = {name: part for name, part in good.items() if getattr(asked, name) is not None}
            return refusal(msgspec.structs.replace(asked, **seen))

        patch.setattr(self.view.access_guard, "refusal", weakened)

    def link(self) -> str:
        """The path and query of a link."""
        parts = urlsplit(self.view.access_guard.create_link())
        return f"{parts.path}?{parts.query}"

    def ask(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET", body: str | None = None
    ) -> Answer:
        """What the server answers; with UPGRADE in *headers* its first answer."""
        line = http.client.HTTPConnection("127.0.0.1", self.view.port, timeout=LIMIT_S)
        try:
            line.request(method, path, body, dict(headers or {}))
            got = line.getresponse()
            text = "" if got.status == 101 else got.read().decode("utf-8", "replace")
            return Answer(got.status, dict(got.getheaders()), text)
        finally:
            line.close()

    def raw(self, request: bytes) -> bytes:
        """The beginning of what the server says to *request*."""
        with socket.create_connection(("127.0.0.1", self.view.port), LIMIT_S) as line:
            line.sendall(request)
            return line.recv(65536)

    def __enter__(self) -> Self:
        self._thread.start()
        self.do(self.view.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.do(self.view.close())
            self.do(_end_tasks())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LIMIT_S)
            self._loop.close()
