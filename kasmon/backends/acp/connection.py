"""A client for one agent: the SDK's connection over kasmon's transport, and the calls that kasmon makes."""

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final, Literal

from acp import PROTOCOL_VERSION, schema
from acp.connection import Connection, MethodHandler

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

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to *method*; an answer that is not an object counts as empty."""
        self.waits_for = method
        answer = await self._connection.send_request(method, params)
        return answer if isinstance(answer, dict) else {}

    async def initialize(self) -> schema.InitializeResponse:
        """Return the agent's answer to the handshake. Raises `ValidationError` if it is invalid."""
        client = schema.Implementation(name="kasmon", title="kasmon", version=kasmon.__version__)
        request = schema.InitializeRequest(
            protocol_version=PROTOCOL_VERSION, client_capabilities=ABLE, client_info=client
        )
        params = request.model_dump(mode="json", by_alias=True, exclude_none=True)
        return schema.InitializeResponse.model_validate(await self.call("initialize", params))

    async def open_session(
        self, how: Literal["new", "load", "resume", "fork"], workdir: str, session: str | None = None
    ) -> dict[str, Any]:
        """Open a conversation in *workdir*; return the raw answer: its `sessionId`, and the available settings.

        `load` resumes *session*, which the agent replays from its beginning before it answers; `resume` does without a
        replay. `fork` opens a copy of *session* as it is now; the agent may replay it.
        """
        named = {} if session is None else {"sessionId": session}
        return await self.call(f"session/{how}", {**named, "cwd": workdir, "mcpServers": []})

    async def sessions(self, workdir: str | None, cursor: str | None = None) -> schema.ListSessionsResponse:
        """Return a page of the agent's list of conversations in *workdir*; None means any folder.

        Raises:
            ValidationError: if it is invalid.
        """
        wanted = {name: value for name, value in (("cwd", workdir), ("cursor", cursor)) if value is not None}
        return schema.ListSessionsResponse.model_validate(await self.call("session/list", wanted))

    async def prompt(self, session: str, text: str, images: Sequence[PromptImage]) -> dict[str, Any]:
        """Run a turn; return the answer when it is over."""
        blocks = [
            {"type": "image", "data": b64encode(each.data).decode(), "mimeType": each.media_type} for each in images
        ]
        blocks.append({"type": "text", "text": replace_surrogates(text)})
        return await self.call("session/prompt", {"sessionId": session, "prompt": blocks})

    async def cancel(self, session: str) -> None:
        """Ask the agent to end the turn; `prompt` then returns."""
        await self._connection.send_notification("session/cancel", {"sessionId": session})

    async def aclose(self) -> None:
        """Close the connection; open calls end with `ConnectionError`."""
        await asyncio.shield(self._connection.close())
