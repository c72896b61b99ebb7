"""MCP elicitations of a tool server or an agent: a form to fill in, an address to open, or a yes/no question.

MCP, ACP and the agents' own protocols use the same fields. This module turns them into requests, and the answers into
one result: `accept` with the form's content, `decline`, or `cancel`. Pure.
"""

from typing import Any, Final, TypeAlias

import msgspec

from kasmon.backends.common.form import FormField, content, fields
from kasmon.backends.common.open_calls import CallId, OpenCall, OpenCalls
from kasmon.model.commands import Answer
from kasmon.model.events import Event
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, SessionId
from kasmon.sanitize import clean_line

Result: TypeAlias = dict[str, Any]
"""The result that is sent: `{"action": "accept", "content": {...}}` and the like."""
CANCELLED: Final[Result] = {"action": "cancel"}
QUESTION_CHOICES: Final = (Decision.CHOOSE, Decision.DENY, Decision.CANCEL)
YES_OR_NO: Final = (Decision.ALLOW, Decision.DENY, Decision.CANCEL)
ACTIONS: Final = {Decision.ALLOW: "accept", Decision.DENY: "decline", Decision.CANCEL: "cancel"}


class ElicitationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An elicitation as received; a missing field is empty."""

    server: str
    message: str
    title: str = ""
    mode: str = "form"
    schema: dict[str, Any] = {}
    url: str = ""


class ElicitationResult(msgspec.Struct, frozen=True):
    """What follows from an answer."""

    call: CallId
    result: Result | None = None
    """The result to send; None while other fields of the form are open."""
    ends_turn: bool = False
    events: tuple[Event, ...] = ()


class Elicitations(OpenCalls[tuple[FormField, ...]]):
    """The open elicitation calls of one session, by the caller's ids, each with the fields of its form."""

    def __init__(self, session: SessionId) -> None:
        super().__init__("another field of the same form is empty")
        self._session = session

    def open(self, call: CallId, wanted: ElicitationRequest, at: float) -> tuple[Event, ...]:
        """Open requests for *wanted* under the id *call*; returns no events if kasmon cannot show it."""
        requests, form = self._build_requests(call, wanted, at)
        return self.add(call, requests, form, at) if requests else ()

    def answer(self, answer: Answer, at: float) -> ElicitationResult:
        """Apply *answer*. Raises `KasmonError` as `OpenCalls`."""
        call = self.apply(answer, at)
        if not call.is_closed:
            return ElicitationResult(call.id)
        if answer.decision is Decision.CHOOSE:
            return ElicitationResult(call.id, {"action": "accept", "content": content(call.content, call.chosen)})
        result: Result = {"action": ACTIONS[answer.decision]}
        if answer.decision is Decision.ALLOW:
            result["content"] = {}
        return ElicitationResult(call.id, result, answer.decision is Decision.CANCEL, call.events)

    def _check(self, call: OpenCall[tuple[FormField, ...]], request: Request, answer: Answer) -> None:
        if answer.decision is Decision.CHOOSE:
            call.content[call.requests.index(request)].value(answer.labels)

    def _build_requests(
        self, call: CallId, wanted: ElicitationRequest, at: float
    ) -> tuple[list[Request], tuple[FormField, ...]]:
        if not wanted.message:
            return [], ()
        plain = Request(
            id=RequestId(str(call)),
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
            return [address], ()
        if wanted.mode != "form":
            return [], ()
        if not wanted.schema.get("properties"):
            return [plain], ()
        form = fields(wanted.schema)
        return [_question(plain, field, wanted.server, n) for n, field in enumerate(form, 1)], form


def _title(server: str, about: str) -> str:
    return clean_line(": ".join(part for part in (server, about) if part))


def _question(plain: Request, field: FormField, server: str, number: int) -> Request:
    return msgspec.structs.replace(
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
