"""The searches of `LiveGateway`: in a thread, a session at a time."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator
from typing import Final

from kasmon.errors import LogMissingError
from kasmon.model.events import Event
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.transcript.search.pattern import SearchPattern
from kasmon.paths import Paths
from kasmon.store import terminal_record
from kasmon.store.event_log import Cursor, EventLog
from kasmon.supervisor.search.search import SessionHits, search, sort_by_use
from kasmon.tui.gateway.protocol import RecordedText

MOST: Final = 20
"""At most this many hits are shown of each session, the newest."""
CONTEXT: Final = 2
AROUND: Final = 5000
"""Number of lines shown above and below a hit in printed text."""


async def search_sessions(paths: Paths, fleet: Fleet, query: str) -> AsyncGenerator[SessionHits, None]:
    """Yield where *query* occurs; see `Gateway.search`."""
    loop = asyncio.get_running_loop()
    hits: asyncio.Queue[SessionHits | None] = asyncio.Queue()
    ended = threading.Event()
    pattern = SearchPattern(query, ignores_case=True)

    def publish(each: SessionHits | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the screen
            loop.call_soon_threadsafe(hits.put_nowait, each)

    def read() -> None:
        try:
            everyone = sort_by_use(paths, fleet.sessions)
            for each in search(paths, everyone, pattern, context=CONTEXT, most=MOST, stopped=ended.is_set):
                publish(each)
        finally:
            publish(None)

    threading.Thread(target=read, name="searches", daemon=True).start()
    try:
        while (each := await hits.get()) is not None:
            yield each
    finally:
        ended.set()


def read_recorded(paths: Paths, session: SessionId, line: int | None, at: float) -> RecordedText:
    """Return the text printed around a line or a time; see `Gateway.read_recording`."""
    everything = [*terminal_record.number_lines(terminal_record.everything(paths.record(session)))]
    if line is None:
        index = next((n for n, (_, printed_at, _) in enumerate(everything) if printed_at >= at), len(everything) - 1)
    else:
        index = next((n for n, (number, _, _) in enumerate(everything) if number == line), -1)
    if not 0 <= index < len(everything):
        return RecordedText()
    first = max(0, index - AROUND)
    return RecordedText(lines=tuple(text for _, _, text in everything[first : index + AROUND]), here=index - first)


def find_event(paths: Paths, session: SessionId, place: int) -> Event | None:
    """Return the event that begins at byte *place* of the session's log; None if there is none."""
    with contextlib.suppress(LogMissingError, OSError):
        return next((event for event, _ in EventLog(paths.log(session)).read(Cursor(place))), None)
    return None
