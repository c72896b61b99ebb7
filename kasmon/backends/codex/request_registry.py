"""The open calls of codex, and the outcome of an answer."""

from collections.abc import Callable
from typing import Final

import msgspec

from kasmon.backends.codex import approvals, questions
from kasmon.backends.codex.items import PATCH
from kasmon.backends.codex.request import CodexRequest, CodexRequestContext
from kasmon.backends.common.json_access import Table, table, text
from kasmon.backends.common.open_calls import CallId, OpenCall, OpenCalls
from kasmon.model.commands import Answer
from kasmon.model.events import Event
from kasmon.model.permission import Decision, Request

READERS: Final[dict[str, Callable[[Table, CodexRequestContext], CodexRequest]]] = {
    "item/commandExecution/requestApproval": approvals.command,
    "item/fileChange/requestApproval": approvals.files,
    "item/permissions/requestApproval": approvals.permissions,
    "item/tool/requestUserInput": questions.questions,
}
"""The calls that wait for the user, except those of MCP servers, which come in several forms."""
NO_LONGER: Final = "codex no longer waits for it"
ELICITATION: Final = "mcpServer/elicitation/request"


class CodexAnswerOutcome(msgspec.Struct, frozen=True, kw_only=True):
    call: CallId | None = None
    """The id of codex's call that is answered now; None while other questions of it are open."""
    thread: str = ""
    item: str = ""
    """The item that the call was about."""
    result: Table = {}
    allowed: bool = False
    events: tuple[Event, ...] = ()
    """The withdrawals of other requests of the same call."""
    interrupt: bool = False
    """The turn must also be interrupted."""
    reason: str = ""
    """Why it was denied; the protocol has no field for it."""


class CodexCall(msgspec.Struct, frozen=True):
    params: Table
    ask: CodexRequest


class CodexRequests(OpenCalls[CodexCall]):
    """The open calls of one codex."""

    def __init__(self) -> None:
        super().__init__(NO_LONGER)

    def open(self, call: CallId, method: str, params: Table, setting: CodexRequestContext) -> tuple[Event, ...]:
        """Open the call *call* and return its events; empty if kasmon cannot answer such a call."""
        reader = _elicitation(params) if method == ELICITATION else READERS.get(method)
        ask = reader(params, setting) if reader is not None else None
        return self.add(call, ask.requests, CodexCall(params, ask), setting.now) if ask and ask.requests else ()

    def update(self, item: str, setting: Callable[[str], CodexRequestContext], at: float) -> tuple[Event, ...]:
        """Open the request about the file changes of *item* again, rebuilt because those have changed."""
        for name, call in self.calls.items():
            (first, *_), params = call.requests, call.content.params
            if text(params, "itemId") == item and first.tool == PATCH:
                ask = approvals.files(params, setting(first.id.rpartition(".")[0]))
                return self.add(name, ask.requests, CodexCall(params, ask), at)
        return ()

    def answer(self, answer: Answer, at: float) -> CodexAnswerOutcome:
        """Apply *answer* and close its request. Raises `KasmonError` as `OpenCalls`."""
        call = self.apply(answer, at)
        ask, params = call.content.ask, call.content.params
        thread = text(params, "threadId")
        if not call.is_closed:
            return CodexAnswerOutcome(thread=thread)
        allows, cancels = answer.decision in (Decision.ALLOW, Decision.CHOOSE), answer.decision is Decision.CANCEL
        result = ask.allow if allows else ask.cancel if cancels else ask.deny
        return CodexAnswerOutcome(
            call=call.id,
            thread=thread,
            item=text(params, "itemId"),
            result=ask.compose(call.chosen) if call.chosen and ask.compose is not None else result,
            allowed=allows,
            events=call.events,
            interrupt=cancels and not ask.ends_turn,
            reason="" if allows else answer.reason.strip(),
        )

    def close_thread(self, thread: str, at: float) -> list[Event]:
        calls = [name for name, call in self.calls.items() if text(call.content.params, "threadId") == thread]
        return [event for name in calls for event in self.withdraw(name, NO_LONGER, at)]

    def _check(self, call: OpenCall[CodexCall], request: Request, answer: Answer) -> None:
        if call.content.ask.check is not None and answer.decision is Decision.CHOOSE:
            call.content.ask.check(call.requests.index(request), answer.labels)


def _elicitation(params: Table) -> Callable[[Table, CodexRequestContext], CodexRequest] | None:
    """Return the function that reads an MCP server's request; None for an unknown mode."""
    mode = text(params, "mode")
    if mode == "url":
        return approvals.url
    if mode != "form":
        return None
    return questions.form if table(params, "requestedSchema", "properties") else approvals.tool
