"""The agent as somebody to call: the SDK's connection over our pipe, and the calls that kasmon makes."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from acp import PROTOCOL_VERSION
from acp.connection import Connection, MethodHandler
from acp.schema import (
    CancelNotification,
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    ElicitationUrlCapabilities,
    FileSystemCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    NewSessionRequest,
    PromptRequest,
    ResumeSessionRequest,
    TextContentBlock,
)
from pydantic import BaseModel

import kasmon
from kasmon.backends.acp.transport import HALF, AcpTransport

ABLE: Final = ClientCapabilities(
    fs=FileSystemCapabilities(read_text_file=False, write_text_file=False),
    terminal=False,
    elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities(), url=ElicitationUrlCapabilities()),
)
"""What the agent may ask of us: permissions, and what people know. It reads, writes and runs by itself."""


class AcpClient:
    """One agent that is spoken to.

    Calls raise `acp.RequestError` where it says no, `ConnectionError` or `SessionEndedError` when it is gone.
    """

    def __init__(self, pipe: AcpTransport, handler: MethodHandler) -> None:
        self.waits_for = ""
        """The method that was called last."""
        self._connection = Connection(handler, pipe)

    async def call(self, method: str, params: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
        """The answer to *method*; an answer that is no object counts as an empty one."""
        self.waits_for = method
        answer = await self._connection.send_request(method, _plain(params))
        return answer if isinstance(answer, dict) else {}

    async def initialize(self) -> InitializeResponse:
        """The agent's introduction.

        Raises:
            ValidationError: if it is none.
        """
        client = Implementation(name="kasmon", title="kasmon", version=kasmon.__version__)
        request = InitializeRequest(protocol_version=PROTOCOL_VERSION, client_capabilities=ABLE, client_info=client)
        return InitializeResponse.model_validate(await self.call("initialize", request))

    async def new(self, workdir: str) -> dict[str, Any]:
        """Open a conversation in *workdir*; the answer as it came: its `sessionId`, and what can be chosen."""
        return await self.call("session/new", NewSessionRequest(cwd=workdir, mcp_servers=[]))

    async def load(self, session: str, workdir: str) -> dict[str, Any]:
        """Go on with *session*, which the agent tells once more from its beginning before it answers; else as `new`."""
        request = LoadSessionRequest(session_id=session, cwd=workdir, mcp_servers=[])
        return await self.call("session/load", request)

    async def resume(self, session: str, workdir: str) -> dict[str, Any]:
        """Go on with *session*, of which the agent tells nothing again; else as `new`."""
        request = ResumeSessionRequest(session_id=session, cwd=workdir, mcp_servers=[])
        return await self.call("session/resume", request)

    async def sessions(self, workdir: str, cursor: str | None = None) -> ListSessionsResponse:
        """A page of its list of the conversations in *workdir*.

        Raises:
            ValidationError: if it is none.
        """
        request = ListSessionsRequest(cwd=workdir, cursor=cursor)
        return ListSessionsResponse.model_validate(await self.call("session/list", request))

    async def prompt(self, session: str, text: str) -> dict[str, Any]:
        """Have a turn; the answer comes when it is over."""
        block = TextContentBlock(type="text", text=HALF.sub("\ufffd", text))
        return await self.call("session/prompt", PromptRequest(session_id=session, prompt=[block]))

    async def cancel(self, session: str) -> None:
        """Ask it to end the turn; `prompt` then returns."""
        notice = CancelNotification(session_id=session)
        await self._connection.send_notification("session/cancel", _plain(notice))

    async def aclose(self) -> None:
        """Stop listening; what is still waited for ends with `ConnectionError`."""
        await asyncio.shield(self._connection.close())


def _plain(params: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(params, BaseModel):
        return params.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dict(params)
