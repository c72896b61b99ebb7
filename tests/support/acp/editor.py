"""An editor: the client's side of the protocol, which notes all that `kasmon acp` sends."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from acp.connection import Connection
from acp.schema import RequestPermissionRequest, SessionNotification

from kasmon.acp.connection import EditorConnection
from kasmon.acp.server import serve_editor
from kasmon.config import Config
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from tests.support.wait import auntil

LIMIT_S = 60.0
"""A net under a server that hangs."""
ASK = "session/request_permission"


class Editor:
    """One editor. `choices` answers permission requests, by their order; without one left, they wait."""

    connection: Connection

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.cancelled: list[Any] = []
        self.choices: asyncio.Queue[str] = asyncio.Queue()

    async def receive(self, method: str, params: Any, is_notice: bool) -> Any:
        if method == ASK:
            RequestPermissionRequest.model_validate(params)
            self.asked.append(params)
            option = await self.choices.get()
            if option == "cancelled":
                return {"outcome": {"outcome": "cancelled"}}
            return {"outcome": {"outcome": "selected", "optionId": option}}
        if method == "$/cancel_request":
            self.cancelled.append(params)
            return None
        assert method == "session/update"
        SessionNotification.model_validate(params)
        self.updates.append(params["update"])
        return None

    async def call(self, method: str, **params: Any) -> Any:
        async with asyncio.timeout(LIMIT_S):
            return await self.connection.send_request(method, params)

    async def initialize(self, name: str = "Zed") -> dict[str, Any]:
        info = {"name": name, "version": "1"}
        answer: dict[str, Any] = await self.call("initialize", protocolVersion=1, clientInfo=info)
        return answer

    async def new(self, workdir: str = "/tmp", **more: Any) -> str:
        answer = await self.call("session/new", cwd=workdir, mcpServers=[], **more)
        return str(answer["sessionId"])

    async def prompt(self, session: str, text: str) -> str:
        answer = await self.call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])
        return str(answer["stopReason"])

    async def cancel(self, session: str) -> None:
        await self.connection.send_notification("session/cancel", {"sessionId": session})

    def kinds(self) -> list[str]:
        return [update["sessionUpdate"] for update in self.updates]

    def text(self, kind: str = "agent_message_chunk") -> str:
        """All text of updates of one kind."""
        return "".join(update["content"]["text"] for update in self.updates if update["sessionUpdate"] == kind)

    async def until_asked(self, count: int = 1) -> dict[str, Any]:
        """The request number *count*, from 1."""
        await auntil(lambda: len(self.asked) >= count, LIMIT_S, "a permission request")
        return self.asked[count - 1]

    async def until_text(self, part: str, kind: str = "agent_message_chunk") -> None:
        await auntil(lambda: part in self.text(kind), LIMIT_S, f"{part!r}")


@asynccontextmanager
async def editor(where: Paths, agent: str = "", only: str = "") -> AsyncIterator[Editor]:
    """An editor that is served in this process, over a pair of sockets."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    reader, theirs_writer = await asyncio.open_connection(sock=theirs)
    output = os.dup(theirs.fileno())
    os.set_blocking(output, True)
    served = EditorConnection(reader, output)
    session = SessionId(only) if only else None
    serving = loop.create_task(serve_editor(where, Config(), served, session, agent))
    incoming, outgoing = await asyncio.open_connection(sock=ours, limit=2**26)
    one = Editor()
    one.connection = Connection(one.receive, outgoing, incoming)
    try:
        yield one
    finally:
        await one.connection.close()
        outgoing.close()
        async with asyncio.timeout(LIMIT_S):
            await serving
        theirs_writer.close()
        for writer in (outgoing, theirs_writer):  # `close` alone leaves the socket to the next turn of the loop
            await writer.wait_closed()
        os.close(output)


@asynccontextmanager
async def editor_process(*arguments: str, variables: Mapping[str, str] | None = None) -> AsyncIterator[Editor]:
    """An editor that has started `kasmon acp` with these arguments, and ends it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "kasmon", "acp", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **(variables or {})},
        limit=2**26,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    one = Editor()
    one.connection = Connection(one.receive, process.stdin, process.stdout)
    try:
        yield one
    finally:
        await one.connection.close()
        process.stdin.close()
        async with asyncio.timeout(LIMIT_S):
            await process.wait()
