"""`kasmon mcp`: serve the tools over stdio with the official package. stdout carries only the protocol."""

import asyncio
import json
import os
import sys
from typing import Any, Final

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from kasmon import __version__
from kasmon.config import Config
from kasmon.errors import UsageError
from kasmon.host.rpc.frames import RunOutputChunk
from kasmon.host.rpc.locked_process import StopSignal
from kasmon.mcp.client_identity import ClientIdentity
from kasmon.mcp.dispatcher import ToolDispatcher, ToolResult
from kasmon.mcp.fleet_tools import FleetTools
from kasmon.mcp.sandbox_tools import SandboxTools
from kasmon.mcp.session_tools import SessionTools
from kasmon.mcp.tool_schemas import FLEET_INSTRUCTIONS, INSTRUCTIONS
from kasmon.paths import Paths
from kasmon.supervisor.fleet.lookup import own_id
from kasmon.supervisor.sandboxes.create import NewSandbox

EVERY_S: Final = 0.1
"""The minimum interval between progress notifications, in seconds."""
LONGEST: Final = 16 * 1024
"""The maximum characters of output in one notification, the latest ones; the result has all of them."""


def serve(paths: Paths, config: Config, client: str, template: NewSandbox) -> int:
    """Serve one client over stdin and stdout until it disconnects or a signal arrives; return the exit code.

    Raises:
        UsageError: if *client* is not a valid client name, or stdin or stdout is closed.
    """
    if sys.stdin is None or sys.stdout is None:
        raise UsageError("cannot serve: stdin or stdout is closed.")
    session = own_id(os.environ)
    owner = ClientIdentity(paths, client or session)
    sandbox_tools = SandboxTools(paths, config, owner, template)
    dispatcher = ToolDispatcher(paths, sandbox_tools, SessionTools(paths, session) if session else None)
    return _exit_code(asyncio.run(_serve_until_over(dispatcher, sandbox_tools)))


def _exit_code(signal_number: int | None) -> int:
    if signal_number is not None:
        sys.stderr.flush()
        os._exit(128 + signal_number)  # a thread still reads stdin, and Python would wait for it
    return 0


def serve_fleet(paths: Paths, config: Config) -> int:
    """Serve the tools for other sessions to the agent that this process belongs to, as `serve` does.

    Raises:
        RefusedError: if it belongs to none, or the person did not allow that agent these tools.
        UsageError: if stdin or stdout is closed.
    """
    if sys.stdin is None or sys.stdout is None:
        raise UsageError("cannot serve: stdin or stdout is closed.")
    return _exit_code(asyncio.run(_serve_until_over(FleetTools(paths, config), None)))


def server_of(dispatcher: ToolDispatcher | FleetTools) -> Server[Any]:
    tools = [
        types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema)
        for tool in dispatcher.tools.values()
    ]

    instructions = FLEET_INSTRUCTIONS if isinstance(dispatcher, FleetTools) else INSTRUCTIONS

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: ServerRequestContext[Any], call: types.CallToolRequestParams) -> types.CallToolResult:
        progress = _Progress(context)
        result = await progress.call(dispatcher, call)
        text = json.dumps(result.content, ensure_ascii=False)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=result.content,
            is_error=result.is_error,
        )

    return Server(
        "kasmon", version=__version__, instructions=instructions, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def _serve_until_over(dispatcher: ToolDispatcher | FleetTools, sandbox_tools: SandboxTools | None) -> int | None:
    """Serve; return the signal that ended it, None if the client did."""
    loop, stop = asyncio.get_running_loop(), StopSignal()
    if sandbox_tools is not None:
        await sandbox_tools.open()
    serving = loop.create_task(_serve_stdio(dispatcher))
    waiting = loop.create_task(stop.received.wait())
    try:
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if sandbox_tools is not None:
            await sandbox_tools.close()
    if stop.number:
        return stop.number
    await serving
    return None


async def _serve_stdio(dispatcher: ToolDispatcher | FleetTools) -> None:
    server = server_of(dispatcher)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Progress:
    """Sends the output of running code to a client that requested progress."""

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._context = context
        self._is_requested = bool(context.meta and context.meta.get("progress_token") is not None)
        self._unsent = ""
        self._printed_characters = 0

    async def call(self, dispatcher: ToolDispatcher | FleetTools, params: types.CallToolRequestParams) -> ToolResult:
        call = dispatcher.call(params.name, params.arguments or {}, self._append)
        if not self._is_requested:
            return await call
        calling = asyncio.get_running_loop().create_task(call)
        try:
            while not (await asyncio.wait({calling}, timeout=EVERY_S))[0]:
                await self._send()
            await self._send()
            return calling.result()
        finally:
            calling.cancel()

    def _append(self, printed: RunOutputChunk) -> None:
        if self._is_requested:
            text = printed.stdout + printed.stderr
            self._printed_characters += len(text)
            self._unsent = (self._unsent + text)[-LONGEST:]

    async def _send(self) -> None:
        if self._unsent:
            text, self._unsent = self._unsent, ""
            await self._context.session.report_progress(self._printed_characters, None, text)
