"""A reopenable control-mode connection to a tmux server: one stable object around a replaceable control client."""

from collections.abc import Callable
from typing import TypeVar

from kasmon.errors import KasmonError, TmuxServerGoneError
from kasmon.tmux.control_client import ControlClient
from kasmon.tmux.requests import TmuxRequest
from kasmon.tmux.server import TmuxServer
from kasmon.tmux.server_process import build_run_error

Answer = TypeVar("Answer")
OnDone = Callable[[Answer | KasmonError], None]


class ControlConnection:
    """At most one running control client for a server.

    Once it is open, watch `fileno()` for reading and call `pump()`; while `wants_write()`, watch `write_fileno()` for
    writing and call `flush()`.
    """

    def __init__(self, server: TmuxServer) -> None:
        self._server = server
        self._client: ControlClient | None = None

    @property
    def server(self) -> TmuxServer:
        """The tmux server of this connection."""
        return self._server

    @property
    def is_open(self) -> bool:
        """Whether a control client is running and connected."""
        return self._client is not None and self._client.is_open

    def fileno(self) -> int:
        """The pipe to watch for reading."""
        return self._require_client().fileno()

    def write_fileno(self) -> int:
        """The pipe to watch for writing while `wants_write()`."""
        return self._require_client().write_fileno()

    def wants_write(self) -> bool:
        """Whether requests are waiting to be written to the pipe."""
        return self._client is not None and self._client.wants_write()

    def flush(self) -> None:
        """Write as much as the pipe accepts without blocking."""
        if self._client is not None:
            self._client.flush()

    def pump(self) -> bool:
        """Read the available output and run the callbacks; return False once tmux has ended the connection."""
        return self._client is not None and self._client.pump()

    def close(self) -> None:
        """End the control client; the server and its sessions keep running. Idempotent, bounded by three seconds."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def submit(self, request: TmuxRequest[Answer], on_done: OnDone[Answer] | None = None) -> None:
        """Send a request of `kasmon.tmux.requests`; *on_done* receives its answer, or the error instead of one."""
        if self._client is not None:
            self._client.submit(request, on_done)
        elif on_done:
            on_done(TmuxServerGoneError(str(self._server.socket)))

    def call(self, request: TmuxRequest[Answer], limit_s: float = 10.0) -> Answer:
        """Send *request*, wait for its answer and return it.

        Raises:
            TmuxServerGoneError, TmuxCommandError: if no answer comes.
            KasmonError: if the answer is a refusal.
        """
        return self._require_client().call(request, limit_s)

    def _attach_client(self, *options: str) -> ControlClient:
        """Start another control client, attached with *options*.

        Raises:
            TmuxServerGoneError: if there is no server, or no such session.
            TmuxCommandError: if tmux cannot be run, or does not answer.
        """
        server = self._server
        argv = [server.program, "-u", "-N", "-S", str(server.socket), "-C", "attach-session", *options]
        with server.quiet():
            try:
                client = ControlClient(argv, server.environment, str(server.socket))
            except OSError as error:
                raise build_run_error("attach-session", error) from error
            try:
                client.wait_until_attached()
            except BaseException:
                client.close()
                raise
        return client

    def _require_client(self) -> ControlClient:
        if self._client is None:
            raise TmuxServerGoneError(str(self._server.socket))
        return self._client
