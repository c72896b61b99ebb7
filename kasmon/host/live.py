"""What a structured agent is writing at this moment, for those who watch: shown and forgotten, no fact."""

import asyncio
import time
from collections.abc import Callable

from kasmon.backends.base import Chunk
from kasmon.host.connection import Connection
from kasmon.host.hiding import Hiding
from kasmon.host.wire import Gone, Written
from kasmon.model.event import (
    Event,
    MessageSaid,
    SessionStarted,
    ThoughtSaid,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)
from kasmon.model.permission import SessionId

RATE_HZ = 30.0
"""The most pushes a second, whoever watches."""


class Live:
    """The text and the thought that are being written, and who watches them grow."""

    def __init__(self, session: SessionId, hiding: Hiding | None = None) -> None:
        """*hiding*: what nobody is to see of it, not even for a moment."""
        self.written_at = 0.0
        """When something was last written, in seconds since the epoch."""
        self._session = session
        self._hiding = hiding or Hiding()
        self._text = {False: "", True: ""}
        self._watchers: dict[Connection, _Watcher] = {}

    def watch(self, connection: Connection, rate_hz: float) -> None:
        """Show *connection* what is being written, and all that comes."""
        self.unwatch(connection)
        self._watchers[connection] = _Watcher(connection, min(rate_hz, RATE_HZ) if rate_hz > 0 else RATE_HZ)
        for thinking, text in self._text.items():
            if text:
                self._show(thinking)

    def unwatch(self, connection: Connection) -> None:
        """Show *connection* nothing any more. Idempotent."""
        if (watcher := self._watchers.pop(connection, None)) is not None:
            watcher.close()

    def write(self, chunk: Chunk) -> None:
        """*chunk* was written."""
        self.written_at = time.time()
        self._text[chunk.thinking] += chunk.text
        self._show(chunk.thinking)

    def heard(self, event: Event) -> None:
        """Forget what *event* has made a fact, or void."""
        if isinstance(event, MessageSaid | TurnStarted | TurnEnded | SessionStarted):
            self._forget(False)
        if isinstance(event, ToolFinished) and event.exit_code is not None:  # a run of code: what it printed is in it
            self._forget(False)
        if isinstance(event, ThoughtSaid | MessageSaid | TurnStarted | TurnEnded | SessionStarted):
            self._forget(True)

    def end(self, why: str) -> None:
        """Tell who watches that there is nothing to watch any more."""
        for connection in list(self._watchers):
            self.unwatch(connection)
            connection.push(Gone(session=self._session, why=why))

    def _forget(self, thinking: bool) -> None:
        if self._text[thinking]:
            self._text[thinking] = ""
            self._show(thinking)

    def _show(self, thinking: bool) -> None:
        for watcher in self._watchers.values():
            watcher.show(thinking, lambda: self._written(thinking))

    def _written(self, thinking: bool) -> Written:
        text = self._hiding.unfinished(self._text[thinking])
        return Written(session=self._session, text=text, thinking=thinking)


class _Watcher:
    """One who watches, at a rate of its own."""

    def __init__(self, connection: Connection, rate_hz: float) -> None:
        self._connection = connection
        self._pause_s = 1 / rate_hz
        self._next_at = 0.0
        self._wanted: dict[bool, Callable[[], Written]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def show(self, thinking: bool, make: Callable[[], Written]) -> None:
        """Push what *make* gives as soon as the rate allows it."""
        self._wanted[thinking] = make
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._next_at), self._push)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _push(self) -> None:
        self._timer = None
        self._next_at = asyncio.get_running_loop().time() + self._pause_s
        for thinking, make in self._wanted.items():
            self._connection.push(make, key=("written", thinking))
        self._wanted.clear()
