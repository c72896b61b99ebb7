"""MCP elicitations of a tool server or an agent: a form to fill in, an address to open, or a yes/no question.

MCP, ACP and the agents' own protocols use the same fields. This module turns them into requests, and the answers into
one result: `accept` with the form's content, `decline`, or `cancel`. Pure.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from kasmon.backends.common.form import FormField, Labels, content, fields
from kasmon.errors import RequestClosedError, UnableError
from kasmon.model.answer import must_fit
from kasmon.model.commands import Answer
from kasmon.model.events import Event, RequestOpened, RequestWithdrawn
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, SessionId, seal
from kasmon.sanitize import clean_line

Result: TypeAlias = dict[str, Any]
"""The result that is sent: `{"action": "accept", "content": {...}}` and the like."""
CANCELLED: Final[Result] = {"action": "cancel"}
QUESTION_CHOICES: Final = (Decision.CHOOSE, Decision.DENY, Decision.CANCEL)
YES_OR_NO: Final = (Decision.ALLOW, Decision.DENY, Decision.CANCEL)
ACTIONS: Final = {Decision.ALLOW: "accept", Decision.DENY: "decline", Decision.CANCEL: "cancel"}
OTHERS: Final = "another field of the same form is empty"


class ElicitationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An elicitation as received; a missing field is empty."""

    server: str
    message: str
    title: str = ""
    mode: str = "form"
    schema: dict[str, Any] = {}
    url: str = ""


class _Call(msgspec.Struct):
    requests: tuple[Request, ...]
    form: tuple[FormField, ...]
    chosen: dict[RequestId, Labels] = {}

    @property
    def waiting(self) -> tuple[Request, ...]:
        return tuple(request for request in self.requests if request.id not in self.chosen)


class ElicitationResult(msgspec.Struct, frozen=True):
    """What follows from an answer."""

    call: str
    result: Result | None = None
    """The result to send; None while other fields of the form are open."""
    ends_turn: bool = False
    events: tuple[Event, ...] = ()


class Elicitations:
    """The open elicitation calls of one session, by the caller's ids."""

    def __init__(self, session: SessionId) -> None:
        self._session = session
        self._calls: dict[str, _Call] = {}

    def open(self, call: str, wanted: ElicitationRequest, at: float) -> tuple[Event, ...]:
        """Open requests for *wanted* under the id *call*; returns no events if kasmon cannot show it."""
        made = self._build_call(call, wanted, at)
        if made is None:
            return ()
        self._calls[call] = made
        return tuple(RequestOpened(at=at, request=request) for request in made.requests)

    def waits(self, call: str) -> bool:
        """Whether *call* is shown to the user."""
        return call in self._calls

    def withdraw(self, call: str, why: str, at: float) -> tuple[Event, ...]:
        """Withdraw the open requests of *call*, for the reason *why*."""
        gone = self._calls.pop(call, None)
        return _withdrawn(gone.waiting, why, at) if gone is not None else ()

    def withdraw_all(self, why: str, at: float) -> tuple[Event, ...]:
        """Withdraw every open request, for the reason *why*."""
        return tuple(event for call in list(self._calls) for event in self.withdraw(call, why, at))

    def reopen_all(self, at: float) -> tuple[Event, ...]:
        """Return all open requests as new events: the end of a turn voids requests, but the server still waits."""
        return tuple(RequestOpened(at=at, request=request) for call in self._calls.values() for request in call.waiting)

    def has(self, request: RequestId) -> bool:
        """Whether *request* is one of these and open."""
        return any(request == waiting.id for call in self._calls.values() for waiting in call.waiting)

    def answer(self, answer: Answer, at: float) -> ElicitationResult:
        """Apply *answer*.

        Raises:
            RequestClosedError: if the agent is not waiting for it.
            StaleRequestError: if the answer is for another text.
            UnableError, UsageError: if the request does not accept it.
        """
        name, call, request = self._find(answer.request)
        must_fit(request, answer)
        if answer.decision is Decision.CHOOSE:
            return self._choose(name, call, request, answer)
        del self._calls[name]
        result: Result = {"action": ACTIONS[answer.decision]}
        if answer.decision is Decision.ALLOW:
            result["content"] = {}
        others = [other for other in call.waiting if other.id != request.id]
        return ElicitationResult(name, result, answer.decision is Decision.CANCEL, _withdrawn(others, OTHERS, at))

    def _choose(self, name: str, call: _Call, request: Request, answer: Answer) -> ElicitationResult:
        number = len(answer.labels)
        if not number or (number > 1 and not request.many):
            takes = "one answer or more" if request.many else "one answer"
            raise UnableError(f"request {request.id!r} accepts {takes}, not {number}.")
        call.form[call.requests.index(request)].value(answer.labels)
        call.chosen = {**call.chosen, request.id: answer.labels}
        if call.waiting:
            return ElicitationResult(name)
        del self._calls[name]
        chosen = [call.chosen[asked.id] for asked in call.requests]
        return ElicitationResult(name, {"action": "accept", "content": content(call.form, chosen)})

    def _find(self, request: RequestId) -> tuple[str, _Call, Request]:
        for name, call in self._calls.items():
            for waiting in call.waiting:
                if waiting.id == request:
                    return name, call, waiting
        raise RequestClosedError(request, "the agent is not waiting for it")

    def _build_call(self, call: str, wanted: ElicitationRequest, at: float) -> _Call | None:
        if not wanted.message:
            return None
        plain = Request(
            id=RequestId(call),
            session=self._session,
            tool=wanted.server,
            title=_title(wanted.server, wanted.title or wanted.message),
            shown=wanted.message,
            choices=YES_OR_NO,
            asked_at=at,
        )
        if wanted.mode == "url":
            address = msgspec.structs.replace(
                plain,
                kind=RequestKind.AUTH,
                title=_title(wanted.server, "open an address"),
                input={"url": wanted.url},
                shown=f"{wanted.message}\n\n{wanted.url}",
            )
            return _Call((seal(address),), ())
        if wanted.mode != "form":
            return None
        if not wanted.schema.get("properties"):
            return _Call((seal(plain),), ())
        form = fields(wanted.schema)
        asks = (_question(plain, field, wanted.server, n) for n, field in enumerate(form, 1))
        return _Call(tuple(asks), form) if form else None


def _title(server: str, about: str) -> str:
    return clean_line(": ".join(part for part in (server, about) if part))


def _question(plain: Request, field: FormField, server: str, number: int) -> Request:
    return seal(
        msgspec.structs.replace(
            plain,
            id=RequestId(f"{plain.id}:{number}"),
            kind=RequestKind.QUESTION,
            title=_title(server, field.title),
            input={"field": field.name},
            shown="\n\n".join(part for part in (plain.shown, field.description) if part),
            choices=QUESTION_CHOICES,
            options=field.options,
            many=field.many,
            free_text=field.free_text,
        )
    )


def _withdrawn(requests: Sequence[Request], why: str, at: float) -> tuple[Event, ...]:
    return tuple(RequestWithdrawn(at=at, request=request.id, why=why) for request in requests)
