"""Agent that calls `list` of `kasmon mcp --tools fleet`: `fleet_client.py FOLDER CALLS`.

It begins once FOLDER/go exists, and writes `[[milliseconds, ...], sessions]` to FOLDER/times.json.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from kasmon.paths import write_private


async def call(folder: Path, calls: int) -> None:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "kasmon", "mcp", "--tools", "fleet"], env=dict(os.environ)
    )
    times, sessions = list[float](), 0
    async with Client(stdio_client(server)) as client:
        await client.call_tool("list", {})  # the first one reads all logs
        for _ in range(calls):
            began = time.perf_counter()
            result = await client.call_tool("list", {})
            times.append(1000 * (time.perf_counter() - began))
            if result.is_error:
                raise RuntimeError((result.structured_content or {})["error"])
            sessions = len((result.structured_content or {})["sessions"])
    write_private(folder / "times.json", json.dumps([times, sessions]).encode())


def main(folder: Path, calls: int) -> None:
    while not (folder / "go").exists():
        time.sleep(0.01)
    try:
        asyncio.run(call(folder, calls))
    except Exception as error:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        write_private(folder / "error.txt", f"{type(error).__name__}: {error}".encode())
        raise


main(Path(sys.argv[1]), int(sys.argv[2]))
