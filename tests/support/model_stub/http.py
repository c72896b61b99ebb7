"""As much of HTTP/1.1 as clients of model servers use: requests of any size, answers whole or in chunks."""

import asyncio
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request; names of headers in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def path(self) -> str:
        return self.target.split("?")[0]

    @property
    def body(self) -> dict[str, Any]:
        """Its JSON object; empty where there is none."""
        try:
            body = json.loads(self.raw)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    @property
    def keeps_open(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"

    @property
    def outside(self) -> str | None:
        """The host that it asks a proxy for; None where it means this server."""
        if self.method == "CONNECT":
            return self.target
        return self.target.split("/")[2] if self.target.startswith("http") else None


async def receive(reader: asyncio.StreamReader) -> Request | None:
    """The next request; None where the client has hung up.

    Raises:
        asyncio.IncompleteReadError: if the client hangs up in the middle of it.
    """
    line = (await reader.readline()).decode("latin1").split()
    if len(line) < 2:
        return None
    headers: dict[str, str] = {}
    while (header := (await reader.readline()).decode("latin1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.strip().lower()] = value.strip()
    raw = await _body(reader, headers)
    if headers.get("content-encoding") == "gzip":
        raw = zlib.decompress(raw, 31)
    return Request(line[0], line[1], headers, raw)


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length") or 0))
    chunks = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(chunks)


async def send_json(writer: asyncio.StreamWriter, status: int, value: Any) -> None:
    """Answer with *value*; with nothing where it is None."""
    content = b"" if value is None else json.dumps(value).encode()
    head = f"{_status_line(status)}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await writer.drain()


async def begin_stream(writer: asyncio.StreamWriter) -> None:
    """Begin an answer of server-sent events."""
    head = "Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write((_status_line(200) + head).encode())
    await writer.drain()


async def send_chunk(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    """Send one chunk; an empty one ends the answer.

    Raises:
        ConnectionError: if the client has left, then or by the next chunk.
    """
    writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    await writer.drain()


def _status_line(status: int) -> str:
    known = {code.value: code.phrase for code in HTTPStatus}
    return f"HTTP/1.1 {status} {known.get(status, 'Status')}\r\n"
