"""The connection to one editor: the SDK's router over kasmon's own lines on stdio."""

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from acp import RequestError
from acp.agent.router import build_agent_router
from acp.connection import Connection

from kasmon.acp.updates import EditorUpdate
from kasmon.backends.acp.transport import IncomingCall, understood
from kasmon.model.events import replace_surrogates

LINE_BYTES: Final = 2**26
"""The longest message that an editor may send."""
READ_BYTES: Final = 2**16
ASK: Final = "session/request_permission"

log = logging.getLogger(__name__)


class EditorConnection:
    """One editor. Its calls reach the agent that `open` gets; what kasmon sends goes through the methods here."""

    def __init__(self, reader: asyncio.StreamReader, output: int) -> None:
        """*output*: the file descriptor of what the editor reads."""
        self.name = ""
        """The editor's name, as it gave it."""
        self.on_response: Callable[[dict[str, Any]], None] = lambda result: None
        """Called with each result that was sent to the editor."""
        self._reader, self._output = reader, output
        self._writing = asyncio.Lock()
        self._over = asyncio.Event()
        self._asked: dict[str, int | str] = {}
        """Tool call of an open permission request -> the id of its message."""
        self._connection: Connection

    @classmethod
    def of_stdio(cls) -> "EditorConnection":
        """Return the connection over this process's stdin and stdout. Nothing else may write to stdout from then on."""
        reader = asyncio.StreamReader(limit=LINE_BYTES)
        source, output, loop = os.dup(0), os.dup(1), asyncio.get_running_loop()
        os.dup2(2, 1)
        threading.Thread(target=_feed, args=(source, reader, loop), name="reads stdin", daemon=True).start()
        return cls(reader, output)

    def open(self, agent: Any) -> None:
        """Pass the editor's calls to *agent* from now on; its methods have the names of `acp.interfaces.Agent`."""
        self._connection = Connection(build_agent_router(agent, use_unstable_protocol=True), self)

    async def wait_for_end(self) -> None:
        """Return when the editor has closed its side."""
        await self._over.wait()

    async def aclose(self) -> None:
        """Stop the running calls; idempotent."""
        await self._connection.close()

    async def update(self, session: str, update: EditorUpdate) -> None:
        """Send one update of *session*. Does nothing once the editor is gone."""
        try:
            await self._connection.send_notification("session/update", {"sessionId": session, "update": update})
        except ConnectionError:
            self._over.set()

    async def ask(self, session: str, tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str:
        """Ask the editor for a permission and return the id of the chosen option; empty if none was chosen.

        If this is cancelled, the editor is told that the request is void.

        Raises:
            RequestError: if the editor refuses to ask.
            ConnectionError: if it is gone.
        """
        call = str(tool_call["toolCallId"])
        params = {"sessionId": session, "toolCall": tool_call, "options": options}
        try:
            answer = await self._connection.send_request(ASK, params)
        except asyncio.CancelledError:
            if (number := self._asked.get(call)) is not None and not self._over.is_set():
                await self._connection.send_notification("$/cancel_request", {"requestId": number})
            raise
        finally:
            self._asked.pop(call, None)
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        option = outcome.get("optionId") if isinstance(outcome, dict) else None
        return option if isinstance(option, str) else ""

    # The transport that the SDK's connection uses

    async def receive(self) -> dict[str, Any] | None:
        """Return the editor's next message; None at the end. A line that is no message is logged and skipped."""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial
                if not line.strip():
                    self._over.set()
                    return None
            except (asyncio.LimitOverrunError, OSError) as error:
                log.warning("the editor's input cannot be read: %s", error)
                self._over.set()
                return None
            if not line.strip():
                continue
            message = understood(line)
            if message is None:
                log.warning("the editor sent a line of %d bytes that is no message; it was skipped", len(line))
                continue
            call = message.get("params")
            return {**message, "params": call.params} if isinstance(call, IncomingCall) else message

    async def send(self, message: dict[str, Any]) -> None:
        """Send *message* to the editor.

        Raises:
            ConnectionError: if it no longer reads.
        """
        if message.get("method") == ASK:
            self._asked[message["params"]["toolCall"]["toolCallId"]] = message["id"]
        line = json.dumps(replace_surrogates(message), separators=(",", ":")).encode()
        async with self._writing:
            await asyncio.to_thread(_write, self._output, line + b"\n")
        if isinstance(result := message.get("result"), dict):
            self.on_response(result)

    async def close(self) -> None:
        """Do nothing: the output ends with the process."""


def _feed(source: int, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
    """Feed all that *source* has to *reader*, from a thread: stdin may be what no event loop can wait for."""
    while data := _read(source):
        loop.call_soon_threadsafe(reader.feed_data, data)
    loop.call_soon_threadsafe(reader.feed_eof)


def _read(source: int) -> bytes:
    try:
        return os.read(source, READ_BYTES)
    except OSError:
        return b""


def _write(output: int, data: bytes) -> None:
    """Write all of *data*. Raises `ConnectionError` if it is not read any more. Blocks."""
    try:
        while data:
            data = data[os.write(output, data) :]
    except OSError as error:
        raise ConnectionError(str(error)) from error


def refused(error: Exception, code: int = -32603) -> RequestError:
    """Return *error* as the protocol's answer; its message is for the person."""
    hint = getattr(error, "hint", "")
    message = getattr(error, "message", str(error))
    return RequestError(code, f"{message} {hint}".strip())
