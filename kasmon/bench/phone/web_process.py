"""A `kasmon web` over scratch folders, and the dashboard of one page of it."""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from kasmon.bench.support.terminal import KASMON, environment
from kasmon.errors import UnavailableError
from kasmon.paths import Paths

if TYPE_CHECKING:
    import aiohttp

LIMIT_S = 30.0


class WebDashboard:
    """The dashboard of a page."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        self._socket = socket

    async def press(self, key: str) -> None:
        """Press *key*, and return once the dashboard has drawn something.

        Raises:
            TimeoutError: if it draws nothing.
        """
        await self._socket.send_str(json.dumps(["stdin", key]))
        await self._socket.receive(LIMIT_S)

    async def drain(self, quiet_s: float) -> None:
        """Read until nothing is drawn for *quiet_s*."""
        with contextlib.suppress(TimeoutError):
            while True:
                await self._socket.receive(quiet_s)


class WebProcess:
    """`kasmon web` until the end of the `with` block."""

    def __init__(self, paths: Paths) -> None:
        """Start it. Raises `UnavailableError` if the extra `web` is not installed."""
        if find_spec("aiohttp") is None:
            raise UnavailableError(
                "aiohttp is not installed.", hint="`pipx install --force '.[web]'` in kasmon's clone"
            )
        own = environment(paths.environment_variables())
        self._process = subprocess.Popen([*KASMON, "web", "--json"], env=own, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.link = str(json.loads(self._process.stdout.readline())["web"]["url"])
        """Lets one browser in, once."""
        self.port, self.pid = urlsplit(self.link).port or 0, self._process.pid

    @contextlib.asynccontextmanager
    async def dashboard(self) -> AsyncIterator[WebDashboard]:
        """Log in by the link and open a dashboard; yield once its list is drawn."""
        import aiohttp

        origin = f"http://127.0.0.1:{self.port}"
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar, headers={"Origin": origin}) as client:
            await client.get(self.link)
            address = f"{self.link.partition('?')[0]}ws?width=100&height=30"
            async with client.ws_connect(address) as socket:
                dashboard, drawn = WebDashboard(socket), b""
                async with asyncio.timeout(LIMIT_S):
                    while b"session-0000" not in drawn:
                        drawn += (await socket.receive_bytes())[-100_000:]
                await dashboard.drain(1.0)
                yield dashboard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.communicate()
