"""Delivers a user's answer to the agent: checked, stored as a rule if it is one, logged, then sent."""

import asyncio
import contextlib

import msgspec

from kasmon.errors import KasmonError, RefusedError, RequestClosedError, StaleRequestError, UsageError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.rpc.peer import must_be_a_person, seat
from kasmon.host.session.requests import AcceptedAnswer
from kasmon.host.session.rules import STANDING
from kasmon.host.structured.agent_runner import StructuredAgentRunner
from kasmon.model.commands import Answer
from kasmon.model.permission import Request


class AnswerService:
    """The answers to one agent's requests, one after the other: of two to the same request exactly one is accepted."""

    def __init__(self, log_writer: LogWriter, agent: StructuredAgentRunner) -> None:
        self._log_writer = log_writer
        self._agent = agent
        self._turn = asyncio.Lock()

    async def carry(self, answer: Answer, peer_pid: int, *, is_agents: bool) -> None:
        """Accept *answer*, which process *peer_pid* sent, and send it to the agent.

        Raises:
            RefusedError: if an agent sent it, or its request does not take it; nothing was sent then.
            KasmonError: if a rule could not be stored, or the agent could not be reached.
        """
        await must_be_a_person(peer_pid, self._log_writer.session.pid, is_agents=is_agents)
        egress = self._agent.egress
        async with self._turn:
            if egress is not None and self._agent.asks.is_own(answer.request):
                await egress.answer(answer, await asyncio.to_thread(seat, peer_pid))
                await self._log_writer.on_disk()
                return
            taken = await self._accept(answer, await asyncio.to_thread(seat, peer_pid))
        if taken is not None:
            await self._log_writer.on_disk()
            await self._send(answer, taken)

    async def _accept(self, answer: Answer, who: str) -> AcceptedAnswer | None:
        asks, policy = self._agent.asks, self._agent.policy
        request, asked = asks.checked(answer)
        answer = self._restore_secrets(answer, asked)
        if answer.decision not in STANDING:
            return asks.take(answer, who=who)
        rule = await asyncio.to_thread(policy.remember, request, answer)
        try:
            return asks.take(answer, who=who, rule=rule.id)
        except KasmonError:
            if rule.request == request.id:
                with contextlib.suppress(KasmonError):
                    await asyncio.to_thread(policy.forget, rule)
            raise

    def _restore_secrets(self, answer: Answer, asked: Request) -> Answer:
        """Return *answer* with the secrets restored in its edited input: the user edited only their marks.

        Raises:
            UsageError: if a redacted part is ambiguous; nothing was sent then.
        """
        if answer.input is None:
            return answer
        try:
            return msgspec.structs.replace(
                answer, input=self._log_writer.session_log.redactor.restored(answer.input, asked.input)
            )
        except ValueError as error:
            raise UsageError(
                f"the edited input of {answer.request!r} cannot be sent: {error}.",
                hint="Leave each ⟨hidden: …⟩ unchanged, or remove it.",
            ) from error

    async def _send(self, answer: Answer, taken: AcceptedAnswer) -> None:
        try:
            await self._agent.tell(taken.answer)
        except (RequestClosedError, StaleRequestError) as error:
            self._agent.notice(f"The answer to {answer.request} came too late: the agent no longer waits for it.")
            raise RequestClosedError(answer.request, "the agent no longer waits for it") from error
        except RefusedError as error:
            self._agent.notice(f"The agent did not accept the answer to {answer.request}: {error.message}")
            if not self._agent.has_ended:
                self._agent.asks.reopen(taken)
            raise
        except KasmonError as error:
            self._agent.notice(
                f"It is unknown whether the agent received the answer to {answer.request}: {error.message}"
            )
            raise
