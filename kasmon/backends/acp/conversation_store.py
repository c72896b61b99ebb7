"""The conversations that an agent stores, asked outside of any session: their list, and the deletion of one.

The agent runs for that question only. It gets no prompt and opens no conversation.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from acp import RequestError
from acp.schema import AgentCapabilities, InitializeResponse, SessionCapabilities
from pydantic import ValidationError

from kasmon.agents.profile import AgentProfile
from kasmon.backends.acp import errors
from kasmon.backends.acp.connection import AcpClient
from kasmon.backends.acp.introduction import introduce, missing_log_in
from kasmon.backends.acp.transport import AcpTransport
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.environment import program_of
from kasmon.backends.common.transcripts import parse_time
from kasmon.errors import LaunchError, SessionEndedError, UnableError, UnfitAgentError
from kasmon.model.commands import ConversationOffer, ConversationOffers, Launch, build_offer

MOST: Final = 500
"""How many conversations of one agent are listed."""
PAGES: Final = 50
"""How many pages of its list are read."""
METHOD_NOT_FOUND: Final = -32601


class ConversationStore:
    """The conversations of the agent of *launch*, which runs as *child*."""

    def __init__(self, launch: Launch, agent: AgentProfile, child: ChildProcess, secrets: Sequence[str]) -> None:
        self._launch, self._agent, self._child, self._secrets = launch, agent, child, secrets
        self._name = program_of(launch.argv) or "the agent"

    async def list(self, folder: str, limit_s: float) -> ConversationOffers:
        """Return what it stores for *folder*, the last used one first; an empty *folder* means all folders.

        The agent is ended after that, or after *limit_s* seconds.

        Raises:
            UnableError: if it does not list its conversations.
            LaunchError: if it requires a log-in, refuses, ends or takes too long.
        """
        async with self._open_client("list its conversations", limit_s) as (client, able):
            if able.list is None:
                raise UnableError(f"{self._name!r} does not list its conversations.")
            return await _read_pages(client, folder)

    async def delete(self, conversation: str, limit_s: float) -> None:
        """Have it delete *conversation*; raises as `list`, and ends the agent."""
        async with self._open_client("delete a conversation", limit_s) as (client, able):
            if able.delete is None:
                raise UnableError(f"{self._name!r} does not delete conversations for kasmon.")
            await client.call("session/delete", {"sessionId": conversation})

    @contextlib.asynccontextmanager
    async def _open_client(self, what: str, limit_s: float) -> AsyncIterator[tuple[AcpClient, SessionCapabilities]]:
        # nothing that it sends is stored, so it never waits for space
        transport = AcpTransport(self._child, lambda line: None, lambda: asyncio.sleep(0))
        client = AcpClient(transport, _refuse_calls)
        introduced = InitializeResponse(protocol_version=1)
        try:
            async with asyncio.timeout(limit_s):
                introduced = await introduce(client, self._name, self._secrets)
                able = introduced.agent_capabilities or AgentCapabilities()
                yield client, able.session_capabilities or SessionCapabilities()
        except RequestError as error:
            message = errors.words(error, self._secrets)
            if errors.needs_log_in(error):
                raise missing_log_in(self._name, message, introduced, self._agent, self._launch.argv) from error
            raise LaunchError(f"{self._name!r} did not {what}: {message}") from error
        except ValidationError as error:
            raise LaunchError(f"{self._name!r} did not {what}: its answer is invalid.") from error
        except TimeoutError as error:
            raise UnfitAgentError(
                f"{self._name!r} did not respond to {client.waits_for!r} within {limit_s:g} s.", hint=self._last_words
            ) from error
        except (ConnectionError, SessionEndedError) as error:
            raise UnfitAgentError(
                f"{self._name!r} ended before it responded to {client.waits_for!r}.", hint=self._last_words
            ) from error
        finally:
            await self._child.end()
            await client.aclose()

    @property
    def _last_words(self) -> str:
        return f"Its message: {self._child.last_words}" if self._child.last_words else ""


async def _read_pages(client: AcpClient, folder: str) -> ConversationOffers:
    paths = {folder, await asyncio.to_thread(os.path.realpath, folder)} if folder else set()
    found: dict[str, ConversationOffer] = {}
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(PAGES):
        page = await client.sessions(folder or None, cursor)
        for each in page.sessions:
            offer = build_offer(each.session_id, each.cwd, each.title or "", parse_time(each.updated_at or ""))
            if offer is not None and (not folder or offer.folder in paths):  # an agent may ignore the filter
                found.setdefault(offer.id, offer)
        cursor = page.next_cursor
        if not cursor or cursor in cursors:
            cursor = None
            break
        if len(found) > MOST:
            break
        cursors.add(cursor)
    ordered = sorted(found.values(), key=lambda offer: -offer.used_at)
    return ConversationOffers(conversations=tuple(ordered[:MOST]), is_whole=len(ordered) <= MOST and not cursor)


async def _refuse_calls(method: str, params: Any, is_notice: bool) -> None:
    """Ignore what it reports; it has nothing to ask without a prompt."""
    if not is_notice:
        raise RequestError(METHOD_NOT_FOUND, f"kasmon does not offer {method!r}")
