"""The line between the SDK and the agent's process, over kasmon's own `ChildProcess`.

The SDK has the control protocol: handshake, permission callbacks, interrupts, settings. It gets just that, and
checked: its reader ends at a control message that lacks a field. What the agent says goes to `hear`, as it came and in
its order, because the SDK's parser drops what it does not know.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from claude_agent_sdk import CLIConnectionError, Transport

from kasmon.backends.claude.stdout_line import UnparsedLine, read
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.json_access import Table, table, text
from kasmon.errors import SessionEndedError

ELICITING: Final = "elicitation"
"""What the SDK would refuse in the agent's face; it is answered beside it."""
GONE: Final = "claude has ended"


class ClaudeTransport(Transport):
    """One agent's process as the SDK sees it. It is started, and ended, by others."""

    def __init__(self, child: ChildProcess, hear: Callable[[Table | UnparsedLine], Awaitable[None]]) -> None:
        self.silent = asyncio.Event()
        """The agent says nothing any more."""
        self.calls = 0
        """How many calls of the SDK wait for the agent's answer; they fail when it falls silent."""
        self._child = child
        self._hear = hear

    async def connect(self) -> None:
        """Nothing: the process runs already."""

    async def write(self, data: str) -> None:
        """Give claude *data*, one line.

        Raises:
            CLIConnectionError: if it does not read any more.
        """
        try:
            await self._child.write(data.rstrip("\n").encode())
        except SessionEndedError as error:
            raise CLIConnectionError(GONE) from error

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what the SDK needs to hear; everything else is told to who listens for facts, and ends here."""
        try:
            async for line in self._child.lines():
                message = read(line)
                if message is None:
                    continue
                await self._hear(message)
                if not isinstance(message, UnparsedLine) and (control := controlling(message)) is not None:
                    yield control
        finally:
            self.silent.set()
        if self.calls:
            raise CLIConnectionError(GONE)

    async def close(self) -> None:
        """Nothing: who started the process ends it."""

    def is_ready(self) -> bool:
        return self._child.is_running

    async def end_input(self) -> None:
        """Nothing, likewise."""


def controlling(message: Table) -> Table | None:
    """What the SDK needs of *message*; None where that is nothing.

    In a request for permission the call's id is the request's own, which no other call has, and suggestions are left
    out: kasmon has rules of its own, and the SDK would answer one that it cannot read by itself.
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
