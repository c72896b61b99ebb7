"""A codex that listens on a unix socket, as `codex app-server --listen unix://PATH`, and repeats each prompt."""

import asyncio
import json
import sys
from base64 import b64encode
from hashlib import sha1
from pathlib import Path
from typing import Any

from tests.support.codex.odd_codex import ANSWERS, THREAD, Answer

HANGS = "hang"
"""The prompt whose turn does not end; an interrupt is never answered."""
CLIENTS: list[asyncio.StreamWriter] = []


def accept_key(head: bytes) -> bytes:
    """What a server answers to the key in the request *head*."""
    key = next(line.partition(b":")[2].strip() for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key"))
    return b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())


def frame(payload: bytes, kind: int = 1, *, final: bool = True) -> bytes:
    """A frame as a server sends it."""
    size = len(payload)
    length = bytes([min(size, 125)])
    if size > 125:
        length = b"\x7e" + size.to_bytes(2) if size < 1 << 16 else b"\x7f" + size.to_bytes(8)
    return bytes([kind | (0x80 if final else 0)]) + length + payload


def tell(writers: list[asyncio.StreamWriter], **message: Any) -> None:
    for writer in writers:
        if not writer.is_closing():
            writer.write(frame(json.dumps(message).encode()))


def notify(method: str, **params: Any) -> None:
    tell(CLIENTS, method=method, params={"threadId": THREAD, **params})


async def read_message(reader: asyncio.StreamReader) -> bytes:
    _, second = await reader.readexactly(2)
    size = second & 0x7F
    if size > 125:
        size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8))
    mask = await reader.readexactly(4)
    return bytes(byte ^ mask[place % 4] for place, byte in enumerate(await reader.readexactly(size)))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    key = accept_key(await reader.readuntil(b"\r\n\r\n"))
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: " + key + b"\r\n\r\n")
    CLIENTS.append(writer)
    try:
        while True:
            message = json.loads(await read_message(reader))
            if "id" in message and message.get("method", "turn/interrupt") != "turn/interrupt":
                answer: Answer = ANSWERS.get(message["method"], lambda _: {})
                tell([writer], id=message["id"], result=answer(message.get("params") or {}))
            if message.get("method") == "turn/start":
                repeat(message["params"]["input"][0]["text"])
    except (asyncio.IncompleteReadError, ConnectionError):
        CLIENTS.remove(writer)


def repeat(text: str) -> None:
    turn = {"id": f"t-{text}"}
    prompt = {"type": "userMessage", "id": "u", "content": [{"type": "text", "text": text}]}
    notify("turn/started", turn=turn)
    for method in ("item/started", "item/completed"):
        notify(method, item=prompt)
    if text == HANGS:
        return
    notify("item/completed", item={"type": "agentMessage", "id": "m", "text": text})
    notify("turn/completed", turn={**turn, "status": "completed"})


async def listen(path: str) -> None:
    """Serve at *path*, which is a link as codex makes it: the socket is in a folder of codex's, beside a lock."""
    folder = Path(f"{path}.d")
    folder.mkdir(mode=0o700)
    (folder / "socket.lock").touch()
    server = await asyncio.start_unix_server(serve, str(folder / "socket"))
    Path(path).symlink_to(folder / "socket")
    async with server:
        await server.serve_forever()


def main() -> None:
    asyncio.run(listen(sys.argv[sys.argv.index("--listen") + 1].removeprefix("unix://")))
