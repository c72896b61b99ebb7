"""The requests on an agent's screen: only what the menu offers is accepted.

An answer is logged when the request has left the screen, and not before: the log has what was done. If the host dies
after the key and before that, the log has the request as withdrawn, without an answer.
"""

import time

from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.errors import KasmonError, PromptChangedError, RefusedError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.session.requests import RequestRegistry
from kasmon.host.session.rules import SessionRules
from kasmon.model.commands import Answer, Launch
from kasmon.model.events import NoticeRaised
from kasmon.model.permission import Decision, Request


class ScreenRequestRules(SessionRules):
    """Standing rules neither answer nor extend a request on a screen: they match tools, not menus."""

    def offered(self, request: Request) -> Request:
        return request


def screen_asks(log_writer: LogWriter, launch: Launch) -> RequestRegistry:
    """Return the request registry for the agent of *launch*, in a terminal; "always" is its own menu's."""
    return RequestRegistry(log_writer, ScreenRequestRules(log_writer.session_log.places, launch), replacements={})


class ScreenAnswers:
    """Gives answers to the agent in its terminal. Call `accept` for one at a time."""

    def __init__(self, log_writer: LogWriter, asks: RequestRegistry, agent: TmuxAgent) -> None:
        self._log_writer, self._asks, self._agent = log_writer, asks, agent

    async def accept(self, answer: Answer, who: str) -> None:
        """Deliver *answer* of the user at terminal *who* to the screen, then accept it.

        Raises:
            RefusedError: if its request does not take it, or the prompt changed; nothing was sent then.
            KasmonError: if it is unknown whether the agent has it.
        """
        request, asked = self._asks.checked(answer)
        if answer.decision is not Decision.LATER:
            await self._send(answer, asked)
        if self._log_writer.session.open_request(request.id) is not None:
            self._asks.accept(answer, who=who)

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
