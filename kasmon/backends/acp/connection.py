"""A client for one agent: the SDK's connection over kasmon's transport, and the calls that kasmon makes."""

import asyncio
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from acp import PROTOCOL_VERSION, schema
from acp.connection import Connection, MethodHandler
from pydantic import BaseModel

import kasmon
from kasmon.backends.acp.transport import AcpTransport
from kasmon.model.events import replace_surrogates
from kasmon.model.prompts.image import PromptImage

ABLE: Final = schema.ClientCapabilities(
    fs=schema.FileSystemCapabilities(read_text_file=False, write_text_file=False),
    terminal=False,
    session=schema.ClientSessionCapabilities(
        config_options=schema.SessionConfigOptionsCapabilities(boolean=schema.BooleanConfigOptionCapabilities())
    ),
    auth=schema.AuthCapabilities(terminal=True),
    field_meta={"terminal-auth": True},  # as agents offered it before the protocol had `auth`
    elicitation=schema.ElicitationCapabilities(
        form=schema.ElicitationFormCapabilities(), url=schema.ElicitationUrlCapabilities()
    ),
)
"""kasmon's capabilities: permissions, elicitations, options that are on or off, and a person who logs in in a terminal.
The agent itself reads, writes and runs."""


class AcpClient:
    """The client of one agent.

    Calls raise `acp.RequestError` if the agent refuses, `ConnectionError` or `SessionEndedError` if it has ended.
    """

    def __init__(self, pipe: AcpTransport, handler: MethodHandler) -> None:
        self.waits_for = ""
        """The method that was called last."""
        self._connection = Connection(handler, pipe)

    async def call(self, method: str, params: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to *method*; an answer that is not an object counts as empty."""
        self.waits_for = method
        answer = await self._connection.send_request(method, _plain(params))
        return answer if isinstance(answer, dict) else {}

    async def initialize(self) -> schema.InitializeResponse:
        """Return the agent's answer to the handshake. Raises `ValidationError` if it is invalid."""
        client = schema.Implementation(name="kasmon", title="kasmon", version=kasmon.__version__)
        request = schema.InitializeRequest(
            protocol_version=PROTOCOL_VERSION, client_capabilities=ABLE, client_info=client
        )
        return schema.InitializeResponse.model_validate(await self.call("initialize", request))

    async def new(self, workdir: str) -> dict[str, Any]:
        """Open a conversation in *workdir*; return the raw answer: its `sessionId`, and the available settings."""
        return await self.call("session/new", schema.NewSessionRequest(cwd=workdir, mcp_servers=[]))

    async def load(self, session: str, workdir: str) -> dict[str, Any]:
        """Resume *session*; the agent replays it from its beginning before it answers. Otherwise as `new`."""
        request = schema.LoadSessionRequest(session_id=session, cwd=workdir, mcp_servers=[])
        return await self.call("session/load", request)

    async def resume(self, session: str, workdir: str) -> dict[str, Any]:
        """Resume *session* without a replay. Otherwise as `new`."""
        request = schema.ResumeSessionRequest(session_id=session, cwd=workdir, mcp_servers=[])
        return await self.call("session/resume", request)

    async def fork(self, session: str, workdir: str) -> dict[str, Any]:
        """Open a copy of *session* as it is now; the agent may replay it. Otherwise as `new`."""
        request = schema.ForkSessionRequest(session_id=session, cwd=workdir, mcp_servers=[])
        return await self.call("session/fork", request)

    async def sessions(self, workdir: str | None, cursor: str | None = None) -> schema.ListSessionsResponse:
        """Return a page of the agent's list of conversations in *workdir*; None means any folder.

        Raises:
            ValidationError: if it is invalid.
        """
        request = schema.ListSessionsRequest(cwd=workdir, cursor=cursor)
        return schema.ListSessionsResponse.model_validate(await self.call("session/list", request))

    async def close(self, session: str) -> None:
        """Have the agent release what *session* uses; it can be resumed later."""
        await self.call("session/close", schema.CloseSessionRequest(session_id=session))

    async def delete(self, session: str) -> None:
        """Have the agent delete *session* from what it stores."""
        await self.call("session/delete", schema.DeleteSessionRequest(session_id=session))

    async def prompt(self, session: str, text: str, images: Sequence[PromptImage] = ()) -> dict[str, Any]:
        """Run a turn; return the answer when it is over."""
        blocks: list[schema.ImageContentBlock | schema.TextContentBlock] = [
            schema.ImageContentBlock(type="image", data=b64encode(each.data).decode(), mime_type=each.media_type)
            for each in images
        ]
        blocks.append(schema.TextContentBlock(type="text", text=replace_surrogates(text)))
        return await self.call("session/prompt", schema.PromptRequest(session_id=session, prompt=[*blocks]))

    async def cancel(self, session: str) -> None:
        """Ask the agent to end the turn; `prompt` then returns."""
        notice = schema.CancelNotification(session_id=session)
        await self._connection.send_notification("session/cancel", _plain(notice))

    async def aclose(self) -> None:
        """Close the connection; open calls end with `ConnectionError`."""
        await asyncio.shield(self._connection.close())


def _plain(params: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(params, BaseModel):
        return params.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dict(params)
