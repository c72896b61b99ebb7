"""How a conversation is opened: the introduction, then a new one or that of before, and the model that is wanted."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from acp import PROTOCOL_VERSION, RequestError
from acp.schema import AgentCapabilities, AuthMethodAgent, EnvVarAuthMethod, InitializeResponse, TerminalAuthMethod
from pydantic import ValidationError

from kasmon.backends.acp import failing, gemini
from kasmon.backends.acp.history import History
from kasmon.backends.acp.known import Habit, Known, name_of, named
from kasmon.backends.acp.peer import Peer
from kasmon.backends.acp.settings import Settings, offered, to_set
from kasmon.backends.acp.translation import Translation
from kasmon.backends.surroundings import Surroundings
from kasmon.errors import LaunchError, UnfitAgentError
from kasmon.model.command import Launch

PAGES: Final = 20
"""How many pages of an agent's list of conversations are read."""

ONLY_AN_ID: Final = "The agent replays no history: only its id says which conversation it goes on with."
NOT_LISTED: Final = "The agent took the conversation's id, but does not list it."
NOT_THE_LAST_PROMPT: Final = "The agent's history of this conversation does not hold the last prompt that it was given."


class Conversation(NamedTuple):
    """One that is open."""

    id: str
    settings: Settings
    proof: str = ""
    doubt: str = ""
    """Why it may not be quite the one of before; for people."""


class Opening:
    """The agent of *launch*, while it is being introduced."""

    def __init__(
        self, peer: Peer, launch: Launch, known: Known, around: Surroundings, translation: Translation
    ) -> None:
        self._peer = peer
        self._launch = launch
        self._known = known
        self._around = around
        self._translation = translation
        self._name = name_of(launch.argv) or "the agent"

    async def open(self) -> Conversation:
        """The conversation that the launch names, or a new one.

        Raises:
            LaunchError: if the agent says no, or something that cannot be right.
        """
        introduced = await self._introduction()
        if introduced.agent_info is not None:
            self._known = named(introduced.agent_info.name) or self._known
        self._translation.adopts(self._known.habits)
        able = introduced.agent_capabilities or AgentCapabilities()
        try:
            if self._launch.resume:
                conversation = await self._resumed(self._launch.resume, able)
            else:
                conversation = self._opened(await self._peer.new(self._launch.workdir))
        except RequestError as error:
            raise self._refused(error, introduced) from error
        return await self._with_model(conversation)

    async def _introduction(self) -> InitializeResponse:
        try:
            introduced = await self._peer.initialize()
        except RequestError as error:
            said = failing.words(error, self._around.secrets)
            raise UnfitAgentError(f"{self._name!r} refused to introduce itself: {said}") from error
        except ValidationError as error:
            raise UnfitAgentError(
                f"{self._name!r} did not introduce itself as an agent of the Agent Client Protocol.",
                hint="Check the profile's `acp` arguments.",
            ) from error
        if introduced.protocol_version != PROTOCOL_VERSION:
            raise UnfitAgentError(
                f"{self._name!r} speaks version {introduced.protocol_version} of the Agent Client Protocol, kasmon "
                f"version {PROTOCOL_VERSION}.",
                hint="Install a version of it that goes with this kasmon.",
            )
        return introduced

    def _opened(self, answer: Mapping[str, Any]) -> Conversation:
        session = answer.get("sessionId")
        if not isinstance(session, str) or not session:
            raise LaunchError(f"{self._name!r} opened a conversation without an id.")
        self._translation.session = session
        return Conversation(session, offered(answer))

    async def _resumed(self, session: str, able: AgentCapabilities) -> Conversation:
        self._translation.session = session
        history = self._translation.replays()
        if able.load_session:
            return await self._loaded(session, history)
        if able.session_capabilities is None or able.session_capabilities.resume is None:
            raise LaunchError(
                f"{self._name!r} cannot go on with an earlier conversation.", hint="`kasmon new` starts a new one."
            )
        settings = offered(await self._peer.resume(session, self._launch.workdir))
        if able.session_capabilities.list is None:
            return Conversation(session, settings, doubt=ONLY_AN_ID)
        if await self._is_listed(session):
            return Conversation(session, settings, "the same id, which is in its own list of conversations")
        return Conversation(session, settings, doubt=NOT_LISTED)

    async def _loaded(self, session: str, history: History) -> Conversation:
        has_twins = Habit.TWIN_FILES in self._known.habits
        if has_twins:
            await asyncio.to_thread(gemini.leave_minute, session, self._around.variables, time.time())
        settings = offered(await self._peer.load(session, self._launch.workdir))
        if has_twins:
            await asyncio.to_thread(gemini.remove_twins, session, self._around.variables)
        await history.settled()
        if proof := history.proof(session):
            further = f"; {history.goes_on} further message(s) came after it" if history.goes_on else ""
            return Conversation(session, settings, proof + further)
        proof = f"the same id, and its own history has {history.pieces} parts"
        return Conversation(session, settings, proof, NOT_THE_LAST_PROMPT)

    async def _is_listed(self, session: str) -> bool:
        cursor = None
        for _ in range(PAGES):
            try:
                page = await self._peer.sessions(self._launch.workdir, cursor)
            except (RequestError, ValidationError):
                return False
            if any(listed.session_id == session for listed in page.sessions):
                return True
            cursor = page.next_cursor
            if not cursor:
                break
        return False

    async def _with_model(self, conversation: Conversation) -> Conversation:
        """*conversation*, on the model that the launch asks for."""
        wanted, offer = self._launch.model, conversation.settings.model
        if not wanted or (offer is not None and offer.current == wanted):
            return conversation
        if offer is None:
            raise LaunchError(
                f"{self._name!r} lets nobody choose its model, so {wanted!r} cannot be had.",
                hint="Leave the model out, or name it in the profile's `flags`.",
            )
        if wanted not in offer.values:
            raise LaunchError(f"{self._name!r} has no model {wanted!r}.", hint=f"It has: {few(offer.values)}.")
        try:
            await self._peer.call(*to_set("model", offer, wanted, conversation.id))
        except RequestError as error:
            said = failing.words(error, self._around.secrets)
            raise LaunchError(f"{self._name!r} did not take the model {wanted!r}: {said}") from error
        return conversation._replace(settings=conversation.settings.chosen("model", wanted))

    def _refused(self, error: RequestError, introduced: InitializeResponse) -> LaunchError:
        said = failing.words(error, self._around.secrets)
        if failing.needs_log_in(error):
            return LaunchError(
                f"{self._name!r} wants a log-in first: {said}", hint=self._known.log_in + _ways(introduced)
            )
        if self._launch.resume:
            what = f"{self._name!r} did not go on with the conversation {self._launch.resume!r}: {said}"
            return LaunchError(what, hint="`kasmon new` starts a new one.")
        return LaunchError(f"{self._name!r} did not open a conversation: {said}")


def few(names: tuple[str, ...], most: int = 12) -> str:
    """*names* as a list, cut where it gets long."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def _ways(introduced: InitializeResponse) -> str:
    """The ways to log in that the agent names itself."""
    ways = [_way(method) for method in introduced.auth_methods or ()]
    return f" It offers: {'; '.join(ways)}." if ways else ""


def _way(method: EnvVarAuthMethod | TerminalAuthMethod | AuthMethodAgent) -> str:
    if isinstance(method, EnvVarAuthMethod):
        return f"{method.name} ({', '.join(variable.name for variable in method.vars)})"
    return f"{method.name} ({method.description})" if method.description else method.name
