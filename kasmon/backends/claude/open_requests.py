"""The agent's open calls: each with the requests it makes, and the one reply that answers the call.

The SDK does not support elicitations of MCP servers, so kasmon reads and answers these itself.
"""

from collections import Counter
from typing import Final, TypeAlias

import msgspec

from kasmon.backends.claude.request_builder import (
    ACCEPT_EDITS,
    ASK_EACH,
    KEEP_PLANNING,
    RequestContext,
    build_requests,
)
from kasmon.backends.common.elicitation import ElicitationRequest, Result
from kasmon.backends.common.json_access import Table, rows, table, text
from kasmon.backends.common.open_calls import CallId, OpenCall, OpenCalls
from kasmon.errors import UnableError
from kasmon.model.commands import Answer
from kasmon.model.events import Event
from kasmon.model.permission import Decision, Request, RequestKind

DENIED: Final = {
    RequestKind.PERMISSION: "The user does not want this tool to be used like that.",
    RequestKind.PLAN: "The user does not approve this plan yet.",
    RequestKind.QUESTION: "The user does not want to answer this.",
}
"""The reason that the agent gets when the user denied without one."""
REPLACED: Final = "the agent has a different request now"
ELICITATION: Final = "control_request/elicitation"


class AllowResult(msgspec.Struct, frozen=True):
    """Allow the call, with this input.

    It is never left out: the SDK would then repeat the input of the first call with the same id.
    """

    input: Table
    mode: str = ""
    """The permission mode to change to; empty leaves that to the agent."""


class DenyResult(msgspec.Struct, frozen=True):
    """Deny the call, for this reason; end the turn if *ends_turn*."""

    reason: str
    ends_turn: bool = False


PermissionReply: TypeAlias = AllowResult | DenyResult


class ClaudeAnswerOutcome(msgspec.Struct, frozen=True):
    call: CallId
    reply: PermissionReply | None
    """None while the call waits for other answers."""
    events: tuple[Event, ...] = ()


class ClaudeRequests(OpenCalls[Table]):
    """The agent's open calls, by its own ids, each with its input.

    No two requests have the same id, though the agent may use one of its ids again. So an answer in transit, which
    the host has compared with the text shown, never answers a later call.
    """

    def __init__(self) -> None:
        super().__init__("another question of the same call was not answered")
        self._uses = Counter[str]()

    def open(self, call: str, asked: Table, context: RequestContext) -> tuple[Event, ...]:
        """Open requests for *asked*, the agent's call with the id *call*."""
        replaced = self.withdraw(call, REPLACED, context.at)
        made = build_requests(f"{call}#{self._uses[call]}" if self._uses[call] else call, asked, context)
        self._uses[call] += 1
        return (*replaced, *self.add(call, made, table(asked, "input"), context.at))

    def answer(self, answer: Answer, at: float) -> ClaudeAnswerOutcome:
        """Apply *answer*. Raises `KasmonError` as `OpenCalls`."""
        call = self.apply(answer, at)
        if not call.is_closed:
            return ClaudeAnswerOutcome(call.id, None)
        reply: PermissionReply
        match answer.decision:
            case Decision.CHOOSE if call.request.kind is RequestKind.PLAN:
                reply = _plan_reply(call.content, call.chosen[0][0])
            case Decision.CHOOSE:
                questions = [text(question, "question") for question in rows(call.content, "questions")]
                labels = zip(filter(None, questions), map(", ".join, call.chosen), strict=True)
                reply = AllowResult({**call.content, "answers": dict(labels)})
            case Decision.EDIT:
                reply = AllowResult(answer.input or {})
            case Decision.ALLOW:
                reply = AllowResult(call.content)
            case _:
                reason = answer.reason or DENIED[call.request.kind]
                reply = DenyResult(reason, answer.decision is Decision.CANCEL)
        return ClaudeAnswerOutcome(call.id, reply, call.events)

    def _check(self, call: OpenCall[Table], request: Request, answer: Answer) -> None:
        if answer.decision is Decision.EDIT and answer.input is None:
            raise UnableError(f"the edited input of {request.id!r} is missing.")


def parse_elicitation(asked: Table) -> ElicitationRequest:
    return ElicitationRequest(
        server=text(asked, "display_name") or text(asked, "mcp_server_name"),
        message=text(asked, "message"),
        title=text(asked, "title"),
        mode=text(asked, "mode") or "form",
        schema=table(asked, "requested_schema"),
        url=text(asked, "url"),
    )


def encode_reply(call: str, result: Result | None) -> bytes:
    """Return the line that answers the elicitation *call*; a *result* of None means that kasmon cannot show it."""
    answered: Table = {"request_id": call}
    if result is None:
        answered |= {"subtype": "error", "error": "kasmon cannot show this"}
    else:
        answered |= {"subtype": "success", "response": result}
    return msgspec.json.encode({"type": "control_response", "response": answered})


def _plan_reply(given: Table, label: str) -> PermissionReply:
    """Return the reply to a plan for the chosen *label*, or for feedback."""
    modes = {ACCEPT_EDITS: "acceptEdits", ASK_EACH: "default"}
    if label in modes:
        return AllowResult(given, modes[label])
    return DenyResult(DENIED[RequestKind.PLAN] if label == KEEP_PLANNING else label)
