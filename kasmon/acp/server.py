"""`kasmon acp`: serve sessions to one editor over stdio. stdout carries only the protocol."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from acp import RequestError, schema

from kasmon import __version__
from kasmon.acp.connection import EditorConnection, refused
from kasmon.acp.served_session import MODEL, ServedSession, config_options, mode_state
from kasmon.acp.updates import notice
from kasmon.asyncio_tasks import TaskSet
from kasmon.backends.acp.content import ContentBlock
from kasmon.backends.acp.content import text_of as block_text
from kasmon.config import Config
from kasmon.errors import KasmonError, UsageError
from kasmon.host.rpc.peer import must_be_a_person
from kasmon.model.commands import Configure, Mode, Sender
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.transcript.export import fenced
from kasmon.paths import Paths
from kasmon.supervisor.fleet.lookup import find, own_id
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import fleets
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.folder_config import for_session
from kasmon.supervisor.sessions.names import next_name

VERSION: Final = 1
INVALID: Final = -32602
"""JSON-RPC's code for invalid parameters."""
NOT_FOUND: Final = -32002
"""The protocol's code for what does not exist."""
LISTED: Final = 100
NO_MCP: Final = "The MCP servers of the editor are not passed on: the agent has those of its own settings."


def serve(paths: Paths, config: Config, session: str, agent: str) -> int:
    """Serve one editor until it disconnects; return the exit code. The agents run on.

    Args:
        session: the one session to serve; empty for any, and new ones.
        agent: the profile of new sessions; empty for the default one.

    Raises:
        UsageError: if stdin or stdout is closed.
        NotFoundError: if there is no such session.
    """
    if sys.stdin is None or sys.stdout is None:
        raise UsageError("cannot serve: stdin or stdout is closed.")
    only = find(read_fleet(paths), session).id if session else None

    async def serve_stdio() -> None:
        await serve_editor(paths, config, EditorConnection.of_stdio(), only, agent)

    asyncio.run(serve_stdio())
    return 0


async def serve_editor(
    paths: Paths, config: Config, editor: EditorConnection, only: SessionId | None, agent: str
) -> None:
    """Serve *editor* until it disconnects; the rest as `serve`."""
    served = EditorAgent(paths, config, editor, only, agent, await find_refusal())
    editor.on_response = served.handle_response
    editor.open(served)
    following = asyncio.create_task(served.follow())
    ended = asyncio.create_task(editor.wait_for_end())
    try:
        await asyncio.wait([following, ended], return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
    finally:
        following.cancel()
        ended.cancel()
        await served.aclose()
        await editor.aclose()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def find_refusal() -> str:
    """Return why this process may not answer requests, as a sentence; empty if a person's editor started it."""
    try:
        await must_be_a_person(os.getpid(), None, is_agents=bool(own_id(os.environ)))
    except KasmonError as error:
        return f"{error.message.capitalize()} {error.hint} The request waits in kasmon."
    return ""


class EditorAgent:
    """What the editor calls: the agent's side of the protocol, for the SDK's router."""

    def __init__(
        self,
        paths: Paths,
        config: Config,
        editor: EditorConnection,
        only: SessionId | None,
        agent: str,
        refusal: str,
    ) -> None:
        self._paths, self._config, self._editor = paths, config, editor
        self._only, self._agent, self._refusal = only, agent, refusal
        self._by: Sender = "peer" if refusal else "user"
        self._served: dict[str, ServedSession] = {}
        self._opening: dict[str, str] = {}
        """The sessions whose id the editor may not have yet, so nothing is sent; each with a remark for the person.
        """
        self._tasks = TaskSet()

    async def follow(self) -> None:
        """Follow the fleet and pass each served session's state on. Never returns."""
        async with fleets(self._paths) as changes:
            async for fleet in changes:
                for name, served in [*self._served.items()]:
                    if name not in self._opening and (session := fleet.get(SessionId(name))) is not None:
                        await served.follow(session)

    async def aclose(self) -> None:
        """Stop serving; the agents run on."""
        for served in self._served.values():
            await served.aclose()
        self._served.clear()

    def handle_response(self, result: dict[str, Any]) -> None:
        """Begin to send updates of a session, once the editor got its id with *result*."""
        name = str(result.get("sessionId"))
        if (remark := self._opening.pop(name, None)) is not None:
            self._tasks.start(self._begin(self._served[name], remark))

    async def _begin(self, served: ServedSession, remark: str) -> None:
        if remark:
            await self._editor.update(served.session.id, notice(remark))
        await served.follow(await self._find(served.session.id))

    # The protocol

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        if client_info is not None:
            self._editor.name = client_info.title or client_info.name
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "kasmon", "title": "kasmon", "version": __version__},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            },
            "authMethods": [],
        }

    async def authenticate(self, method_id: str, **_: Any) -> None:
        raise RequestError(INVALID, f"kasmon has no log-in {method_id!r}.")

    async def new_session(self, cwd: str, mcp_servers: list[Any] | None = None, **_: Any) -> dict[str, Any]:
        session = await self._find(self._only) if self._only else await self._create(cwd)
        remarks = [f"{session.fallback}."] if session.fallback else []
        remarks += [NO_MCP] if mcp_servers else []
        self._served[session.id] = await self._replace(session)
        self._opening[session.id] = " ".join(remarks)
        return {"sessionId": session.id, **_settings(session)}

    async def load_session(self, session_id: str, **_: Any) -> dict[str, Any]:
        session = await self._find(session_id)
        served = self._served[session.id] = await self._replace(session)
        await served.follow(session)
        return _settings(session)

    async def resume_session(self, session_id: str, **_: Any) -> dict[str, Any]:
        session = await self._find(session_id)
        served = await self._replace(session)
        await served.skip_history()
        self._served[session.id] = served
        return _settings(session)

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> dict[str, Any]:
        fleet = await asyncio.to_thread(read_fleet, self._paths)
        served = [session for session in fleet.sessions if self._only in (None, session.id)]
        found = [one for one in served if cwd in (None, one.workdir) and one.mode is not Mode.INTERPRETER]
        start = int(cursor) if cursor and cursor.isascii() and cursor.isdecimal() else 0
        rows = [
            {
                "sessionId": session.id,
                "cwd": session.workdir or "/",
                "title": f"{session.label} ({session.agent}, {session.state.value})",
                "updatedAt": datetime.fromtimestamp(session.since, UTC).isoformat(),
            }
            for session in found[start : start + LISTED]
        ]
        more = {"nextCursor": str(start + LISTED)} if len(found) > start + LISTED else {}
        return {"sessions": rows, **more}

    async def close_session(self, session_id: str, **_: Any) -> None:
        if (served := self._served.pop(session_id, None)) is not None:
            await served.aclose()

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> None:
        await self._get(session_id).configure(Configure(permission_mode=mode_id))

    async def set_config_option(self, config_id: str, session_id: str, value: str | bool, **_: Any) -> dict[str, Any]:
        served = self._get(session_id)
        if config_id != MODEL or not isinstance(value, str):
            raise RequestError(INVALID, f"kasmon has no option {config_id!r}.")
        await served.configure(Configure(model=value))
        session = await self._find(session_id)
        return {"configOptions": config_options(session)}

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> dict[str, Any]:
        return {"stopReason": await self._get(session_id).prompt(text_of(prompt))}

    async def cancel(self, session_id: str, **_: Any) -> None:
        await self._get(session_id).cancel()

    # Sessions

    async def _find(self, wanted: str) -> Session:
        """Return the session with the id *wanted*. Raises `RequestError` if there is none that is served."""
        fleet = await asyncio.to_thread(read_fleet, self._paths)
        session = fleet.get(SessionId(wanted))
        if session is None or self._only not in (None, session.id):
            served = "" if self._only is None else f" This program serves the session {self._only!r} alone."
            raise RequestError(NOT_FOUND, f"kasmon has no session {wanted!r}.{served}")
        return session

    async def _create(self, workdir: str) -> Session:
        """Start a session in *workdir* and return it. Raises `RequestError` if it cannot be started."""
        try:
            here = await asyncio.to_thread(for_session, self._paths, self._config, workdir, self._agent)
            agent = self._agent or here.config.default_agent
            name = await asyncio.to_thread(next_name, self._paths, agent)
            new = NewSession(name=name, agent=agent, mode=Mode.SDK, workdir=workdir)
            return await self._find(await session_operations.create(self._paths, here.config, new))
        except KasmonError as error:
            raise refused(error) from error

    async def _replace(self, session: Session) -> ServedSession:
        """Return a new view of *session*, in place of an earlier one."""
        if (before := self._served.pop(session.id, None)) is not None:
            await before.aclose()
        return ServedSession(self._paths, session, self._editor, self._by, self._refusal)

    def _get(self, wanted: str) -> ServedSession:
        """Return the open session *wanted*. Raises `RequestError` if the editor has not opened it."""
        if (served := self._served.get(wanted)) is None:
            raise RequestError(NOT_FOUND, f"the session {wanted!r} is not open: load it first.")
        return served


def text_of(prompt: Sequence[ContentBlock]) -> str:
    """Return the parts of *prompt* as one text. Raises `RequestError` for a picture or a sound."""
    texts = []
    for block in prompt:
        match block:
            case schema.ImageContentBlock() | schema.AudioContentBlock():
                raise RequestError(INVALID, "kasmon passes no pictures and no sounds to an agent.")
            case schema.EmbeddedResourceContentBlock():
                texts.append(f"\n\n{block.resource.uri}:\n{fenced(block_text(block), '')}\n\n")
            case _:
                texts.append(block_text(block))
    return "".join(texts)


def _settings(session: Session) -> dict[str, Any]:
    modes, options = mode_state(session), config_options(session)
    return ({"modes": modes} if modes else {}) | ({"configOptions": options} if options else {})
