"""The transport between the SDK and the agent's process, over kasmon's own `ChildProcess`.

The SDK implements the control protocol: handshake, permission callbacks, interrupts, settings. It gets only these
messages, and validated: its reader ends at a control message that lacks a field. Every message goes to `on_message`,
unchanged and in order, because the SDK's parser drops what it does not know.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from claude_agent_sdk import CLIConnectionError, Transport

from kasmon.backends.claude.messages import UnparsedLine, read
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.json_access import Table, table, text
from kasmon.errors import SessionEndedError

ELICITING: Final = "elicitation"
"""A call that the SDK would reject; kasmon answers it directly."""
GONE: Final = "claude has ended"


class ClaudeTransport(Transport):
    """One agent's process as the SDK sees it. The caller starts and ends the process."""

    def __init__(self, child: ChildProcess, on_message: Callable[[Table | UnparsedLine], Awaitable[None]]) -> None:
        self.silent = asyncio.Event()
        """The agent sends no more output."""
        self.calls = 0
        """How many SDK calls wait for the agent's answer; they fail when its output ends."""
        self._child = child
        self._on_message = on_message

    async def connect(self) -> None:
        """Do nothing: the process runs already."""

    async def write(self, data: str) -> None:
        """Send *data*, one line, to claude. Raises `CLIConnectionError` if it no longer reads."""
        try:
            await self._child.write(data.rstrip("\n").encode())
        except SessionEndedError as error:
            raise CLIConnectionError(GONE) from error

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages that the SDK needs; every message also goes to `on_message`."""
        try:
            async for line in self._child.lines():
                message = read(line)
                if message is None:
                    continue
                await self._on_message(message)
                if not isinstance(message, UnparsedLine) and (control := controlling(message)) is not None:
                    yield control
        finally:
            self.silent.set()
        if self.calls:
            raise CLIConnectionError(GONE)

    async def close(self) -> None:
        """Do nothing: the owner of the process ends it."""

    def is_ready(self) -> bool:
        return self._child.is_running

    async def end_input(self) -> None:
        """Do nothing, likewise."""


def controlling(message: Table) -> Table | None:
    """Return what the SDK needs of *message*; None if nothing.

    In a permission request, the call's id becomes that of the request, which is unique. Suggestions are left out:
    kasmon has its own rules, and the SDK would itself answer one that it cannot parse.
    """
    request, name = table(message, "request"), text(message, "request_id")
    match text(message, "type"):
        case "control_response" if text(table(message, "response"), "request_id"):
            return message
        case "control_cancel_request" if name:
            return message
        case "control_request" if name and text(request, "subtype") == "can_use_tool":
            asked = {"subtype": "can_use_tool", "tool_name": text(request, "tool_name"), "tool_use_id": name}
            return {**message, "request": {**asked, "input": table(request, "input")}}
        case "control_request" if name and text(request, "subtype") not in ("", ELICITING):
            return message
    return None
