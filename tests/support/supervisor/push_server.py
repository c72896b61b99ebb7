"""A server on loopback that takes messages as ntfy and a webhook do, and can answer with an error."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message, as it came."""

    at: float
    path: str
    authorization: str
    content: dict[str, Any]

    @property
    def text(self) -> str:
        """Title and body."""
        return f"{self.content['title']}\n{self.content['message']}"


class PushServer:
    """Runs in a thread; `close` it. `ntfy`, `webhook` and `pager` are addresses of targets."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.status = 200
        """What it answers."""
        took = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                took.messages.append(
                    Message(
                        at=time.time(),
                        path=self.path,
                        authorization=self.headers.get("Authorization", ""),
                        content=content,
                    )
                )
                answer = json.dumps({"id": "1", "error": "token tk_verysecret is not allowed on this topic"}).encode()
                self.send_response(took.status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the parent's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def ntfy(self) -> str:
        return f"ntfy://tk_verysecret@127.0.0.1:{self.port}/private-topic?auth=token"

    @property
    def webhook(self) -> str:
        return f"json://127.0.0.1:{self.port}/hook/verysecret"

    @property
    def pager(self) -> str:
        return f"json://127.0.0.1:{self.port}/pager/verysecret"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
