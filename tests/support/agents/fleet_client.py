"""A client of `kasmon mcp --tools fleet`, whose server is a child of a session's agent."""

import sys
from contextlib import AsyncExitStack
from typing import Any, Self

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.support.agents.leading_agent import LeadingAgent, start_lead, write_profile
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON


class FleetClient:
    """A client of the tools, whose server is a child of *lead*."""

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

    async def ok(self, tool: str, **given: str) -> dict[str, Any]:
        result = await self.client.call_tool(tool, given)
        assert not result.is_error, result.structured_content
        return dict(result.structured_content or {})

    async def refused(self, tool: str, **given: str) -> str:
        result = await self.client.call_tool(tool, given)
        assert result.is_error, result.structured_content
        return str((result.structured_content or {})["error"])


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
