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
from kasmon.sandbox.guest_client.line import AgentConnection, AgentConnectionError, packed

PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.6)
"""Pauses between two tries."""
LIMIT_S: Final = 10.0
"""How long the guest program may take to identify itself, or to accept a request."""

Heard = TypeVar("Heard")


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
            for line in self._used:
                line.break_off()
        for line in idle:
            line.close()

    def ask(self, frame: bytes, hear: Callable[[AgentConnection], Heard], *, again: bool = True) -> Heard:
        """Send *frame* and read the answer with *hear*; retry, only to the same instance once it may have the request.

        *again* False: no second try where the request may have been received.

        Raises:
            AgentLostError: if that fails for about two seconds, or *hear* times out.
        """
        sent_to = ""
        why = "it is closed"
        for pause_s in (*PAUSES_S, 0.0):
            line = None
            try:
                line = self._take()
                if sent_to and line.instance != sent_to:
                    why = "it was replaced after the request was sent"
                    self._give_up(line)
                    break
                line.send(frame, LIMIT_S)
                sent_to = line.instance
                heard = hear(line)
            except AgentConnectionError as error:
                why = str(error)
                self._give_up(line)
                if self._is_closed or error.is_wrong or (error.is_sent and not again):
                    break
                time.sleep(pause_s)
            except TimeoutError:
                self._give_up(line)
                may_have_run = line is not None or bool(sent_to)
                raise AgentLostError("it does not respond in time", may_have_run=may_have_run) from None
            except BaseException:
                self._give_up(line)
                raise
            else:
                self._give_back(line)
                return heard
        raise AgentLostError(why, may_have_run=bool(sent_to))

    def _take(self) -> AgentConnection:
        """Return an idle connection, or a new one.

        Raises:
            TimeoutError: if a process accepts the connection but does not answer: a retry is useless.
            AgentConnectionError: if no connection can be made.
        """
        with self._lock:
            if self._is_closed:
                raise AgentConnectionError("it is closed", is_sent=False)
            if self._idle:
                line = self._idle.pop()
                self._used.add(line)
                return line
        line = AgentConnection(self._path, LIMIT_S)
        with self._lock:
            self._used.add(line)
        try:
            line.send(packed({"id": "", "type": "ping", "nonce": ""}), LIMIT_S)
            line.instance = line.receive(_Hello, time.monotonic() + LIMIT_S).instance
        except TimeoutError:
            self._give_up(line)
            raise
        except AgentConnectionError as error:
            self._give_up(line)
            raise AgentConnectionError(str(error), is_sent=False, is_wrong=error.is_wrong) from error
        return line

    def _give_back(self, line: AgentConnection) -> None:
        with self._lock:
            self._used.discard(line)
            if not self._is_closed:
                self._idle.append(line)
                return
        line.close()

    def _give_up(self, line: AgentConnection | None) -> None:
        if line:
            with self._lock:
                self._used.discard(line)
            line.close()
