"""Measures the page of one request in a real Chromium of a phone's size: its bytes, and the time to its first view."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kasmon.bench.phone.web_process import LIMIT_S, WebProcess
from kasmon.bench.support.figure import Figure, percentile, timed, wait_until
from kasmon.bench.support.fleet import build_request, create_sessions, scratch
from kasmon.errors import UnavailableError
from kasmon.model.events import RequestOpened
from kasmon.store.event_log import EventLog
from kasmon.store.request_links import RequestLinks

if TYPE_CHECKING:
    import aiohttp

COMMAND: Final = "git push --force origin main"
PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = ("--headless=new", "--no-first-run", "--disable-background-networking", "--remote-debugging-port=0")
PHONE: Final = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
SEEN: Final = """
(() => {
  const view = performance.getEntriesByName("first-contentful-paint")[0];
  const page = performance.getEntriesByType("navigation")[0];
  const isShown = view && document.querySelector("button.allow");
  return isShown && [view.startTime, page.responseEnd - page.requestStart, page.transferSize];
})()
"""
"""The time from the navigation to the first view, that of the server for its answer, both in ms, and the bytes."""


def measure_page(rounds: int) -> list[Figure]:
    """Measure *rounds* views, each in a new tab and of a new link.

    Raises:
        UnavailableError: if no Chromium is on PATH, or the extra `web` is not installed.
        TimedOutError: if Chromium does not start.
        TimeoutError: if a page is not shown.
    """
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise UnavailableError("no Chromium is on PATH.", hint="Install chromium.")
    with scratch() as paths, create_sessions(paths, 1) as [session], WebProcess(paths) as web:
        request = build_request(session, COMMAND)
        EventLog(paths.log(session)).append(RequestOpened(at=time.time(), request=request))
        links = [RequestLinks(paths).create(request, 15.0, time.time() + number) for number in range(rounds)]
        addresses = [f"http://127.0.0.1:{web.port}/r/{link}" for link in links]
        with _start(program) as browser:
            seen = asyncio.run(_view(browser, addresses))
    views, answers, sizes = zip(*seen, strict=True)
    note = (
        f"p95 {percentile(views, 0.95):.0f} ms; the server took {percentile(answers, 0.5):.0f} ms of it (p95 "
        f"{percentile(answers, 0.95):.0f} ms), the browser the rest"
    )
    return [
        timed("link to the first view of a request in Chromium, p50", views, 500, note),
        Figure(name="page of one request", value=max(sizes) / 1024, unit="KB", target=60, samples=rounds),
    ]


async def _view(browser: str, addresses: Sequence[str]) -> list[tuple[float, float, float]]:
    import aiohttp  # of an extra, see `WebProcess`

    async with aiohttp.ClientSession() as client, client.ws_connect(browser, max_msg_size=0) as socket:
        tabs = _Browser(socket)
        return [await tabs.view(address) for address in addresses]


class _Browser:
    """A Chromium, by its own protocol."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        self._socket, self._number = socket, 0

    async def call(self, method: str, parameters: Mapping[str, Any], session: str = "") -> Any:
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_json(request | ({"sessionId": session} if session else {}))
        while (answer := await self._socket.receive_json()).get("id") != self._number:
            pass
        return answer.get("result", {})

    async def view(self, address: str) -> tuple[float, float, float]:
        """Open *address* in a new tab of a phone's size; return what `SEEN` returns."""
        context = (await self.call("Target.createBrowserContext", {}))["browserContextId"]
        tab = await self.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        attached = await self.call("Target.attachToTarget", {"targetId": tab["targetId"], "flatten": True})
        session = attached["sessionId"]
        await self.call("Emulation.setDeviceMetricsOverride", PHONE, session)
        await self.call("Page.navigate", {"url": address}, session)
        async with asyncio.timeout(LIMIT_S):
            while True:
                asked = {"expression": SEEN, "returnByValue": True}
                if seen := (await self.call("Runtime.evaluate", asked, session)).get("result", {}).get("value"):
                    break
                await asyncio.sleep(0.02)
        await self.call("Target.disposeBrowserContext", {"browserContextId": context})
        return float(seen[0]), float(seen[1]), float(seen[2])


@contextlib.contextmanager
def _start(program: str) -> Iterator[str]:
    """Start *program* with a profile of its own; yield the address of its protocol, and end it."""
    home = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
    own = {"HOME": str(home), "TMPDIR": str(home), "PATH": os.environ["PATH"]}
    argv = [program, *FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else []), f"--user-data-dir={home / 'profile'}"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(argv, env=own, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        port_file = home / "profile" / "DevToolsActivePort"
        wait_until(
            lambda: port_file.exists() and len(port_file.read_text().split()) > 1, LIMIT_S, "Chromium did not start"
        )
        port, path = port_file.read_text().split()
        yield f"ws://127.0.0.1:{port}{path}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(home, ignore_errors=True)
