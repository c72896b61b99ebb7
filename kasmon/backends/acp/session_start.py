"""Open a conversation: the handshake, a new, copied or resumed conversation, then its model and mode."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from acp import RequestError
from acp.schema import AgentCapabilities, InitializeResponse, SessionCapabilities
from pydantic import ValidationError

from kasmon.agents.catalog import find_other
from kasmon.agents.profile import AgentProfile, Quirk
from kasmon.backends.acp import errors, gemini_quirks
from kasmon.backends.acp.connection import AcpClient
from kasmon.backends.acp.imported_history import ImportedHistory
from kasmon.backends.acp.introduction import find_terminal_log_in, introduce, missing_log_in
from kasmon.backends.acp.replay import ReplayedHistory
from kasmon.backends.acp.settings import AcpSettings, Setting, parse_offered, to_set
from kasmon.backends.acp.translator import AcpTranslator
from kasmon.backends.common.environment import AgentEnvironment, program_of
from kasmon.errors import LaunchError
from kasmon.model.commands import Launch, TerminalLogIn

PAGES: Final = 20
"""How many pages of an agent's list of conversations are read."""
NAMED: Final = 12
"""How many models or modes an error names."""
ONLY_AN_ID: Final = "The agent replays no history: the resumed conversation is matched by id only."
NOT_LISTED: Final = "The agent accepted the conversation's id, but does not list it."
NOT_THE_LAST_PROMPT: Final = "The agent's history of this conversation does not contain the last prompt."


class OpenConversation(NamedTuple):
    id: str
    settings: AcpSettings
    proof: str = ""
    caveat: str = ""
    """Why it may differ from the earlier one; shown to the user."""
    closes: bool = False
    """Whether the agent releases it when it is asked to."""
    takes_images: bool = False
    """Whether a prompt can have pictures."""
    log_in: TerminalLogIn | None = None
    """The log-in in a terminal that the agent offers."""
    abilities: tuple[str, ...] = ()
    """What the agent says that it supports, by the names of `backends.base.Abilities`."""


class SessionStart:
    """The handshake with the agent of *launch*."""

    def __init__(
        self,
        client: AcpClient,
        launch: Launch,
        agent: AgentProfile,
        environment: AgentEnvironment,
        translator: AcpTranslator,
    ) -> None:
        self._client = client
        self._launch = launch
        self._agent = agent
        self._environment = environment
        self._translator = translator
        self._name = program_of(launch.argv) or "the agent"

    async def open(self) -> OpenConversation:
        """Open the conversation that the launch names, or a new one.

        Raises:
            LaunchError: if the agent refuses or its answer is invalid.
        """
        introduced = await introduce(self._client, self._name, self._environment.secrets)
        if introduced.agent_info is not None:
            other = await asyncio.to_thread(find_other, introduced.agent_info.name)  # reads folders of agents
            self._agent = other or self._agent
        self._translator.tools.habits = self._agent.quirks
        able = introduced.agent_capabilities or AgentCapabilities()
        try:
            if self._launch.fork is not None:
                conversation = await self._fork(self._launch.fork.conversation, able)
            elif self._launch.resume:
                conversation = await self._resume(self._launch.resume, able)
            else:
                conversation = self._begin_conversation(await self._client.open_session("new", self._launch.workdir))
        except RequestError as error:
            raise self._refused(error, introduced) from error
        of_sessions, of_prompts = able.session_capabilities or SessionCapabilities(), able.prompt_capabilities
        abilities = {"forks": of_sessions.fork, "deletes": of_sessions.delete}
        conversation = conversation._replace(
            log_in=find_terminal_log_in(introduced, self._launch.argv),
            closes=of_sessions.close is not None,
            takes_images=of_prompts is not None and of_prompts.image is True,
            abilities=tuple(name for name, capability in abilities.items() if capability is not None),
        )
        conversation = await self._apply_setting(conversation, "model", self._launch.model)
        return await self._apply_setting(conversation, "mode", self._launch.permission_mode)

    def _begin_conversation(self, answer: Mapping[str, Any]) -> OpenConversation:
        session = answer.get("sessionId")
        if not isinstance(session, str) or not session:
            raise LaunchError(f"{self._name!r} opened a conversation without an id.")
        self._translator.session = session
        return OpenConversation(session, parse_offered(answer))

    async def _fork(self, source: str, able: AgentCapabilities) -> OpenConversation:
        """Open a copy of the whole conversation *source*; what the agent replays of it is history."""
        if able.session_capabilities is None or able.session_capabilities.fork is None:
            raise LaunchError(
                f"{self._name!r} cannot copy a conversation.", hint="`Esc Esc` at an earlier prompt copies its text."
            )
        history = self._translator.replays()
        conversation = self._begin_conversation(await self._client.open_session("fork", self._launch.workdir, source))
        if conversation.id == source:
            raise LaunchError(f"{self._name!r} opened the conversation {source!r} itself, not a copy of it.")
        await history.wait_for_end()
        return conversation

    async def _resume(self, session: str, able: AgentCapabilities) -> OpenConversation:
        self._translator.session = session
        history = self._translator.replays()
        if self._launch.generation == 1:  # a conversation from before this session, of which there is no log
            self._translator.imported = ImportedHistory(self._name, self._launch.workdir, self._agent.quirks)
        if able.load_session:
            return await self._load(session, history)
        if able.session_capabilities is None or able.session_capabilities.resume is None:
            raise LaunchError(
                f"{self._name!r} cannot resume an earlier conversation.", hint="`kasmon new` starts a new session."
            )
        settings = parse_offered(await self._client.open_session("resume", self._launch.workdir, session))
        if able.session_capabilities.list is None:
            return OpenConversation(session, settings, caveat=ONLY_AN_ID)
        if await self._is_listed(session):
            return OpenConversation(session, settings, "same id, which is in its own list of conversations")
        return OpenConversation(session, settings, caveat=NOT_LISTED)

    async def _load(self, session: str, history: ReplayedHistory) -> OpenConversation:
        has_twins = Quirk.TWIN_FILES in self._agent.quirks
        if has_twins:
            await asyncio.to_thread(gemini_quirks.leave_minute, session, self._environment.variables, time.time())
        settings = parse_offered(await self._client.open_session("load", self._launch.workdir, session))
        if has_twins:
            await asyncio.to_thread(gemini_quirks.remove_twins, session, self._environment.variables)
        await history.wait_for_end()
        if proof := history.proof(session):
            further = f"; {history.goes_on} further message(s) came after it" if history.goes_on else ""
            return OpenConversation(session, settings, proof + further)
        proof = f"same id, and its own history has {history.pieces} parts"
        return OpenConversation(session, settings, proof, NOT_THE_LAST_PROMPT)

    async def _is_listed(self, session: str) -> bool:
        cursor = None
        for _ in range(PAGES):
            try:
                page = await self._client.sessions(self._launch.workdir, cursor)
            except (RequestError, ValidationError):
                return False
            if any(listed.session_id == session for listed in page.sessions):
                return True
            cursor = page.next_cursor
            if not cursor:
                break
        return False

    async def _apply_setting(self, conversation: OpenConversation, setting: Setting, wanted: str) -> OpenConversation:
        """Return *conversation* with *setting* set to *wanted*; unchanged if *wanted* is empty."""
        offer, what = conversation.settings.offer(setting), "model" if setting == "model" else "permission mode"
        if not wanted or (offer is not None and offer.current == wanted):
            return conversation
        if offer is None:
            raise LaunchError(
                f"{self._name!r} does not support setting its {what}, so {wanted!r} is unavailable.",
                hint=f"Leave out the {what}, or set it in the profile's `flags`.",
            )
        if wanted not in offer.values:
            raise LaunchError(f"{self._name!r} has no {what} {wanted!r}.", hint=f"Available: {few(offer.values)}.")
        try:
            await self._client.call(*to_set(setting, offer, wanted, conversation.id))
        except RequestError as error:
            message = errors.words(error, self._environment.secrets)
            raise LaunchError(f"{self._name!r} did not accept the {what} {wanted!r}: {message}") from error
        return conversation._replace(settings=conversation.settings.chosen(setting, wanted))

    def _refused(self, error: RequestError, introduced: InitializeResponse) -> LaunchError:
        message = errors.words(error, self._environment.secrets)
        if errors.needs_log_in(error):
            return missing_log_in(self._name, message, introduced, self._agent, self._launch.argv)
        if self._launch.resume:
            what = f"{self._name!r} did not resume the conversation {self._launch.resume!r}: {message}"
            return LaunchError(what, hint="`kasmon new` starts a new session.")
        if self._launch.fork is not None:
            source = self._launch.fork.conversation
            return LaunchError(f"{self._name!r} did not copy the conversation {source!r}: {message}")
        return LaunchError(f"{self._name!r} did not open a conversation: {message}")


def few(names: tuple[str, ...]) -> str:
    """Return *names* as a list, shortened if it is long."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (", ".join(names[:NAMED]) or "none") + more
