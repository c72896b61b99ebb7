"""Follows one session's transcript: its log from a cursor, and the text that its agent is writing now."""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Final

from kasmon.errors import KasmonError, LogMissingError
from kasmon.host.rpc.frames import FromHost, TextDelta, Watch
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.event_log import START, Cursor, EventLog
from kasmon.tui.gateway.protocol import EventBatch, TranscriptUpdate

LOOK_S, BUSY_LOOK_S = 0.05, 0.01
"""How often a thread checks the log's size, in seconds; the second while something was added recently."""
BUSY_S: Final = 2.0
"""How long "recently" is, in seconds."""
AT_ONCE: Final = 1000
"""At most this many events are in one batch: processing them must cause no visible delay."""
END_BYTES: Final = 1 << 19
"""So much of the end of a long log is sent first, to be shown until all of it is read."""
LONG_BYTES: Final = 4 * END_BYTES
RETRY_S: Final = 2.0


async def follow(
    places: Paths, known: Session | None, session: SessionId, since: Cursor
) -> AsyncIterator[TranscriptUpdate]:
    """Yield what the log has after *since*, then what is added, with the text being written; never ends by itself."""
    loop = asyncio.get_running_loop()
    updates: asyncio.Queue[TranscriptUpdate] = asyncio.Queue()
    ended = threading.Event()

    def publish(facts: TranscriptUpdate) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the screen
            loop.call_soon_threadsafe(updates.put_nowait, facts)

    reader = threading.Thread(
        target=_read_events, args=(EventLog(places.log(session)), since, publish, ended), daemon=True
    )
    reader.start()
    structured = known is not None and known.mode is not Mode.TMUX
    writing = loop.create_task(_follow_text(places, session, updates.put_nowait)) if structured else None
    try:
        while True:
            yield await updates.get()
    finally:
        ended.set()
        if writing is not None:
            writing.cancel()


def _read_events(
    log: EventLog, cursor: Cursor, publish: Callable[[TranscriptUpdate], None], ended: threading.Event
) -> None:
    """In a thread: send the events after *cursor*, a batch at a time, until *ended*."""
    if cursor == START and (size := log.size()) > LONG_BYTES:
        with contextlib.suppress(LogMissingError, OSError):
            publish(_read_end(log, Cursor(size - END_BYTES)))
    added_at = -math.inf
    while not ended.is_set():
        if log.size() > cursor:
            added_at = time.monotonic()
            with contextlib.suppress(LogMissingError, OSError):
                facts = log.read(cursor)
                piece = list(islice(facts, AT_ONCE))
                while piece and not ended.is_set():
                    cursor = piece[-1][1]
                    following = list(islice(facts, AT_ONCE))
                    publish(EventBatch(tuple(event for event, _ in piece), cursor, more=bool(following)))
                    piece = following
        ended.wait(BUSY_LOOK_S if time.monotonic() < added_at + BUSY_S else LOOK_S)


def _read_end(log: EventLog, since: Cursor) -> EventBatch:
    """The events after *since*, which may be in the middle of a line."""
    _, whole = next(log.lines(since), (b"", since))
    return EventBatch(tuple(event for event, _ in log.read(whole)), whole, is_end=True)


async def _follow_text(places: Paths, session: SessionId, publish: Callable[[TranscriptUpdate], None]) -> None:
    """Receive the text that the agent is writing from its host, while it has one; this starts no agent."""
    from kasmon.host.rpc.connect import open_link  # not before the first frame

    def push(frame: FromHost) -> None:
        if isinstance(frame, TextDelta) and frame.session == session:
            publish(frame)

    while True:
        with contextlib.suppress(KasmonError):
            reached = await open_link(places, session, Mode.SDK, only_looks=True)
            gone = asyncio.Event()
            reached.on_push, reached.on_close = push, gone.set
            try:
                reached.send(Watch(session=session))
                await gone.wait()
            finally:
                await reached.aclose()
        await asyncio.sleep(RETRY_S)
