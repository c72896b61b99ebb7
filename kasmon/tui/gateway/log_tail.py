"""Follows one session's transcript: its log from a cursor, and the text that its agent is writing now."""

import asyncio
import contextlib
import select
import threading
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Final, Self

from kasmon.errors import KasmonError, LogMissingError
from kasmon.host.rpc.frames import FromHost, TextDelta, Watch
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.event_log import START, Cursor, EventLog
from kasmon.supervisor.fleet.file_hints import StopEvent
from kasmon.system.inotify import IGNORED, MODIFY, Inotify
from kasmon.tui.gateway.protocol import EventBatch, TranscriptUpdate

LOOK_S: Final = 1.0
"""How often a thread checks the log's size, in seconds, beside the system's reports of changes."""
UNWATCHED_LOOK_S: Final = 0.05
"""The same without such reports."""
PAUSE_S: Final = 0.01
"""The least time between two readings, in seconds: an agent that writes much wakes the thread no more often."""
AT_ONCE: Final = 1000
"""At most this many events are in one batch: processing them must cause no visible delay."""
END_BYTES: Final = 1 << 19
"""So much of the end of a long log is sent first, to be shown until all of it is read."""
LONG_BYTES: Final = 4 * END_BYTES
RETRY_S: Final = 2.0


async def follow(
    paths: Paths, current: Session | None, session: SessionId, since: Cursor
) -> AsyncIterator[TranscriptUpdate]:
    """Yield what the log has after *since*, then what is added, with the text being written; never ends by itself."""
    loop = asyncio.get_running_loop()
    updates: asyncio.Queue[TranscriptUpdate] = asyncio.Queue()
    ended = StopEvent()

    def publish(facts: TranscriptUpdate) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the screen
            loop.call_soon_threadsafe(updates.put_nowait, facts)

    reader = threading.Thread(
        target=_read_events, args=(EventLog(paths.log(session)), since, publish, ended), daemon=True
    )
    reader.start()
    structured = current is not None and current.mode is not Mode.TMUX
    writing = loop.create_task(_follow_text(paths, session, updates.put_nowait)) if structured else None
    try:
        while True:
            yield await updates.get()
    finally:
        ended.set()
        if writing is not None:
            writing.cancel()


def _read_events(log: EventLog, cursor: Cursor, publish: Callable[[TranscriptUpdate], None], ended: StopEvent) -> None:
    """In a thread: send the events after *cursor*, a batch at a time, until *ended*, which this closes."""
    with contextlib.closing(ended), _FileWatch(str(log.path), ended) as watch:
        if cursor == START and (size := log.size()) > LONG_BYTES:
            with contextlib.suppress(LogMissingError, OSError):
                publish(_read_end(log, Cursor(size - END_BYTES)))
        while not ended.is_set():
            if log.size() > cursor:
                with contextlib.suppress(LogMissingError, OSError):
                    facts = log.read(cursor)
                    piece = list(islice(facts, AT_ONCE))
                    while piece and not ended.is_set():
                        cursor = piece[-1][1]
                        following = list(islice(facts, AT_ONCE))
                        publish(EventBatch(tuple(event for event, _ in piece), cursor, more=bool(following)))
                        piece = following
            watch.wait()


class _FileWatch:
    """Waits for changes of one file: the system reports them, or else a timer expires."""

    def __init__(self, path: str, ended: StopEvent) -> None:
        self._path, self._ended = path, ended
        self._inotify: Inotify | None = None
        self._is_watched = False

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            self._inotify = Inotify()
        return self

    def __exit__(self, *_: object) -> None:
        if self._inotify is not None:
            self._inotify.close()

    def wait(self) -> None:
        """Return after a change since the last call, when it is time to check, or once the stop event is set."""
        if self._ended.wait(PAUSE_S):
            return
        if self._inotify is None or not self._is_watched:
            self._watch()
            self._ended.wait(UNWATCHED_LOOK_S - PAUSE_S)  # it may have changed before it was watched
            return
        poller = select.poll()
        for each in (self._inotify.fileno(), self._ended.fileno()):
            poller.register(each, select.POLLIN)
        poller.poll(1000 * LOOK_S)
        if any(event.mask & IGNORED for event in self._inotify.read()):
            self._is_watched = False

    def _watch(self) -> None:
        if self._inotify is not None:
            with contextlib.suppress(OSError):  # it does not exist yet, or there are too many watches
                self._inotify.add(self._path, MODIFY)
                self._is_watched = True


def _read_end(log: EventLog, since: Cursor) -> EventBatch:
    """The events after *since*, which may be in the middle of a line."""
    _, whole = next(log.lines(since), (b"", since))
    return EventBatch(tuple(event for event, _ in log.read(whole)), whole, is_end=True)


async def _follow_text(paths: Paths, session: SessionId, publish: Callable[[TranscriptUpdate], None]) -> None:
    """Receive the text that the agent is writing from its host, while it has one; this starts no agent."""
    from kasmon.host.rpc.connect import open_link  # not before the first frame

    def push(frame: FromHost) -> None:
        if isinstance(frame, TextDelta) and frame.session == session:
            publish(frame)

    while True:
        with contextlib.suppress(KasmonError):
            reached = await open_link(paths, session, Mode.SDK, only_looks=True)
            gone = asyncio.Event()
            reached.on_push, reached.on_close = push, gone.set
            try:
                reached.send(Watch(session=session))
                await gone.wait()
            finally:
                await reached.aclose()
        await asyncio.sleep(RETRY_S)
