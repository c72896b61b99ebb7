"""The writer of the search index: the dashboard that holds `fleet.lock` updates it in small steps."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kasmon.errors import UnavailableError
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import OVER
from kasmon.paths import Paths
from kasmon.store.search_index import SearchIndex
from kasmon.store.search_sources import SearchSource, SourceLines, sources, text_of
from kasmon.supervisor.search.search import list_sessions

PIECE_BYTES: Final = 1 << 18
"""How much is indexed in one transaction, so that readers of the index never wait long."""
LEAST_REST_S, LONGEST_REST_S = 5.0, 60.0
"""How long to pause when the index is up to date, in seconds: doubled each time, within these limits. Files not yet
in the index are found by reading them."""
RESTS: Final = 4
"""The pause is this many times the last step's duration, or `IDLE_RESTS` times if nothing is left to index."""
IDLE_RESTS: Final = 100

log = logging.getLogger(__name__)


class SearchIndexWriter:
    """Updates the index of *paths* in a thread of its own, while *may* returns that this process may write it."""

    def __init__(self, paths: Paths, fleet: Callable[[], Sequence[Session]], may: Callable[[], bool]) -> None:
        self._paths, self._fleet, self._may = paths, fleet, may
        self._index = SearchIndex(paths.search_index)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeps the search index", daemon=True)
        self._last_problem = ""
        self._cache = SourceCache(paths)

    def start(self) -> None:
        """Start the thread. Call once."""
        self._thread.start()

    def close(self) -> None:
        """Stop writing. Idempotent."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        rest_s = LEAST_REST_S
        while not self._ended.wait(rest_s):
            began = time.monotonic()
            indexed_bytes = 0
            try:
                if self._may():
                    indexed_bytes = update_some(self._index, self._cache, self._fleet(), PIECE_BYTES)
                self._last_problem = ""
            except (UnavailableError, OSError) as error:  # logged once: searches read the files then
                if str(error) != self._last_problem:
                    self._last_problem = str(error)
                    log.warning("%s", error)
            took = time.monotonic() - began
            if indexed_bytes >= PIECE_BYTES:
                rest_s = RESTS * took
            else:
                longer_s = min(2 * rest_s, LONGEST_REST_S) if not indexed_bytes else LEAST_REST_S
                rest_s = max(LEAST_REST_S, longer_s, IDLE_RESTS * took)
        self._index.close()


class SourceCache:
    """The files of sessions. Those of a session that has ended are listed once, until something of it changes."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._listed: dict[SessionId, tuple[Session, list[SearchSource]]] = {}

    def collect(self, sessions: Iterable[Session]) -> list[SearchSource]:
        before, self._listed = self._listed, {}
        for session in sessions:
            known = before.get(session.id)
            if known is None or known[0] is not session or session.state not in OVER:
                known = session, sources(self._paths, session.id)
            self._listed[session.id] = known
        return [source for _, listed in self._listed.values() for source in listed]


def update_some(index: SearchIndex, cache: SourceCache, sessions: Sequence[Session], most_bytes: int) -> int:
    """Index what was added to *sessions*, about *most_bytes* of it; return how many bytes were indexed.

    Raises `UnavailableError` if the index cannot be written, `OSError` if an existing file cannot be read.
    """
    terminals = frozenset(session.id for session in sessions if session.mode is Mode.TMUX)

    def text(source: SearchSource, block: SourceLines) -> str:
        return text_of(source, block, source.session in terminals)

    current = cache.collect(sessions)
    indexed_bytes = index.update(current, text, time.time(), most_bytes)
    index.retain_only(current)
    return indexed_bytes


def update_all(paths: Paths) -> None:
    """Update the index completely; the caller holds `fleet.lock`, or is alone. Raises as `update_some`."""
    index, cache = SearchIndex(paths.search_index), SourceCache(paths)
    try:
        while update_some(index, cache, list_sessions(paths), 1 << 24):
            pass
    finally:
        index.close()
