"""The permission requests that an agent waits for: opened, answered once, or withdrawn.

Other open requests are in `elicitation`.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from acp import RequestError
from acp.schema import RequestPermissionRequest
from pydantic import ValidationError

from kasmon.backends.acp import permission_requests
from kasmon.backends.acp.content import diff_of, edits
from kasmon.backends.acp.elicitation import ElicitationForms
from kasmon.backends.acp.tool_calls import AcpToolCall
from kasmon.backends.acp.translator import AcpTranslator
from kasmon.backends.acp.transport import IncomingCall
from kasmon.backends.base import Chunk
from kasmon.errors import RequestClosedError, StaleRequestError, UnableError, UsageError
from kasmon.model.commands import Answer, Launch
from kasmon.model.events import Event, NoticeRaised, RequestOpened, RequestWithdrawn
from kasmon.model.permission import Decision, RequestId

INVALID_PARAMS: Final = -32602
UNREADABLE: Final = "The agent sent a permission request that kasmon cannot read; kasmon declined it."
NOT_TOLD: Final = "The reason was not sent: the agent's protocol has no field for it. Send it as a prompt."


class OpenPermission:
    """One permission that the agent waits for; created in the SDK's task that sends the answer."""

    def __init__(
        self,
        asked: RequestPermissionRequest,
        tool: AcpToolCall,
        ask: permission_requests.AcpPermission,
        number: int | str,
    ) -> None:
        self.asked = asked
        """The agent's request, as received."""
        self.tool = tool
        self.ask = ask
        """The current request: the agent may add details of the call while it waits."""
        self.number = number
        """The agent's own id of it."""
        self.outcome: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.current_task()

    async def wait_until_answered(self) -> None:
        """Return when the agent has its answer.

        Raises:
            SessionEndedError: if it no longer reads.
        """
        assert self._task is not None
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error


class OpenRequests:
    """All that one agent waits for."""

    def __init__(
        self, launch: Launch, translator: AcpTranslator, emit: Callable[[Iterable[Event | Chunk]], None]
    ) -> None:
        self.is_closed = False
        """The turn is being ended: whatever the agent asks meanwhile is denied."""
        self.forms = ElicitationForms(launch, translator, emit)
        self._launch = launch
        self._translator = translator
        self._emit = emit
        self._waiting: dict[RequestId, OpenPermission] = {}
        self._counted = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self.forms)

    async def asked(self, asked: IncomingCall, at: float) -> dict[str, Any]:
        """Wait for the answer to *asked*, and return it.

        Raises:
            RequestError: if it cannot be read; nothing is allowed then.
        """
        try:
            understood = permission_requests.understood(asked.params)
        except ValidationError as error:
            self._emit(self._translator.foreign.seen("session/request_permission", asked.params, at))
            self._emit([NoticeRaised(at=at, text=UNREADABLE, level="error")])
            raise RequestError(INVALID_PARAMS, "kasmon cannot read this request") from error
        if self.is_closed:
            return permission_requests.CANCELLED
        self._counted += 1
        tools = self._translator.tools
        tool = tools.asked(understood.tool_call)
        ask = self._ask(understood, tool, RequestId(f"acp-{self._launch.generation}-{self._counted}"))
        waiting = self._waiting[ask.request.id] = OpenPermission(understood, tool, ask, asked.id)
        self._emit([*self._translator.speech.ended(at), RequestOpened(at=at, request=ask.request)])
        return await waiting.outcome

    def update(self, at: float) -> None:
        """Reopen requests whose call the agent has changed since: the old request is void then.

        If it only added a description of the same command, the request stays as it is.
        """
        for waiting in self._waiting.values():
            if waiting.outcome.done() or waiting.tool.is_finished:
                continue
            before = waiting.ask.request
            ask = self._ask(waiting.asked, waiting.tool, before.id)
            if permission_requests.only_explains(ask.request, before, waiting.tool, self._launch.workdir):
                continue
            if ask.request.digest != before.digest:
                waiting.ask = ask
                waiting.tool.asked_diff = diff_of(edits(waiting.tool.contents), self._launch.workdir)
                self._emit([RequestOpened(at=at, request=ask.request)])

    def _ask(
        self, asked: RequestPermissionRequest, tool: AcpToolCall, number: RequestId
    ) -> permission_requests.AcpPermission:
        ask = permission_requests.ask(
            asked,
            tool,
            self._translator.tools,
            number=number,
            session=self._launch.session,
            workdir=self._launch.workdir,
        )
        tool.asked_input = ask.request.input
        return ask

    def apply(self, answer: Answer) -> OpenPermission:
        """Return what *answer* answers; the request accepts no other from now on.

        Raises:
            RequestClosedError, StaleRequestError: if the agent does not wait for that.
            UnableError, UsageError: if there is no such answer.
        """
        waiting = self._waiting.get(answer.request)
        if waiting is None:
            raise RequestClosedError(answer.request, "the agent no longer waits for it")
        request = waiting.ask.request
        if answer.digest != request.digest:
            raise StaleRequestError(request.id)
        if answer.decision not in request.choices:
            raise UnableError(f"this agent does not accept the answer {answer.decision!s} here.")
        if answer.decision is Decision.CHOOSE and (not answer.labels or answer.labels[0] not in request.options):
            raise UsageError(
                f"request {request.id!r} has no such choice.", hint=(f"Its choices: {list(request.options)}.")
            )
        return self._waiting.pop(request.id)

    async def send(self, waiting: OpenPermission, answer: Answer) -> None:
        """Send the agent *answer*; returns when it has it.

        Raises:
            SessionEndedError: if it no longer reads.
        """
        if not waiting.outcome.done():
            waiting.outcome.set_result(waiting.ask.outcome(answer))
        await waiting.wait_until_answered()
        at = time.time()
        self._emit(self._translator.tools.answered(waiting.ask.call, waiting.ask.allows(answer), at))
        if answer.decision is not Decision.CHOOSE and answer.reason:
            self._emit([NoticeRaised(at=at, text=NOT_TOLD)])

    def withdraw(self, why: str, at: float) -> None:
        self.forms.withdraw(why, at)
        self._withdraw(list(self._waiting.values()), why, at)

    def withdraw_ended(self, at: float) -> None:
        """Withdraw the requests whose call has ended."""
        over = [each for each in self._waiting.values() if self._translator.tools.has_ended(each.ask.call)]
        self._withdraw(over, "the agent continued without an answer", at)

    def withdraw_one(self, number: object, at: float) -> None:
        """Withdraw what the agent asked as *number*, at its request."""
        self.forms.withdraw_one(number, at)
        taken = [waiting for waiting in self._waiting.values() if waiting.number == number]
        self._withdraw(taken, "the agent withdrew it", at)

    def _withdraw(self, waiting: Iterable[OpenPermission], why: str, at: float) -> None:
        for each in waiting:
            del self._waiting[each.ask.request.id]
            if not each.outcome.done():  # else the end of the connection has cancelled it
                each.outcome.set_result(permission_requests.CANCELLED)
            self._emit(self._translator.tools.answered(each.ask.call, False, at))
            self._emit([RequestWithdrawn(at=at, request=each.ask.request.id, why=why)])
