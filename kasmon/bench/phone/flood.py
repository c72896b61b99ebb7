"""Measures a key in the dashboard of `kasmon web` while programs of this machine flood its port."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from kasmon.bench.phone.web_process import WebProcess
from kasmon.bench.support.figure import Figure, percentile
from kasmon.bench.support.fleet import create_sessions, scratch

PAUSE_S = 0.05
PROGRAM = Path(__file__).parents[1] / "programs" / "flood.py"
REQUESTS = (
    "GET /r/unknown{} HTTP/1.1\\r\\nHost: 127.0.0.1:{}\\r\\n\\r\\n",
    "GET /l/x/ HTTP/1.1\\r\\nHost: 127.0.0.1:{1}\\r\\nCookie: kasmon_login=unknown{0}\\r\\n\\r\\n",
    "no request\\r\\n\\r\\n",
    "",
)
"""What each program of a flood sends: an unknown link, an unknown cookie, no HTTP, nothing."""


def measure_flood(keys: int) -> list[Figure]:
    """Measure *keys* without a flood and as many with one, in turn, ten at a time.

    Raises:
        TimeoutError: if the dashboard draws nothing.
    """
    with scratch() as paths, create_sessions(paths, 6, alive=0), WebProcess(paths) as web:
        quiet, flooded, memory_mb = asyncio.run(_measure(web, keys))
    figures = [
        Figure(
            name=f"key in a browser's dashboard during a flood, p{share * 100:.0f}",
            value=percentile(flooded, share),
            unit="ms",
            target=2.0,
            limit=percentile(quiet, share),
            limit_name="without",
            samples=len(flooded),
            note=f"{len(REQUESTS)} programs: unknown links, unknown cookies, no HTTP, connections without a request",
        )
        for share in (0.5, 0.95)
    ]
    name = "memory of kasmon web after the flood"
    return [*figures, Figure(name=name, value=memory_mb, unit="MB", target=64, samples=1)]


async def _measure(web: WebProcess, keys: int) -> tuple[list[float], list[float], float]:
    quiet: list[float] = []
    flooded: list[float] = []
    async with web.dashboard() as dashboard:
        for _ in range(max(1, keys // 10)):
            for times, clients in ((quiet, 0), (flooded, len(REQUESTS))):
                with _flood(web.port, clients):
                    for number in range(10):
                        await dashboard.drain(PAUSE_S)
                        began = time.perf_counter()
                        await dashboard.press("jk"[number % 2])
                        times.append(1000 * (time.perf_counter() - began))
        return quiet, flooded, psutil.Process(web.pid).memory_info().rss / 1e6


@contextlib.contextmanager
def _flood(port: int, clients: int) -> Iterator[None]:
    running = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM), str(port), REQUESTS[number].format(number, port)],
            stdout=subprocess.PIPE,
        )
        for number in range(clients)
    ]
    try:
        for each in running:
            assert each.stdout is not None
            each.stdout.readline()
        yield
    finally:
        for each in running:
            each.kill()
            each.communicate()
