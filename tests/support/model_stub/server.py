"""The server: takes each request, finds out what is asked and in which API, answers it as the script says."""

import asyncio
import contextlib
import re
import time
from types import ModuleType
from typing import Any, Final, Self

from tests.support.model_stub import anthropic, chat, gemini, responses
from tests.support.model_stub.answer import pieces, steps_for
from tests.support.model_stub.http import Request, begin_stream, receive, send_chunk, send_json
from tests.support.model_stub.model_request import Asked
from tests.support.model_stub.piece import INPUT_TOKENS, BrokenOffError, spoken
from tests.support.model_stub.record import Record
from tests.support.model_stub.script import PLAIN, ScriptError, Turn

APIS: Final[dict[str, ModuleType]] = {module.API: module for module in (anthropic, responses, chat, gemini)}
GEMINI_PATH: Final = re.compile(r"/models/([^/:]+):(stream)?[gG]enerateContent$")
HALF_A_MESSAGE: Final = b'data: {"type": "content_block_delta", "delta": {"text": "hal\n\n'
MODELS: Final = ("stub-model", "gpt-5.5", "claude-sonnet-4-5")
BAD_REQUEST, FORBIDDEN, NOT_FOUND = 400, 403, 404


IMAGE = re.compile(rb'"(?:media_type|mime_type|mimeType)":\s*"image/|data:image/')
"""A picture, in the forms of the protocols."""


class ModelStub:
    """A model server on loopback, for as long as the block runs."""

    def __init__(self, port: int = 0, delay: float = 0.01) -> None:
        """*port* 0 is any free one; *delay* is the pause after each word, in seconds."""
        self.port = port
        self.requests: list[Record] = []
        """What came in, oldest first; a request is there from its beginning, with `reply` once it is answered."""
        self.must_be_called = False
        """Whether a test that uses it fails when no turn was asked for (tests/agents/conftest.py)."""
        self._gap_s = delay
        self._failures: dict[tuple[object, ...], int] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def turns(self) -> list[Record]:
        """The requests for an agent's turn: no titles, no counting of tokens."""
        return [request for request in self.requests if request.get("aux") is False]

    @property
    def outside(self) -> list[str]:
        """The hosts, with port, that clients wanted to reach through us as their proxy; none was."""
        return [request["path"] for request in self.requests if request["reply"] == "outside"]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection
        self._connections.add(connection)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while (request := await receive(reader)) and await self._answer(request, reader, writer):
                    pass
        finally:
            self._connections.discard(connection)
            writer.transport.abort()

    async def _answer(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer *request*; whether the connection can take another."""
        began = time.monotonic()
        record = Record(n=len(self.requests) + 1, at=time.time(), method=request.method, path=request.path, reply="")
        record["agent"] = request.headers.get("user-agent", "")
        self.requests.append(record)
        try:
            asked = _asked(request)
            if asked is None:
                status, record["reply"], value = self._beside(request)
                await send_json(writer, status, value)
                return request.keeps_open
            _note(record, asked)
            record["images"] = len(IMAGE.findall(request.raw))
            return await self._as_scripted(asked, record, reader, writer) and request.keeps_open
        except ConnectionError:
            record["reply"] = "client left"
            raise
        finally:
            record["took_s"] = time.monotonic() - began

    async def _as_scripted(
        self, asked: Asked, record: Record, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer what *asked* wants of the model; whether the connection can take another."""
        api = APIS[asked.api]
        try:
            failure, steps = self._failing(asked, steps_for(asked))
            record["steps"] = steps
            parts = () if failure else pieces(asked, steps)
        except ScriptError as error:
            record["reply"] = f"wrong script: {error}"
            await send_json(writer, BAD_REQUEST, api.error(BAD_REQUEST, str(error)))
            return True
        if failure:
            record["reply"] = f"fail {failure}"
            await send_json(writer, failure, api.error(failure, f"stub failure {failure}"))
            return True
        if not asked.streams:
            record["reply"] = "whole"
            await send_json(writer, 200, api.whole(asked, spoken(parts)))
            return True
        record["reply"] = "stream"
        await begin_stream(writer)
        try:
            async for event in api.stream(asked, parts, self._gap_s):
                await send_chunk(writer, event)
        except BrokenOffError as broken:
            record["reply"] = broken.how
            return await self._break_off(broken.how, reader, writer)
        await send_chunk(writer, b"")
        return True

    async def _break_off(self, how: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if how == "malformed":
            await send_chunk(writer, HALF_A_MESSAGE)
            await send_chunk(writer, b"")
        if how == "hang":
            await reader.read(1)
        return how == "malformed"

    def _failing(self, asked: Asked, steps: Turn) -> tuple[int | None, Turn]:
        """The status that *steps* begin with, if they fail this time, and the steps behind it."""
        at = 0
        while at < len(steps) and steps[at].verb == "fail":
            status, _, times = steps[at].argument.partition(" ")
            key = (asked.place.script, asked.place.turns_done, at)
            failed = self._failures.get(key, 0)
            if not times or failed < int(times):
                self._failures[key] = failed + 1
                return int(status), steps[at : at + 1]
            at += 1
        return None, steps[at:] or PLAIN

    def _beside(self, request: Request) -> tuple[int, str, Any]:
        """Status, name and JSON of the answer to a request that asks nothing of the model."""
        path = request.path
        if request.outside:
            return FORBIDDEN, "outside", None
        if request.method == "HEAD":
            return 200, "head", None
        if path.endswith("/count_tokens"):
            return 200, "count", {"input_tokens": INPUT_TOKENS}
        if path.endswith(":countTokens"):
            return 200, "count", {"totalTokens": INPUT_TOKENS}
        if path.endswith("/models"):
            models = [{"id": name, "object": "model", "type": "model", "display_name": name} for name in MODELS]
            return 200, "models", {"object": "list", "data": models, "has_more": False}
        if path == "/__stub/log":
            return 200, "log", self.requests[:-1]
        return NOT_FOUND, "404", {"error": {"message": f"the model stub has no {request.method} {path}"}}


def _asked(request: Request) -> Asked | None:
    """What *request* asks the model for; None where it asks for something else."""
    if request.method != "POST":
        return None
    if request.path.endswith("/messages"):
        return anthropic.read(request.body)
    if request.path.endswith("/responses"):
        return responses.read(request.body)
    if request.path.endswith("/chat/completions"):
        return chat.read(request.body)
    if found := GEMINI_PATH.search(request.path):
        return gemini.read(request.body, found[1], streams=found[2] is not None)
    return None


def _note(record: Record, asked: Asked) -> None:
    record["api"], record["model"], record["tools"] = asked.api, asked.model, tuple(asked.tools)
    record["user"], record["users"], record["results"] = asked.place.prompt, asked.users, asked.place.results
    record["aux"] = asked.is_aux
