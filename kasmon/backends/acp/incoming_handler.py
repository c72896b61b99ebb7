"""Handle what an agent sends: notifications become events, its calls are answered, invalid output is recorded."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from acp import RequestError

from kasmon.backends.acp.open_requests import ELICITATION, ELICITATION_COMPLETE, PERMISSION, OpenRequests
from kasmon.backends.acp.translator import AcpTranslator
from kasmon.backends.acp.transport import IncomingCall
from kasmon.backends.base import AgentOutput
from kasmon.backends.common.elicitation import CANCELLED
from kasmon.backends.common.json_access import at as json_at
from kasmon.backends.common.json_access import text

NO_MESSAGE: Final = (
    "The agent printed a line that is not a message of its protocol; it was skipped, as further ones will be."
)
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
        self, translator: AcpTranslator, requests: OpenRequests, emit: Callable[[Iterable[AgentOutput]], None]
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

    async def handle(self, method: str, params: Any, is_notice: bool) -> Any:
        """Handle whatever the agent sends; called by the SDK.

        Raises:
            RequestError: the answer to an unsupported method.
        """
        at = time.time()
        if is_notice:
            self._handle_notification(method, params, at)
            return None
        assert isinstance(params, IncomingCall)
        if method == PERMISSION:
            return await self._requests.ask_permission(params, at)
        if method == ELICITATION:
            is_shown = self.is_open and not self._requests.is_closed
            return await self._requests.ask_form(params, at) if is_shown else CANCELLED
        if not method.startswith(NOT_OFFERED):
            self._emit(self._translator.unknown.report(method, params.params, at))
        raise RequestError(METHOD_NOT_FOUND, f"kasmon does not offer {method!r}")

    def record_garbage(self, line: bytes) -> None:
        self.garbage = self.garbage or line[:GARBAGE_BYTES]
        text = line.decode("utf-8", "replace")
        self._emit(self._translator.unknown.report("a line that is not a message", text, time.time(), NO_MESSAGE))

    def _handle_notification(self, method: str, params: Any, at: float) -> None:
        if method == "session/update":
            if text(params, "update", "sessionUpdate") in WORK:
                self.worked_at = asyncio.get_running_loop().time()
            self._emit(self._translator.translate(params, at))
            self._requests.update(at)
            self._watch_stray()
        elif method == "$/cancel_request":
            self._requests.withdraw_one(json_at(params, "requestId"), at)
        elif method != ELICITATION_COMPLETE:
            self._emit(self._translator.unknown.report(method, params, at))

    def _watch_stray(self) -> None:
        """Finish a message outside of any turn after a pause, as nothing else ends it."""
        if self._stray is not None:
            self._stray.cancel()
            self._stray = None
        if not self.in_turn and self._translator.speech.is_open:
            self._stray = asyncio.get_running_loop().call_later(STRAY_S, self._end_stray)

    def _end_stray(self) -> None:
        if not self.in_turn:
            self._emit(self._translator.speech.finish(time.time()))
