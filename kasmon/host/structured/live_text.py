"""Pushes text as it is written to clients: what the agent writes, and the output of a run in its sandbox.

The parts limit what is lost with the host, and let readers without a host see the text. The block's own event
supersedes them (`model.partial_text`). A text that is complete before its first part is due has none.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from kasmon.backends.base import Chunk, SandboxedAgentControl
from kasmon.host.journal.redaction import Redactor
from kasmon.host.rpc.frames import CommandResult, RunOutputChunk, SubscriptionEnd, TextDelta
from kasmon.host.rpc.server import ClientConnection
from kasmon.model.commands import Run, SandboxCommand
from kasmon.model.events import (
    Event,
    MessageWritten,
    PartialTextWritten,
    SessionEnded,
    SessionStarted,
    ThoughtWritten,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)
from kasmon.model.permission import SessionId

BEHIND: Final = 256 * 1024
"""How many characters of each stream wait for a client; of more it gets the newest, and how much was skipped."""
SOON_S, LATE_S = 0.02, 0.1
"""How often a run's output is pushed, while there is more and while there is not. For a run that ends sooner, the
answer alone has the output."""


async def execute(
    agent: SandboxedAgentControl, connection: ClientConnection, n: int, command: SandboxCommand
) -> CommandResult:
    """Execute *command*, which *connection* numbered *n*, and return the answer.

    Raises:
        KasmonError: the agent's error.
    """
    if not isinstance(command, Run):
        return CommandResult(n=n, outcome=await agent.change_sandbox(command))
    stream = RunStream(connection, command.id)
    try:
        ran = await agent.run(command, stream.add)
    finally:
        stream.close()
    return CommandResult(n=n, ran=ran)


class RunStream:
    """One run's output for one client. `add` may be called from any thread."""

    def __init__(self, connection: ClientConnection, run: str) -> None:
        self._connection = connection
        self._run = run
        self._lock = threading.Lock()
        self._waiting = {"stdout": "", "stderr": ""}
        self._skipped = 0
        self._is_live = False
        self._pause_s = SOON_S
        self._timer = asyncio.get_running_loop().call_later(SOON_S, self._push)

    def add(self, name: str, text: str) -> None:
        with self._lock:
            waiting = self._waiting.get(name, "") + text
            self._skipped += max(0, len(waiting) - BEHIND)
            self._waiting[name] = waiting[-BEHIND:]

    def close(self) -> None:
        """Push the rest of an output that was shown in parts."""
        self._timer.cancel()
        if self._is_live:
            self._connection.push(self._pop_output, key=("printed", self._run))

    def _push(self) -> None:
        self._is_live = True
        self._pause_s = min(self._pause_s * 2, LATE_S)
        if any(self._waiting.values()):
            self._pause_s = SOON_S
            self._connection.push(self._pop_output, key=("printed", self._run))
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._push)

    def _pop_output(self) -> RunOutputChunk | None:
        with self._lock:
            frame = RunOutputChunk(
                run=self._run, stdout=self._waiting["stdout"], stderr=self._waiting["stderr"], skipped=self._skipped
            )
            self._waiting, self._skipped = {"stdout": "", "stderr": ""}, 0
        return frame if frame.stdout or frame.stderr or frame.skipped else None


RATE_HZ = 30.0
"""The most pushes a second to one watcher."""
PART_BYTES = 4096
"""A part is logged once this much UTF-8 is unlogged; none is longer."""
PART_S = 1.0
"""How long text stays unlogged at most."""


class LiveText:
    """The message and the thought that are being written, and the clients that watch them."""

    def __init__(self, session: SessionId, redactor: Redactor, log: Callable[[Event], None]) -> None:
        self.written_at = 0.0
        """When something was last written, in seconds since the epoch."""
        self._session = session
        self._redactor = redactor
        self._log = log
        self._text = {False: "", True: ""}
        self._logged = {False: 0, True: 0}
        """How much of each text is in parts."""
        self._part_due: asyncio.TimerHandle | None = None
        self._watchers: dict[ClientConnection, _Watcher] = {}

    def watch(self, connection: ClientConnection, rate_hz: float) -> None:
        """Show *connection* what is being written, now and from now on."""
        self.unwatch(connection)
        self._watchers[connection] = _Watcher(connection, min(rate_hz, RATE_HZ) if rate_hz > 0 else RATE_HZ)
        for thinking, text in self._text.items():
            if text:
                self._show(thinking)

    def unwatch(self, connection: ClientConnection) -> None:
        """Stop showing text to *connection*. Idempotent."""
        if (watcher := self._watchers.pop(connection, None)) is not None:
            watcher.close()

    def write(self, chunk: Chunk) -> None:
        self.written_at = time.time()
        self._text[chunk.thinking] += chunk.text
        self._show(chunk.thinking)
        if len(_encode(self._text[chunk.thinking][self._logged[chunk.thinking] :])) >= PART_BYTES:
            self._log_part(chunk.thinking)
        elif self._part_due is None:
            self._part_due = asyncio.get_running_loop().call_later(PART_S, self._log_parts)

    def flush_before(self, event: Event) -> None:
        """Log the rest of both texts if *event* ends the turn or session; call before it is noted."""
        if isinstance(event, TurnStarted | TurnEnded | SessionStarted | SessionEnded):
            self._log_parts(is_over=True)

    def handle_event(self, event: Event) -> None:
        """Discard the text that *event* contains or supersedes."""
        if isinstance(event, MessageWritten | TurnStarted | TurnEnded | SessionStarted):
            self._forget(False)
        if isinstance(event, ToolFinished) and event.exit_code is not None:  # a run of code: its output is in the event
            self._forget(False)
        if isinstance(event, ThoughtWritten | MessageWritten | TurnStarted | TurnEnded | SessionStarted):
            self._forget(True)

    def end(self, why: str) -> None:
        """Send the end of the subscription to all watchers."""
        if self._part_due is not None:
            self._part_due.cancel()
        for connection in list(self._watchers):
            self.unwatch(connection)
            connection.push(SubscriptionEnd(session=self._session, why=why))

    def _log_parts(self, *, is_over: bool = False) -> None:
        """Log both texts as far as they are settled."""
        if self._part_due is not None:
            self._part_due.cancel()
            self._part_due = None
        for thinking in (True, False):
            self._log_part(thinking, is_over=is_over)

    def _log_part(self, thinking: bool, *, is_over: bool = False) -> None:
        if self._logged[thinking] == len(self._text[thinking]):
            return
        whole, start = self._text[thinking], self._logged[thinking]
        text, self._logged[thinking] = self._redactor.next_part(whole, start, is_over=is_over)
        now = time.time()
        for part in _parts(text):
            self._log(PartialTextWritten(at=now, text=part, thinking=thinking))

    def _forget(self, thinking: bool) -> None:
        self._logged[thinking] = 0
        if self._text[thinking]:
            self._text[thinking] = ""
            self._show(thinking)

    def _show(self, thinking: bool) -> None:
        for watcher in self._watchers.values():
            watcher.show(thinking, lambda: self._build_delta(thinking))

    def _build_delta(self, thinking: bool) -> TextDelta:
        text = self._redactor.unfinished(self._text[thinking])
        return TextDelta(session=self._session, text=text, thinking=thinking)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _parts(text: str) -> Iterator[str]:
    """Yield *text* in parts of `PART_BYTES` at most; no character is split."""
    data, start = _encode(text), 0
    while start < len(data):
        end = start + PART_BYTES
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        yield data[start:end].decode("utf-8", "surrogatepass")
        start = end


class _Watcher:
    """One watching client, with its own rate."""

    def __init__(self, connection: ClientConnection, rate_hz: float) -> None:
        self._connection = connection
        self._pause_s = 1 / rate_hz
        self._next_at = 0.0
        self._wanted: dict[bool, Callable[[], TextDelta]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def show(self, thinking: bool, make: Callable[[], TextDelta]) -> None:
        """Push the result of *make* as soon as the rate allows it."""
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
