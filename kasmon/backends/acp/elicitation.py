"""An agent's elicitations: questions as forms, addresses to open; answered, or withdrawn."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from acp import RequestError

from kasmon.backends.acp.translator import AcpTranslator
from kasmon.backends.acp.transport import IncomingCall
from kasmon.backends.base import Chunk
from kasmon.backends.common.elicitation import CANCELLED, ElicitationRequest, ElicitationResult, Elicitations, Result
from kasmon.model.commands import Answer, Launch
from kasmon.model.events import Event, NoticeRaised
from kasmon.model.permission import RequestId

METHOD: Final = "elicitation/create"
COMPLETE: Final = "elicitation/complete"
"""Reports that an address was visited; the agent then continues by itself."""
INVALID_PARAMS: Final = -32602
UNREADABLE: Final = "The agent asked a question that kasmon cannot show; kasmon declined it."


class ElicitationForms:
    """All open elicitations of one agent."""

    def __init__(
        self, launch: Launch, translator: AcpTranslator, emit: Callable[[Iterable[Event | Chunk]], None]
    ) -> None:
        self._generation = launch.generation
        self._agent = launch.agent
        self._translator = translator
        self._emit = emit
        self._elicitations = Elicitations(launch.session)
        self._results: dict[str, asyncio.Future[Result]] = {}
        self._numbers: dict[str, int | str] = {}
        """kasmon's id of each open one -> the agent's own."""
        self._counted = 0

    def __len__(self) -> int:
        return len(self._results)

    def has(self, request: RequestId) -> bool:
        """Whether *request* is one of these and open."""
        return self._elicitations.has(request)

    async def asked(self, asked: IncomingCall, at: float) -> Result:
        """Wait for the answer to *asked*, and return it.

        Raises:
            RequestError: if it cannot be shown.
        """
        self._counted += 1
        call = f"acp-form-{self._generation}-{self._counted}"
        opened = self._elicitations.open(call, _wanted(asked.params, self._agent), at)
        if not opened:
            self._emit(self._translator.foreign.seen(METHOD, asked.params, at))
            self._emit([NoticeRaised(at=at, text=UNREADABLE, level="warning")])
            raise RequestError(INVALID_PARAMS, "kasmon cannot show this")
        self._numbers[call] = asked.id
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._results[call] = result
        self._emit([*self._translator.speech.ended(at), *opened])
        return await result

    def apply(self, answer: Answer, at: float) -> ElicitationResult:
        """Apply *answer*; the request accepts no other from now on.

        Raises:
            RequestClosedError, StaleRequestError, UnableError, UsageError: if no open request accepts it.
        """
        return self._elicitations.answer(answer, at)

    def send(self, settled: ElicitationResult) -> None:
        """Send the agent its answer, once it is complete."""
        self._emit(settled.events)
        if settled.result is not None:
            self._settle(settled.call, settled.result)

    def withdraw(self, why: str, at: float) -> None:
        for call in list(self._results):
            self._withdraw(call, why, at)

    def withdraw_one(self, number: object, at: float) -> None:
        """Withdraw what the agent asked as *number*, at its request."""
        for call in [call for call, theirs in self._numbers.items() if theirs == number]:
            self._withdraw(call, "the agent withdrew it", at)

    def _withdraw(self, call: str, why: str, at: float) -> None:
        self._emit(self._elicitations.withdraw(call, why, at))
        self._settle(call, CANCELLED)

    def _settle(self, call: str, result: Result) -> None:
        self._numbers.pop(call, None)
        waiting = self._results.pop(call, None)
        if waiting is not None and not waiting.done():  # the turn or the connection may have ended first
            waiting.set_result(result)


def _wanted(params: Any, agent: str) -> ElicitationRequest:
    """Return the elicitation in *params*, unchecked; a missing or mistyped field is empty, so it cannot be shown."""
    said: Mapping[str, Any] = params if isinstance(params, Mapping) else {}
    message, mode, url = (text if isinstance(text := said.get(key), str) else "" for key in ("message", "mode", "url"))
    schema = said.get("requestedSchema")
    return ElicitationRequest(
        server=agent, message=message, mode=mode or "form", url=url, schema=schema if isinstance(schema, dict) else {}
    )
