"""The open calls of codex, by the requests that the user sees; and the outcome of an answer."""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from kasmon.backends.codex import approvals, questions
from kasmon.backends.codex.items import PATCH
from kasmon.backends.codex.request import CodexRequest, CodexRequestContext, Labels
from kasmon.backends.common.json_access import Table, table, text
from kasmon.errors import RequestClosedError, UsageError
from kasmon.model.answer import must_fit
from kasmon.model.commands import Answer
from kasmon.model.permission import Decision, Request, RequestId

CallId: TypeAlias = int | str
"""Codex's own id of a call that it waits for."""
READERS: Final[dict[str, Callable[[Table, CodexRequestContext], CodexRequest]]] = {
    "item/commandExecution/requestApproval": approvals.command,
    "item/fileChange/requestApproval": approvals.files,
    "item/permissions/requestApproval": approvals.permissions,
    "item/tool/requestUserInput": questions.questions,
}
"""The calls that wait for the user, except those of MCP servers, which come in several forms."""
ELICITATION: Final = "mcpServer/elicitation/request"


class CodexAnswerOutcome(msgspec.Struct, frozen=True, kw_only=True):
    call: CallId | None = None
    """The id of codex's call that is answered now; None while other questions of it are open."""
    thread: str = ""
    item: str = ""
    """The item that the call was about."""
    result: Table = {}
    allowed: bool = False
    withdrawn: tuple[RequestId, ...] = ()
    """Other requests of the same call, which are withdrawn."""
    interrupt: bool = False
    """The turn must also be interrupted."""
    reason: str = ""
    """Why it was denied; the protocol has no field for it."""


class OpenCall(msgspec.Struct, kw_only=True):
    """A call that waits for its answers."""

    call: CallId
    thread: str
    item: str
    params: Table
    ask: CodexRequest
    chosen: dict[RequestId, Labels] = {}
    """The labels of the questions that are answered already."""

    @property
    def waiting(self) -> tuple[Request, ...]:
        """Its requests without an answer."""
        return tuple(request for request in self.ask.requests if request.id not in self.chosen)


class CodexRequests:
    """The open calls of one codex."""

    def __init__(self) -> None:
        self._open: list[OpenCall] = []

    def opened(self, call: CallId, method: str, params: Table, setting: CodexRequestContext) -> tuple[Request, ...]:
        """Open the call *call* and return its requests; empty if kasmon cannot answer such a call."""
        reader = _elicitation(params) if method == ELICITATION else READERS.get(method)
        ask = reader(params, setting) if reader is not None else None
        if ask is None or not ask.requests:
            return ()
        thread, item = text(params, "threadId"), text(params, "itemId")
        self._open.append(OpenCall(call=call, thread=thread, item=item, params=params, ask=ask))
        return ask.requests

    def changed(self, item: str, setting: Callable[[str], CodexRequestContext]) -> tuple[Request, ...]:
        """Return the requests about the file changes of *item*, rebuilt because those have changed."""
        for known in self._open:
            if known.item == item and known.ask.requests[0].tool == PATCH:
                known.ask = approvals.files(known.params, setting(known.ask.requests[0].id.rpartition(".")[0]))
                return known.ask.requests
        return ()

    def take(self, answer: Answer) -> CodexAnswerOutcome:
        """Apply *answer* and close its request.

        Raises:
            RequestClosedError: if the request is not open.
            StaleRequestError: if the request has changed.
            UnableError: if it does not accept such an answer.
            UsageError: if a label is no answer to it.
        """
        known, request = self._find(answer.request)
        must_fit(request, answer)
        if answer.decision is Decision.CHOOSE:
            return self._chosen(known, request.id, answer)
        self._open.remove(known)
        allows, cancels = answer.decision is Decision.ALLOW, answer.decision is Decision.CANCEL
        return CodexAnswerOutcome(
            call=known.call,
            thread=known.thread,
            item=known.item,
            result=known.ask.allow if allows else known.ask.cancel if cancels else known.ask.deny,
            allowed=allows,
            withdrawn=tuple(other.id for other in known.waiting if other.id != request.id),
            interrupt=cancels and not known.ask.ends_turn,
            reason="" if allows else answer.reason.strip(),
        )

    def close_call(self, call: CallId) -> tuple[RequestId, ...]:
        """Remove and return the open requests of *call*, which codex has closed itself."""
        return self._gone([known for known in self._open if known.call == call])

    def close_thread(self, thread: str) -> tuple[RequestId, ...]:
        """Remove and return the open requests of *thread*."""
        return self._gone([known for known in self._open if known.thread == thread])

    def waiting(self) -> tuple[Request, ...]:
        """Return all open requests, oldest first."""
        return tuple(request for known in self._open for request in known.waiting)

    def _chosen(self, known: OpenCall, request: RequestId, answer: Answer) -> CodexAnswerOutcome:
        labels = answer.labels
        if not labels:
            raise UsageError("`choose` requires a choice.")
        if known.ask.check is not None:
            known.ask.check([asked.id for asked in known.ask.requests].index(request), labels)
        chosen = {**known.chosen, request: labels}
        if len(chosen) < len(known.ask.requests):
            known.chosen = chosen
            return CodexAnswerOutcome(thread=known.thread)
        assert known.ask.compose is not None
        result = known.ask.compose([chosen[asked.id] for asked in known.ask.requests])
        self._open.remove(known)
        return CodexAnswerOutcome(call=known.call, thread=known.thread, item=known.item, result=result, allowed=True)

    def _find(self, request: RequestId) -> tuple[OpenCall, Request]:
        for known in self._open:
            for waiting in known.waiting:
                if waiting.id == request:
                    return known, waiting
        raise RequestClosedError(request, "codex is not waiting for it")

    def _gone(self, gone: list[OpenCall]) -> tuple[RequestId, ...]:
        self._open = [known for known in self._open if known not in gone]
        return tuple(request.id for known in gone for request in known.waiting)


def _elicitation(params: Table) -> Callable[[Table, CodexRequestContext], CodexRequest] | None:
    """Return the function that reads an MCP server's request; None for an unknown mode."""
    mode = text(params, "mode")
    if mode == "url":
        return approvals.url
    if mode != "form":
        return None
    return questions.form if table(params, "requestedSchema", "properties") else approvals.tool
