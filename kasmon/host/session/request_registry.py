"""The agent's requests, mapped between its own ids and the log's: each is answered once, and only as displayed."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from kasmon.errors import (
    RefusedError,
    RequestClosedError,
    RequestNotFoundError,
    StaleRequestError,
    UnableError,
    UsageError,
)
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.session.rules import ONCE, SessionRules
from kasmon.model.answer import must_be_complete, must_be_whole, with_text_as_label
from kasmon.model.commands import Answer
from kasmon.model.events import Event, RequestAnswered, RequestOpened, RequestSetAside, RequestWithdrawn
from kasmon.model.permission import NO_PLAN, Decision, Request, RequestId, RequestKind, seal
from kasmon.model.transcript.diff import of_inputs

CHANGED = "the agent has a different request now"


class AcceptedAnswer(NamedTuple):
    """An accepted answer as it is sent to the agent, and the agent's request."""

    answer: Answer
    agent_request: Request


class OpenRequest(NamedTuple):
    request: Request
    """As in the log."""
    agent_request: Request
    """As the agent sent it."""


class RequestRegistry:
    """The requests of one agent. Backends choose their ids freely; in the log they are `<session>-<n>`."""

    def __init__(
        self, log_writer: LogWriter, policy: SessionRules, replacements: Mapping[Decision, Decision] = ONCE
    ) -> None:
        """*replacements*: replaces decisions in what is sent to the agent."""
        self._log_writer = log_writer
        self._policy = policy
        self._replacements = replacements
        self._agent_requests: dict[RequestId, Request] = {}
        """The log's id of each open request -> the request as the agent sent it."""

    def translate(self, event: Event) -> Event | None:
        """Return *event* with the log's request ids in place of the agent's; None if nothing has changed."""
        if isinstance(event, RequestOpened):
            return self._open(event.request, event.at)
        if isinstance(event, RequestAnswered | RequestWithdrawn | RequestSetAside):
            log_id = self._log_id(event.request)
            return None if log_id is None else msgspec.structs.replace(event, request=log_id)
        return event

    def open_own(self, request: Request) -> RequestId:
        """Open *request* of the host itself; return its id in the log.

        An answer to it makes no standing rule, and is not sent to the agent.
        """
        session = self._log_writer.session
        log_id = session.next_request()
        now = time.time()
        opened = seal(msgspec.structs.replace(request, id=log_id, session=session.id, asked_at=now, by_host=True))
        self._agent_requests[log_id] = opened
        self._log_writer.note(RequestOpened(at=now, request=opened))
        return log_id

    def is_own(self, request: RequestId) -> bool:
        """Whether the host itself opened *request*, and it is open."""
        return (asked := self._agent_requests.get(request)) is not None and asked.by_host

    def forget_closed(self) -> None:
        """Forget requests that are no longer open, after each event."""
        if self._agent_requests:
            still_open = {ask.id for ask in self._log_writer.session.requests}
            self._agent_requests = {
                log_id: asked for log_id, asked in self._agent_requests.items() if log_id in still_open
            }

    def withdraw_all(self, why: str, at: float) -> None:
        """Withdraw all open requests, whether the agent's backend reported that or not."""
        for request in self._log_writer.session.requests:
            self._log_writer.note(RequestWithdrawn(at=at, request=request.id, why=why))
        self.forget_closed()

    def require_answerable(self, answer: Answer) -> OpenRequest:
        """Return the open request that *answer* may answer.

        Raises:
            RequestNotFoundError: if there never was a request of that id.
            RequestClosedError: if it was answered or withdrawn before.
            StaleRequestError: if it differs from the request that was answered.
            UnableError: if the agent cannot receive this answer.
            RefusedError: if the request does not take this decision.
            UsageError: if the answer lacks what its decision needs, or carries what would be ignored.
        """
        request, asked = self._log_writer.session.open_request(answer.request), self._agent_requests.get(answer.request)
        if request is None or asked is None:
            raise self._not_open(answer.request)
        if answer.digest != request.digest:
            raise StaleRequestError(request.id)
        if answer.decision is not Decision.LATER:
            _require_possible_decision(request, answer)
        must_be_complete(request, answer)
        return OpenRequest(request, asked)

    def accept(self, answer: Answer, by: str = "user", who: str = "", rule: str = "") -> AcceptedAnswer | None:
        """Accept *answer*: close its request now, and log that. None for LATER: the request stays open.

        In an edited input the user edited only the marks of secrets; the secrets are restored.

        Args:
            by: `user`, or `policy` if a rule answers.
            who: the user's terminal.
            rule: the id of the rule that it makes, or that answers.

        Raises:
            KasmonError: as `require_answerable`; nothing changed then.
            UsageError: if a redacted part of an edited input is ambiguous; likewise.
        """
        request, asked = self.require_answerable(answer)
        if answer.decision is Decision.LATER:
            self._log_writer.note(RequestSetAside(at=time.time(), request=request.id))
            return None
        if answer.input is not None:
            answer = msgspec.structs.replace(answer, input=self._restore_secrets(request.id, answer.input, asked.input))
        answered = RequestAnswered(
            at=time.time(),
            request=request.id,
            decision=answer.decision,
            by=by,
            who=who,
            rule=rule,
            reason=answer.reason,
            labels=with_text_as_label(answer).labels,
            input=answer.input,
        )
        if answer.input is not None:
            hiding = self._log_writer.session_log.redactor  # before the comparison, so that no part of a secret shows
            answered = hiding.fact(answered)
            shown = hiding.fact(RequestOpened(at=answered.at, request=request)).request.input
            answered = msgspec.structs.replace(answered, diff=of_inputs(shown, answered.input or {}))
        self._log_writer.note(answered, durable=True)
        self.forget_closed()
        return AcceptedAnswer(self.for_agent(answer, asked), asked)

    def _restore_secrets(self, request: RequestId, edited: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._log_writer.session_log.redactor.restored(edited, before)
        except ValueError as error:
            raise UsageError(
                f"the edited input of {request!r} cannot be sent: {error}.",
                hint="Leave each ⟨hidden: …⟩ unchanged, or remove it.",
            ) from error

    def for_agent(self, answer: Answer, asked: Request) -> Answer:
        """Return *answer* as it is sent to the agent, for the agent's own request *asked*."""
        decision = self._replacements.get(answer.decision, answer.decision)
        return msgspec.structs.replace(
            with_text_as_label(answer), request=asked.id, digest=asked.digest or answer.digest, decision=decision
        )

    def reopen(self, taken: AcceptedAnswer) -> None:
        """Open the same request again, under the next id: the agent did not accept the answer and still waits."""
        if (opened := self._open(taken.agent_request, time.time())) is not None:
            self._log_writer.note(opened)

    def _open(self, asked: Request, at: float) -> RequestOpened | None:
        session = self._log_writer.session
        log_id = session.next_request()
        named = msgspec.structs.replace(
            asked, id=log_id, session=session.id, asked_at=asked.asked_at or at, later=False, digest="", by_host=False
        )
        if named.kind is RequestKind.PLAN and not named.shown.strip():
            named = msgspec.structs.replace(named, shown=NO_PLAN)
        request = seal(self._policy.offered(named))
        before = self._log_id(asked.id)
        if before is not None and (known := session.open_request(before)) is not None:
            if known.digest == request.digest:
                return None
            self._log_writer.note(RequestWithdrawn(at=at, request=before, why=CHANGED))
            del self._agent_requests[before]
        self._agent_requests[log_id] = msgspec.structs.replace(asked, by_host=False)
        return RequestOpened(at=at, request=request)

    def _log_id(self, agent_id: RequestId) -> RequestId | None:
        return next((log_id for log_id, asked in self._agent_requests.items() if asked.id == agent_id), None)

    def _not_open(self, request: RequestId) -> RequestNotFoundError | RequestClosedError:
        session = self._log_writer.session
        for closed in session.closed:
            if closed.id == request:
                who = f" at {closed.who}" if closed.who else ""
                how = f"{closed.by}{who} answered {closed.decision}" if closed.decision else closed.by
                return RequestClosedError(request, how)
        of, _, number = request.rpartition("-")
        if of == session.id and number.isdecimal() and 0 < int(number) <= session.requests_counted:
            return RequestClosedError(request, "the agent no longer waits for it")
        return RequestNotFoundError(request)


def _require_possible_decision(request: Request, answer: Answer) -> None:
    must_be_whole(request, answer.decision)
    if not request.answerable:
        raise UnableError(
            f"request {request.id!r} can only be answered on its terminal.",
            hint=("Answer it in the session's terminal."),
        )
    if answer.decision not in request.choices:
        takes = ", ".join([*request.choices, Decision.LATER])
        raise RefusedError(f"request {request.id!r} does not accept {answer.decision!s}.", hint=f"It accepts: {takes}.")
