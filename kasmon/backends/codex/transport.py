"""The connection to codex: JSON-RPC, one message a line, calls in both directions, over its stdin or a socket.

Answers go to the waiting call, other messages to `messages`. The member `jsonrpc` is left out, as codex does.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol

import msgspec

from kasmon.backends.common.child_process import KEPT_BYTES
from kasmon.backends.common.json_access import Table, number, table, text
from kasmon.backends.common.open_calls import CallId
from kasmon.errors import RefusedError, SessionEndedError
from kasmon.sanitize import redact

WISHES: Final = {
    "turn/start": "the prompt",
    "turn/steer": "the prompt into its running turn",
    "thread/compact/start": "the command /compact",
    "review/start": "the command /review",
    "turn/interrupt": "the interrupt",
    "thread/settings/update": "the setting",
}
"""What these calls send, for error messages."""
NOT_FOUND: Final = -32601
"""JSON-RPC's code for an unknown method."""

log = logging.getLogger(__name__)


class CodexMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that codex sends by itself."""

    method: str
    params: Table
    call: CallId | None = None
    """Set if codex waits for an answer."""


class UnreadableLine(msgspec.Struct, frozen=True):
    raw: bytes


class CallRefusedError(RefusedError):
    def __init__(self, method: str, message: str) -> None:
        self.said = message
        """Codex's own message."""
        super().__init__(f"codex did not accept {WISHES.get(method, repr(method))}: {message}.")


class LineChannel(Protocol):
    """What carries the messages: the process's own pipes, or a socket."""

    def lines(self) -> AsyncIterator[bytes]:
        """Yield codex's messages until there are no more."""

    async def write(self, line: bytes) -> None:
        """Send codex a message. Raises `SessionEndedError` if it no longer reads."""


class CodexTransport:
    """The connection to one codex. `messages` must be read all the time: this also delivers answers to `call`."""

    def __init__(self, channel: LineChannel, session: str, secrets: tuple[str, ...]) -> None:
        self._channel = channel
        self._session = session
        self._secrets = secrets
        self._calls: dict[int, tuple[str, asyncio.Future[Table]]] = {}
        self._count = 0
        self._is_closed = False

    async def call(self, method: str, params: Table) -> Table:
        """Call *method* and return codex's result.

        Raises:
            CallRefusedError: if it answers with an error.
            SessionEndedError: if it ends before it answers.
        """
        if self._is_closed:
            raise SessionEndedError(self._session)
        self._count += 1
        mine = self._count
        waiting: asyncio.Future[Table] = asyncio.get_running_loop().create_future()
        self._calls[mine] = (method, waiting)
        try:
            await self._write({"id": mine, "method": method, "params": params})
            return await waiting
        finally:
            del self._calls[mine]

    async def send_notification(self, method: str) -> None:
        """Send the notification *method*. Raises `SessionEndedError` if codex has ended."""
        await self._write({"method": method})

    async def answer(self, call: CallId, result: Table) -> None:
        """Send codex the *result* of its *call*. Raises `SessionEndedError` if codex has ended."""
        await self._write({"id": call, "result": result})

    async def refuse(self, call: CallId, why: str) -> None:
        """Answer codex's *call* with an error: kasmon does not support it.

        Raises:
            SessionEndedError: if codex has ended.
        """
        await self._write({"id": call, "error": {"code": NOT_FOUND, "message": why}})

    async def messages(self) -> AsyncIterator[CodexMessage | UnreadableLine]:
        """Yield codex's own messages in order, until its output ends; answers are delivered before later messages."""
        try:
            async for line in self._channel.lines():
                message = _read(line)
                if message is None:
                    continue
                if not isinstance(message, dict):
                    yield message
                    continue
                self._deliver(message)
                await asyncio.sleep(0)  # the waiting caller runs first
        finally:
            self._is_closed = True
            for _, waiting in self._calls.values():
                if not waiting.done():
                    waiting.set_exception(SessionEndedError(self._session))

    def _deliver(self, answer: Table) -> None:
        method, waiting = self._calls.get(number(answer, "id") or 0, ("", None))
        if waiting is None or waiting.done():
            log.info("codex sent an unexpected answer: %r", answer.get("id"))
        elif "error" in answer:
            reason = text(answer, "error", "message") or "no reason given"
            waiting.set_exception(CallRefusedError(method, redact(reason, self._secrets)[0]))
        else:
            waiting.set_result(table(answer, "result"))

    async def _write(self, message: Table) -> None:
        try:
            await self._channel.write(_encode(message))
        except SessionEndedError as error:
            raise SessionEndedError(self._session) from error


def _read(line: bytes) -> CodexMessage | UnreadableLine | Table | None:
    """Return the message on *line*: a message of codex's own, an answer as it is, or None for an empty line."""
    if not line.strip():
        return None
    try:
        message: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UnreadableLine(line[:KEPT_BYTES])
    if not isinstance(message, dict):
        return UnreadableLine(line[:KEPT_BYTES])
    method, call = message.get("method"), message.get("id")
    if isinstance(method, str) and (call is None or (isinstance(call, int | str) and not isinstance(call, bool))):
        return CodexMessage(method=method, params=table(message, "params"), call=call)
    if method is None and call is not None and ("result" in message or "error" in message):
        return message
    return UnreadableLine(line[:KEPT_BYTES])


def _encode(message: Table) -> bytes:
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:  # half a surrogate pair, which a prompt can hold and UTF-8 cannot
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
