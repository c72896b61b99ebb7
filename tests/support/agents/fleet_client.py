"""Clients of the fleet tools, whose servers are children of a session's agent."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any, Self

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.support.agents.leading_agent import LeadingAgent, start_lead, write_profile
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON

TOOLS = """
import asyncio, json, sys
from kasmon.config.parser import load_or_default
from kasmon.mcp.fleet_tools import FleetTools
from kasmon.paths import user_paths

async def serve():
    tools = FleetTools(user_paths(), load_or_default(user_paths()))
    while line := await asyncio.to_thread(sys.stdin.readline):
        result = await tools.call(*json.loads(line), None)
        print(json.dumps([result.content, result.is_error]), flush=True)

asyncio.run(serve())
"""
"""A program that calls a tool for each line, and prints what it returns."""


class ToolClient:
    """Calls the tools of *lead*, without the protocol: its package takes a second of the processor to import."""

    def __init__(self, lead: LeadingAgent) -> None:
        self._command = lead.relay(sys.executable, "-P", "-c", TOOLS)

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, limit=16 << 20)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _call(self, tool: str, given: dict[str, str]) -> tuple[dict[str, Any], bool]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([tool, given]).encode() + b"\n")
        content, is_error = json.loads(await self._process.stdout.readline())
        return content, is_error

    async def ok(self, tool: str, **given: str) -> dict[str, Any]:
        content, is_error = await self._call(tool, given)
        assert not is_error, content
        return content

    async def refused(self, tool: str, **given: str) -> str:
        content, is_error = await self._call(tool, given)
        assert is_error, content
        return str(content["error"])


class FleetClient(ToolClient):
    """The same by the official client of `kasmon mcp --tools fleet`."""

    def __init__(self, lead: LeadingAgent) -> None:
        command = lead.relay(*KASMON, "mcp", "--tools", "fleet")
        self._stack = AsyncExitStack()
        server = StdioServerParameters(command=command[0], args=command[1:])
        self._client = Client(stdio_client(server, errlog=sys.stderr))  # by default that of the time of its import

    async def __aenter__(self) -> Self:
        self.client = await self._stack.enter_async_context(self._client)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _call(self, tool: str, given: dict[str, str]) -> tuple[dict[str, Any], bool]:
        result = await self.client.call_tool(tool, given)
        return dict(result.structured_content or {}), result.is_error


def lead_of(kasmon: Cli, name: str = "lead", **settings: str) -> LeadingAgent:
    write_profile(kasmon)
    for setting, value in ({"agents": "scripted"} | settings).items():
        done = kasmon("config", f"fleet.{setting}", value)
        assert 0 == done.code, done.err
    config = kasmon.paths.config_file
    text = config.read_text()
    if "[agents.scripted]" not in text:
        config.write_text(f'{text}\n[agents.scripted]\nexecution_mode = "sdk"\n')
    return start_lead(kasmon, name, "--tools", "fleet")
