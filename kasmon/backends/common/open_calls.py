"""The calls of an agent that wait for the user. Each makes one request or several, and has one result."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec

from kasmon.errors import RequestClosedError, UnableError
from kasmon.model.answer import must_fit
from kasmon.model.commands import Answer
from kasmon.model.events import Event, RequestOpened, RequestWithdrawn
from kasmon.model.permission import Decision, Request, RequestId, seal

CallId: TypeAlias = int | str
"""The agent's own id of a call that it waits for."""
Labels: TypeAlias = tuple[str, ...]
Content = TypeVar("Content")


class OpenCall(msgspec.Struct, Generic[Content]):
    """A call that waits for its answers; *content* is what its backend needs to build the result."""

    requests: tuple[Request, ...]
    content: Content
    chosen: dict[RequestId, Labels] = {}
    """The labels of the questions that are answered already."""

    @property
    def waiting(self) -> list[Request]:
        return [request for request in self.requests if request.id not in self.chosen]


class AnsweredCall(msgspec.Struct, Generic[Content], frozen=True):
    id: CallId
    content: Content
    request: Request
    is_closed: bool = False
    """Whether the call has its result now; otherwise other questions of it are open."""
    chosen: tuple[Labels, ...] = ()
    """The labels of all its questions, in their order, once each has some."""
    events: tuple[Event, ...] = ()
    """The withdrawals of its other requests."""


class OpenCalls(Generic[Content]):
    """The open calls of one agent, by their ids, oldest first."""

    def __init__(self, others: str) -> None:
        """*others*: why the other requests of a call are withdrawn when one is denied."""
        self._others = others
        self.calls: dict[CallId, OpenCall[Content]] = {}

    def has(self, request: RequestId) -> bool:
        return any(request == waiting.id for waiting in self.waiting())

    def waiting(self) -> tuple[Request, ...]:
        return tuple(request for call in self.calls.values() for request in call.waiting)

    def withdraw(self, call: CallId, why: str, at: float) -> tuple[Event, ...]:
        """Withdraw the open requests of *call*, for the reason *why*; of a closed call there are none."""
        gone = self.calls.pop(call, None)
        return withdrawals(gone.waiting, why, at) if gone is not None else ()

    def withdraw_all(self, why: str, at: float) -> tuple[Event, ...]:
        """Withdraw every open request, for the reason *why*."""
        return tuple(event for call in list(self.calls) for event in self.withdraw(call, why, at))

    def reopen_all(self, at: float) -> tuple[Event, ...]:
        """Return all open requests as new events: the end of a turn voids requests, but the agent still waits."""
        return tuple(RequestOpened(at=at, request=request) for request in self.waiting())

    def add(self, call: CallId, requests: Iterable[Request], content: Content, at: float) -> tuple[Event, ...]:
        """Open *requests*, sealed, for *call*, in the place of earlier ones; return their events."""
        sealed = tuple(map(seal, requests))
        self.calls[call] = OpenCall(sealed, content)
        return tuple(RequestOpened(at=at, request=request) for request in sealed)

    def _check(self, call: OpenCall[Content], request: Request, answer: Answer) -> None:
        """Refuse an *answer* that fits *request* by its decision, but not by its content."""

    def apply(self, answer: Answer, at: float) -> AnsweredCall[Content]:
        """Apply *answer*; it closes its call, unless other questions of it are open.

        Raises:
            RequestClosedError: if the agent is not waiting for it.
            StaleRequestError: if the answer is for another text.
            UnableError, UsageError: if the request does not accept it.
        """
        name, call, request = self._find(answer.request)
        must_fit(request, answer)
        chosen: tuple[Labels, ...] = ()
        if answer.decision is Decision.CHOOSE:
            number = len(answer.labels)
            if not number or (number > 1 and not request.many):
                accepted = "one answer or more" if request.many else "one answer"
                raise UnableError(f"request {request.id!r} accepts {accepted}, not {number}.")
        self._check(call, request, answer)
        if answer.decision is Decision.CHOOSE:
            call.chosen = {**call.chosen, request.id: answer.labels}
            if call.waiting:
                return AnsweredCall(name, call.content, request)
            chosen = tuple(call.chosen[each.id] for each in call.requests)
        del self.calls[name]
        others = [other for other in call.waiting if other.id != request.id]
        return AnsweredCall(name, call.content, request, True, chosen, withdrawals(others, self._others, at))

    def _find(self, request: RequestId) -> tuple[CallId, OpenCall[Content], Request]:
        for name, call in self.calls.items():
            for waiting in call.waiting:
                if waiting.id == request:
                    return name, call, waiting
        raise RequestClosedError(request, "the agent is not waiting for it")


def withdrawals(requests: Sequence[Request], why: str, at: float) -> tuple[Event, ...]:
    return tuple(RequestWithdrawn(at=at, request=request.id, why=why) for request in requests)
