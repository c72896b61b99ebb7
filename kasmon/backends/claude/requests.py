"""The agent's open calls: each with the requests it makes, and the one reply that answers the call."""

from collections import Counter
from typing import Final, TypeAlias

import msgspec

from kasmon.backends.claude.control_request import RequestContext, requests
from kasmon.backends.common.json_access import Table, table, text
from kasmon.errors import RequestClosedError, UnableError
from kasmon.model.answer import check_decision
from kasmon.model.commands import Answer
from kasmon.model.events import Event, RequestOpened, RequestWithdrawn
from kasmon.model.permission import Decision, Request, RequestId, RequestKind

DENIED: Final = {
    RequestKind.PERMISSION: "The user does not want this tool to be used like that.",
    RequestKind.PLAN: "The user does not approve this plan yet.",
    RequestKind.QUESTION: "The user does not want to answer this.",
}
"""The reason that the agent gets when the user denied without one."""
REPLACED: Final = "the agent has a different request now"
OTHERS: Final = "another question of the same call was not answered"


class AllowResult(msgspec.Struct, frozen=True):
    """Allow the call, with this input; None keeps the agent's own."""

    input: Table | None = None


class DenyResult(msgspec.Struct, frozen=True):
    """Deny the call, for this reason; end the turn if *ends_turn*."""

    reason: str
    ends_turn: bool = False


Reply: TypeAlias = AllowResult | DenyResult


class _Call(msgspec.Struct):
    input: Table
    open: dict[RequestId, Request]
    answers: dict[str, str]
    """Question -> answer, for those answered so far."""


class ClaudeAnswerOutcome(msgspec.Struct, frozen=True):
    call: str
    reply: Reply | None
    """None while the call waits for other answers."""
    events: tuple[Event, ...] = ()


class ClaudeRequests:
    """The agent's open calls, by its own ids.

    No two requests have the same id, though the agent may use one of its ids again. So an answer in transit, which
    the host has compared with the text shown, never answers a later call.
    """

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._uses = Counter[str]()

    def open(self, call: str, asked: Table, context: RequestContext) -> tuple[Event, ...]:
        """Open requests for *asked*, the agent's call with the id *call*."""
        replaced = self.withdraw(call, REPLACED, context.at)
        made = requests(f"{call}#{self._uses[call]}" if self._uses[call] else call, asked, context)
        self._uses[call] += 1
        self._calls[call] = _Call(table(asked, "input"), {request.id: request for request in made}, {})
        return (*replaced, *(RequestOpened(at=context.at, request=request) for request in made))

    def withdraw(self, call: str, why: str, at: float) -> tuple[Event, ...]:
        """Withdraw the open requests of *call*, for the reason *why*."""
        gone = self._calls.pop(call, None)
        return _withdrawn(gone, why, at) if gone is not None else ()

    def withdraw_all(self, why: str, at: float) -> tuple[Event, ...]:
        """Withdraw every open request, for the reason *why*."""
        return tuple(event for call in list(self._calls) for event in self.withdraw(call, why, at))

    def reopen_all(self, at: float) -> tuple[Event, ...]:
        """Return all open requests as new events: the end of a turn voids requests, but the agent still waits."""
        return tuple(
            RequestOpened(at=at, request=request) for call in self._calls.values() for request in call.open.values()
        )

    def answer(self, answer: Answer, at: float) -> ClaudeAnswerOutcome:
        """Apply *answer*.

        Raises:
            RequestClosedError: if the agent is not waiting for it.
            UnableError: if the request does not accept it.
        """
        name, call, request = self._find(answer.request)
        check_decision(request, answer.decision, request.choices)
        reply: Reply | None
        match answer.decision:
            case Decision.CHOOSE:
                reply = self._choose(call, request, answer)
            case Decision.EDIT if answer.input is None:
                raise UnableError(f"the edited input of {request.id!r} is missing.")
            case Decision.EDIT:
                reply = AllowResult(answer.input)
            case Decision.ALLOW:
                reply = AllowResult()
            case _:
                reply = DenyResult(answer.reason or DENIED[request.kind], answer.decision is Decision.CANCEL)
        if reply is None:
            return ClaudeAnswerOutcome(name, None)
        del call.open[request.id]
        del self._calls[name]
        return ClaudeAnswerOutcome(name, reply, _withdrawn(call, OTHERS, at))

    def _find(self, request: RequestId) -> tuple[str, _Call, Request]:
        for name, call in self._calls.items():
            if request in call.open:
                return name, call, call.open[request]
        raise RequestClosedError(request, "the agent is not waiting for it")

    def _choose(self, call: _Call, request: Request, answer: Answer) -> Reply | None:
        """Record an answered question; return the reply once it was the last of its call."""
        if not answer.labels or (len(answer.labels) > 1 and not request.many):
            number = "one answer or more" if request.many else "one answer"
            raise UnableError(f"request {request.id!r} accepts {number}, not {len(answer.labels)}.")
        call.answers[text(request.input, "question")] = ", ".join(answer.labels)
        if len(call.open) > 1:
            del call.open[request.id]
            return None
        return AllowResult({**call.input, "answers": dict(call.answers)})


def _withdrawn(call: _Call, why: str, at: float) -> tuple[Event, ...]:
    return tuple(RequestWithdrawn(at=at, request=request, why=why) for request in call.open)
