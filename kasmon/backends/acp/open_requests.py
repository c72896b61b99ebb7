"""All that an agent waits for: permissions, forms to fill in, addresses to open. Answered once, or withdrawn."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
from acp import RequestError
from acp.schema import RequestPermissionRequest
from pydantic import ValidationError

from kasmon.backends.acp import permission_requests
from kasmon.backends.acp.content import diff_of, edits
from kasmon.backends.acp.tool_calls import AcpToolCall
from kasmon.backends.acp.translator import AcpTranslator
from kasmon.backends.acp.transport import IncomingCall
from kasmon.backends.base import AgentOutput
from kasmon.backends.common.elicitation import CANCELLED, ElicitationRequest, Elicitations
from kasmon.backends.common.json_access import table, text
from kasmon.backends.common.open_calls import CallId, OpenCall, OpenCalls
from kasmon.errors import UsageError
from kasmon.model.commands import Answer, Launch
from kasmon.model.events import Event, NoticeRaised
from kasmon.model.permission import Decision, Request, RequestId

PERMISSION: Final = "session/request_permission"
ELICITATION: Final = "elicitation/create"
ELICITATION_COMPLETE: Final = "elicitation/complete"
"""Reports that an address was visited; the agent then continues by itself."""
INVALID_PARAMS: Final = -32602
UNREADABLE: Final = "The agent sent a permission request that kasmon cannot read; kasmon declined it."
NOT_SHOWN: Final = "The agent asked a question that kasmon cannot show; kasmon declined it."
NOT_TOLD: Final = "The reason was not sent: the agent's protocol has no field for it. Send it as a prompt."


class OpenPermission(msgspec.Struct, frozen=True):
    asked: RequestPermissionRequest
    """The agent's request, as received."""
    tool: AcpToolCall
    ask: permission_requests.AcpPermission
    """The current request: the agent may add details of the call while it waits."""


class Permissions(OpenCalls[OpenPermission]):
    def _check(self, call: OpenCall[OpenPermission], request: Request, answer: Answer) -> None:
        if answer.decision is Decision.CHOOSE and answer.labels[0] not in request.options:
            raise UsageError(
                f"request {request.id!r} has no such choice.", hint=(f"Its choices: {list(request.options)}.")
            )


class WaitingCall(NamedTuple):
    """A call of the agent that has no result yet."""

    number: int | str
    """The agent's own id of it."""
    result: asyncio.Future[dict[str, Any]]
    cancelled: dict[str, Any]
    """The result that answers nothing."""
    task: asyncio.Task[Any] | None
    """The SDK's task that sends the result."""


class Reply(NamedTuple):
    """What follows from an answer; see `OpenRequests.send`."""

    call: CallId
    result: dict[str, Any] | None
    """None while the form has other fields."""
    answer: Answer
    events: tuple[Event, ...]
    permission: OpenPermission | None = None


class OpenRequests:
    def __init__(
        self, launch: Launch, translator: AcpTranslator, emit: Callable[[Iterable[AgentOutput]], None]
    ) -> None:
        self.is_closed = False
        """The turn is being ended: whatever the agent asks meanwhile is denied."""
        self._launch, self._translator, self._emit = launch, translator, emit
        self._permissions = Permissions("")
        self._elicitations = Elicitations(launch.session)
        self._waiting: dict[CallId, WaitingCall] = {}
        self._counted = 0

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask_permission(self, asked: IncomingCall, at: float) -> dict[str, Any]:
        """Wait for the answer to *asked*, and return it.

        Raises:
            RequestError: if it cannot be read; nothing is allowed then.
        """
        try:
            parsed = permission_requests.understood(asked.params)
        except ValidationError as error:
            self._emit(self._translator.unknown.report(PERMISSION, asked.params, at))
            self._emit([NoticeRaised(at=at, text=UNREADABLE, level="error")])
            raise RequestError(INVALID_PARAMS, "kasmon cannot read this request") from error
        if self.is_closed:
            return permission_requests.CANCELLED
        call = self._name("acp")
        tool = self._translator.tools.record_request(parsed.tool_call)
        permission = self._build(parsed, tool, call)
        opened = self._permissions.add(call, [permission.ask.request], permission, at)
        return await self._await_result(call, asked, opened, permission_requests.CANCELLED, at)

    async def ask_form(self, asked: IncomingCall, at: float) -> dict[str, Any]:
        """Wait for the answer to *asked*, a form or an address, and return it.

        Raises:
            RequestError: if it cannot be shown.
        """
        call, params = self._name("acp-form"), asked.params
        wanted = ElicitationRequest(
            server=self._launch.agent,
            message=text(params, "message"),
            mode=text(params, "mode") or "form",
            url=text(params, "url"),
            schema=table(params, "requestedSchema"),
        )
        opened = self._elicitations.open(call, wanted, at)
        if not opened:
            self._emit(self._translator.unknown.report(ELICITATION, params, at))
            self._emit([NoticeRaised(at=at, text=NOT_SHOWN, level="warning")])
            raise RequestError(INVALID_PARAMS, "kasmon cannot show this")
        return await self._await_result(call, asked, opened, CANCELLED, at)

    def update(self, at: float) -> None:
        """Withdraw the requests whose call has ended; reopen those whose call has changed: the old request is void.

        If the agent only added a description of the same command, the request stays as it is.
        """
        for call, opened in list(self._permissions.calls.items()):
            permission = opened.content
            if permission.tool.is_finished:
                self._withdraw(call, "the agent continued without an answer", at)
                continue
            before = permission.ask.request
            now = self._build(permission.asked, permission.tool, call)
            if permission_requests.only_explains(now.ask.request, before, now.tool, self._launch.workdir):
                continue
            if now.ask.request.digest != before.digest:
                now.tool.asked_diff = diff_of(edits(now.tool.contents), self._launch.workdir)
                self._emit(self._permissions.add(call, [now.ask.request], now, at))

    def apply(self, answer: Answer, at: float) -> Reply:
        """Return what follows from *answer*; the request accepts no other from now on.

        Raises:
            RequestClosedError, StaleRequestError: if the agent does not wait for that.
            UnableError, UsageError: if there is no such answer.
        """
        if self._elicitations.has(answer.request):
            settled = self._elicitations.answer(answer, at)
            return Reply(settled.call, settled.result, answer, settled.events)
        closed = self._permissions.apply(answer, at)
        return Reply(closed.id, closed.content.ask.outcome(answer), answer, (), closed.content)

    async def send(self, reply: Reply) -> None:
        """Send the agent *reply*; returns when it has it. Raises `SessionEndedError` if it no longer reads."""
        self._emit(reply.events)
        if reply.result is not None:
            task = self._settle(reply.call, reply.result)
            if task is not None:
                await asyncio.wait([task])
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error
        if (permission := reply.permission) is not None:
            at, answer = time.time(), reply.answer
            allows = permission.ask.allows(answer)
            self._emit(self._translator.tools.apply_answer(permission.ask.call, allows, at))
            if answer.decision is not Decision.CHOOSE and answer.reason:
                self._emit([NoticeRaised(at=at, text=NOT_TOLD)])

    def withdraw(self, why: str, at: float) -> None:
        for call in list(self._waiting):
            self._withdraw(call, why, at)

    def withdraw_one(self, number: object, at: float) -> None:
        """Withdraw what the agent asked as *number*, at its request."""
        for call in [call for call, waiting in self._waiting.items() if waiting.number == number]:
            self._withdraw(call, "the agent withdrew it", at)

    def _name(self, kind: str) -> str:
        self._counted += 1
        return f"{kind}-{self._launch.generation}-{self._counted}"

    def _build(self, asked: RequestPermissionRequest, tool: AcpToolCall, call: CallId) -> OpenPermission:
        ask = permission_requests.ask(
            asked,
            tool,
            self._translator.tools,
            number=RequestId(str(call)),
            session=self._launch.session,
            workdir=self._launch.workdir,
        )
        tool.asked_input = ask.request.input
        return OpenPermission(asked, tool, ask)

    async def _await_result(
        self, call: CallId, asked: IncomingCall, opened: Iterable[Event], cancelled: dict[str, Any], at: float
    ) -> dict[str, Any]:
        result: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[call] = WaitingCall(asked.id, result, cancelled, asyncio.current_task())
        self._emit([*self._translator.speech.finish(at), *opened])
        return await result

    def _withdraw(self, call: CallId, why: str, at: float) -> None:
        self._settle(call, self._waiting[call].cancelled)
        if (opened := self._permissions.calls.get(call)) is not None:
            self._emit(self._translator.tools.apply_answer(opened.content.ask.call, False, at))
        self._emit([*self._permissions.withdraw(call, why, at), *self._elicitations.withdraw(call, why, at)])

    def _settle(self, call: CallId, result: dict[str, Any]) -> asyncio.Task[Any] | None:
        """Pass *result* to the task that sends it, and return that task."""
        waiting = self._waiting.pop(call, None)
        if waiting is None:
            return None
        if not waiting.result.done():  # else the end of the connection has cancelled it
            waiting.result.set_result(result)
        return waiting.task
