"""The SDK's transport over an agent's process: messages in and out, a line each.

Only well-formed messages are passed on, since a malformed one would end the SDK's reading for good. Everything else
goes to `on_garbage`. Reading pauses while the event queue is full.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from kasmon.backends.common.child_process import ChildProcess
from kasmon.model.events import replace_surrogates

HALVES: Final = re.compile(rb"\\u[dD][89a-fA-F]")
INTERNAL: Final = -32603
"""JSON-RPC's code for an internal error."""


class IncomingCall(NamedTuple):
    """A request of the agent, as its handler gets it: the SDK hides the id, but a cancellation names it."""

    id: int | str
    params: Any


class AcpTransport:
    """The messages of one agent."""

    def __init__(
        self, child: ChildProcess, on_garbage: Callable[[bytes], None], wait_for_space: Callable[[], Awaitable[None]]
    ) -> None:
        self.over = asyncio.Event()
        """Set when the agent has closed its output."""
        self._child = child
        self._lines = child.lines()
        self._on_garbage = on_garbage
        self._room = wait_for_space

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        await self._room()
        async for line in self._lines:
            if not line.strip():
                continue
            if (message := understood(line)) is not None:
                return message
            self._on_garbage(line)
        self.over.set()
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Send *message* to the agent. Raises `SessionEndedError` if it no longer reads."""
        await self._child.write(json.dumps(message, separators=(",", ":")).encode())

    async def close(self) -> None:
        """Do nothing: the process is not owned by the transport."""


def understood(line: bytes) -> dict[str, Any] | None:
    """Return the message on *line*, in the shape that the SDK relies on; None if it is invalid."""
    try:
        message = json.loads(line.decode("utf-8", "replace"))
        if HALVES.search(line):
            message = replace_surrogates(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    if "method" in message:
        return _call(message)
    return _answer(message)


def _call(message: dict[str, Any]) -> dict[str, Any] | None:
    if not isinstance(message["method"], str):
        return None
    number = message.get("id")
    if number is None:
        return {name: value for name, value in message.items() if name != "id"}
    if not _is_id(number):
        return None
    return {**message, "params": IncomingCall(number, message.get("params"))}


def _answer(message: dict[str, Any]) -> dict[str, Any] | None:
    if not _is_id(message.get("id")):
        return None
    error = message.get("error")
    if error is None:
        return {"id": message["id"], "result": message["result"]} if "result" in message else None
    if not isinstance(error, dict):
        error = {"message": str(error)}
    code, text = error.get("code"), error.get("message")
    response = {
        "code": code if isinstance(code, int) else INTERNAL,
        "message": text if isinstance(text, str) else json.dumps(text) if text is not None else "no reason given",
        "data": error.get("data"),
    }
    return {"id": message["id"], "error": response}


def _is_id(number: object) -> bool:
    return isinstance(number, int | str) and not isinstance(number, bool)
