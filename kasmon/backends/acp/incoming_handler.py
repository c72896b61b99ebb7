"""Handle what an agent sends: notifications become events, its calls are answered, invalid output is recorded."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from acp import RequestError

from kasmon.backends.acp import elicitation
from kasmon.backends.acp.open_requests import OpenRequests
from kasmon.backends.acp.translator import AcpTranslator
from kasmon.backends.acp.transport import IncomingCall
from kasmon.backends.base import Chunk
from kasmon.backends.common.elicitation import CANCELLED
from kasmon.model.events import Event

STRAY_S: Final = 0.5
"""A message outside of any turn is finished when nothing was added to it for this long, in seconds."""
GARBAGE_BYTES: Final = 400
METHOD_NOT_FOUND: Final = -32601
WORK: Final = frozenset({"agent_message_chunk", "agent_thought_chunk", "tool_call"})
"""Updates that an agent sends only while its turn runs."""
NOT_OFFERED: Final = ("fs/", "terminal/", "mcp/")
"""Unsupported requests. opencode asks kasmon to write files all the same, and writes them itself when refused."""


class IncomingHandler:
    """Handles the messages of one agent."""

    def __init__(
        self, translator: AcpTranslator, requests: OpenRequests, emit: Callable[[Iterable[Event | Chunk]], None]
    ) -> None:
        self.is_open = False
        """Its conversation is open, so that it can be answered."""
        self.in_turn = False
        self.worked_at = -math.inf
        """When it last wrote or began something, by the loop's clock."""
        self.garbage = b""
        """The first line of its output that was not a message."""
        self._translator = translator
        self._requests = requests
        self._emit = emit
        self._stray: asyncio.TimerHandle | None = None

    async def called(self, method: str, params: Any, is_notice: bool) -> Any:
        """Handle whatever the agent sends; called by the SDK.

        Raises:
            RequestError: the answer to an unsupported method.
        """
        at = time.time()
        if is_notice:
            self._handle_notification(method, params, at)
            return None
        assert isinstance(params, IncomingCall)
        if method == "session/request_permission":
            return await self._requests.asked(params, at)
        if method == elicitation.METHOD:
            is_heard = self.is_open and not self._requests.is_closed
            return await self._requests.forms.asked(params, at) if is_heard else CANCELLED
        if not method.startswith(NOT_OFFERED):
            self._emit(self._translator.foreign.seen(method, params.params, at))
        raise RequestError(METHOD_NOT_FOUND, f"kasmon does not offer {method!r}")

    def record_garbage(self, line: bytes) -> None:
        self.garbage = self.garbage or line[:GARBAGE_BYTES]
        self._emit(self._translator.foreign.garbage(line, time.time()))

    def _handle_notification(self, method: str, params: Any, at: float) -> None:
        if method == "session/update":
            if _kind(params) in WORK:
                self.worked_at = asyncio.get_running_loop().time()
            self._emit(self._translator.heard(params, at))
            self._requests.withdraw_ended(at)
            self._requests.update(at)
            self._watch_stray()
        elif method == "$/cancel_request":
            self._requests.withdraw_one(params.get("requestId") if isinstance(params, dict) else None, at)
        elif method != elicitation.COMPLETE:
            self._emit(self._translator.foreign.seen(method, params, at))

    def _watch_stray(self) -> None:
        """Finish a message outside of any turn after a pause, as nothing else ends it."""
        if self._stray is not None:
            self._stray.cancel()
            self._stray = None
        if not self.in_turn and self._translator.speech.is_open:
            self._stray = asyncio.get_running_loop().call_later(STRAY_S, self._end_stray)

    def _end_stray(self) -> None:
        if not self.in_turn:
            self._emit(self._translator.speech.ended(time.time()))


def _kind(params: Any) -> object:
    update = params.get("update") if isinstance(params, dict) else None
    return update.get("sessionUpdate") if isinstance(update, dict) else None
