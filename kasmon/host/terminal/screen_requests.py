"""The requests on an agent's screen: only what the menu offers is accepted.

An answer is logged when the request has left the screen, and not before: the log has what was done. If the host dies
after the key and before that, the log has the request as withdrawn, without an answer.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from kasmon.errors import KasmonError, PromptChangedError, RefusedError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.rpc.peer import must_be_a_person, seat
from kasmon.host.session.requests import RequestRegistry
from kasmon.host.session.rules import SessionRules
from kasmon.model.commands import AgentCommand, Answer, Launch
from kasmon.model.events import NoticeRaised
from kasmon.model.permission import Decision, Request

if TYPE_CHECKING:
    from kasmon.host.sandboxed.egress_requests import EgressRequests


class ScreenRequestRules(SessionRules):
    """Standing rules neither answer nor extend a request on a screen: they match tools, not menus."""

    def offered(self, request: Request) -> Request:
        return request


class ScreenAgent(Protocol):
    """The agent in its terminal."""

    async def send(self, command: AgentCommand, /) -> None: ...


def screen_asks(log_writer: LogWriter, launch: Launch) -> RequestRegistry:
    """Return the request registry for the agent of *launch*, in a terminal; "always" is its own menu's."""
    return RequestRegistry(log_writer, ScreenRequestRules(log_writer.session_log.places, launch), replacements={})


class ScreenAnswers:
    """The answers to one terminal agent's requests, one after the other: of two to one request exactly one is given."""

    def __init__(self, log_writer: LogWriter, asks: RequestRegistry, agent: ScreenAgent) -> None:
        self._log_writer, self._asks, self._agent = log_writer, asks, agent
        self._turn = asyncio.Lock()
        self.egress: EgressRequests | None = None
        """Opens requests for hosts that its sandbox was refused; None without a sandbox."""

    async def carry(self, answer: Answer, peer_pid: int, *, is_agents: bool) -> None:
        """Deliver *answer*, which process *peer_pid* sent, to the screen.

        Raises:
            RefusedError: if an agent sent it, its request does not take it, or the prompt changed; nothing was sent
                then.
            KasmonError: if it is unknown whether the agent has it.
        """
        await must_be_a_person(peer_pid, self._log_writer.session.pid, is_agents=is_agents)
        who = await asyncio.to_thread(seat, peer_pid)
        async with self._turn:
            if self.egress is not None and self._asks.is_own(answer.request):
                await self.egress.answer(answer, who)
                await self._log_writer.on_disk()
                return
            request, asked = self._asks.checked(answer)
            if answer.decision is not Decision.LATER:
                await self._send(answer, asked)
            if self._log_writer.session.open_request(request.id) is not None:
                self._asks.take(answer, who=who)
        await self._log_writer.on_disk()

    async def _send(self, answer: Answer, asked: Request) -> None:
        try:
            await self._agent.send(self._asks.for_agent(answer, asked))
        except PromptChangedError as error:
            raise PromptChangedError(answer.request) from error
        except RefusedError:
            raise
        except KasmonError as error:
            why = error.message.replace(str(asked.id), str(answer.request))
            self._log_writer.note(
                NoticeRaised(
                    at=time.time(), level="error", text=f"It is unknown whether the agent received the answer: {why}"
                )
            )
            raise
