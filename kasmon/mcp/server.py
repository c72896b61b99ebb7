"""`kasmon mcp`: serve the tools over stdio with the official package. stdout carries only the protocol."""

import asyncio
import json
import os
import signal
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
from kasmon.mcp.client_identity import ClientIdentity
from kasmon.mcp.dispatcher import ToolDispatcher, ToolResult
from kasmon.mcp.sandbox_tools import SandboxTools
from kasmon.mcp.session_tools import SessionTools
from kasmon.mcp.tool_schemas import INSTRUCTIONS
from kasmon.paths import Paths
from kasmon.supervisor.fleet.lookup import own_id
from kasmon.supervisor.sandboxes.create import NewSandbox

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
EVERY_S: Final = 0.1
"""The minimum interval between progress notifications, in seconds."""
LONGEST: Final = 16 * 1024
"""The maximum characters of output in one notification, the latest ones; the result has all of them."""


def serve(places: Paths, config: Config, client: str, like: NewSandbox) -> int:
    """Serve one client over stdin and stdout until it disconnects or a signal arrives; return the exit code.

    Raises:
        UsageError: if *client* is not a valid client name, or stdin or stdout is closed.
    """
    if sys.stdin is None or sys.stdout is None:
        raise UsageError("cannot serve: stdin or stdout is closed.")
    session = own_id(os.environ)
    owner = ClientIdentity(places, client or session)
    workshop = SandboxTools(places, config, owner, like)
    desk = ToolDispatcher(places, workshop, SessionTools(places, session) if session else None)
    told = asyncio.run(_until_over(desk, workshop))
    if told is not None:
        sys.stderr.flush()
        os._exit(128 + told)  # a thread still reads stdin, and Python would wait for it
    return 0


def server_of(desk: ToolDispatcher) -> Server[Any]:
    """Return a server with the tools of *desk*."""
    tools = [
        types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema)
        for tool in desk.tools.values()
    ]

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: ServerRequestContext[Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
        progress = _Progress(context)
        told = await progress.of(desk, asked)
        text = json.dumps(told.content, ensure_ascii=False)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=told.content,
            is_error=told.is_error,
        )

    return Server(
        "kasmon",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _until_over(desk: ToolDispatcher, workshop: SandboxTools) -> int | None:
    """Serve; return the signal that ended it, None if the client did."""
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    signals: list[int] = []

    def hear(number: int) -> None:
        signals.append(number)
        heard.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, hear, number)
    await workshop.open()
    serving = loop.create_task(_served(desk))
    waiting = loop.create_task(heard.wait())
    try:
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        await workshop.close()
    if signals:
        return signals[0]
    await serving
    return None


async def _served(desk: ToolDispatcher) -> None:
    server = server_of(desk)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Progress:
    """Sends the output of running code to a client that requested progress."""

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._context = context
        self._is_wanted = bool(context.meta and context.meta.get("progress_token") is not None)
        self._unsent = ""
        self._told = 0

    async def of(self, desk: ToolDispatcher, asked: types.CallToolRequestParams) -> ToolResult:
        call = desk.call(asked.name, asked.arguments or {}, self._take)
        if not self._is_wanted:
            return await call
        calling = asyncio.get_running_loop().create_task(call)
        try:
            while not (await asyncio.wait({calling}, timeout=EVERY_S))[0]:
                await self._send()
            await self._send()
            return calling.result()
        finally:
            calling.cancel()

    def _take(self, printed: RunOutputChunk) -> None:
        if self._is_wanted:
            text = printed.stdout + printed.stderr
            self._told += len(text)
            self._unsent = (self._unsent + text)[-LONGEST:]

    async def _send(self) -> None:
        if self._unsent:
            text, self._unsent = self._unsent, ""
            await self._context.session.report_progress(self._told, None, text)
