"""A pool of connections to one guest program: each request uses one of them, and is retried if that breaks.

Nothing is done twice by that: a partial request has no effect; once a whole one was sent, it is repeated only to the
same instance, which recognizes a run by its key.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from kasmon.errors import AgentLostError
from kasmon.sandbox.guest_client.connection import AgentConnection, AgentConnectionError, pack_request

PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.6)
"""Pauses between two tries."""
LIMIT_S: Final = 10.0
"""How long the guest program may take to identify itself, or to accept a request."""

Answer = TypeVar("Answer")


class _Hello(msgspec.Struct, frozen=True):
    instance: str


class ConnectionPool:
    """Used from any thread; each caller has a connection of its own until it got its answer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._idle: list[AgentConnection] = []
        self._used: set[AgentConnection] = set()
        self._is_closed = False

    def close(self) -> None:
        """Close all connections; waiting calls raise `AgentLostError`."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for connection in self._used:
                connection.break_off()
        for connection in idle:
            connection.close()

    def ask(self, frame: bytes, receive: Callable[[AgentConnection], Answer], *, again: bool = True) -> Answer:
        """Send *frame* and read the answer with *receive*; retry, only to the same instance once it may have it.

        *again* False: no second try where the request may have been received.

        Raises:
            AgentLostError: if that fails for about two seconds, or *receive* times out.
        """
        sent_to = ""
        why = "it is closed"
        for pause_s in (*PAUSES_S, 0.0):
            connection = None
            try:
                connection = self._acquire()
                if sent_to and connection.instance != sent_to:
                    why = "it was replaced after the request was sent"
                    self._discard(connection)
                    break
                connection.send(frame, LIMIT_S)
                sent_to = connection.instance
                answer = receive(connection)
            except AgentConnectionError as error:
                why = str(error)
                self._discard(connection)
                if self._is_closed or error.is_wrong or (error.is_sent and not again):
                    break
                time.sleep(pause_s)
            except TimeoutError:
                self._discard(connection)
                may_have_run = connection is not None or bool(sent_to)
                raise AgentLostError("it does not respond in time", may_have_run=may_have_run) from None
            except BaseException:
                self._discard(connection)
                raise
            else:
                self._release(connection)
                return answer
        raise AgentLostError(why, may_have_run=bool(sent_to))

    def _acquire(self) -> AgentConnection:
        """Return an idle connection, or a new one.

        Raises:
            TimeoutError: if a process accepts the connection but does not answer: a retry is useless.
            AgentConnectionError: if no connection can be made.
        """
        with self._lock:
            if self._is_closed:
                raise AgentConnectionError("it is closed", is_sent=False)
            if self._idle:
                connection = self._idle.pop()
                self._used.add(connection)
                return connection
        connection = AgentConnection(self._path, LIMIT_S)
        with self._lock:
            self._used.add(connection)
        try:
            connection.send(pack_request({"id": "", "type": "ping", "nonce": ""}), LIMIT_S)
            connection.instance = connection.receive(_Hello, time.monotonic() + LIMIT_S).instance
        except TimeoutError:
            self._discard(connection)
            raise
        except AgentConnectionError as error:
            self._discard(connection)
            raise AgentConnectionError(str(error), is_sent=False, is_wrong=error.is_wrong) from error
        return connection

    def _release(self, connection: AgentConnection) -> None:
        with self._lock:
            self._used.discard(connection)
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _discard(self, connection: AgentConnection | None) -> None:
        if connection:
            with self._lock:
                self._used.discard(connection)
            connection.close()
