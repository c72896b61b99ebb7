"""Search all transcripts and recorded terminal output, by the index and, for files not indexed yet, by reading them.

So the result is complete, with or without an index. Nothing here writes.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from kasmon.host.journal.redaction import Redactor
from kasmon.host.journal.secrets import secrets_of
from kasmon.model.commands import Mode
from kasmon.model.session import Session
from kasmon.model.transcript.search.pattern import SearchPattern
from kasmon.model.transcript.search.text import SearchHit
from kasmon.paths import Paths, check_regular
from kasmon.store import terminal_record
from kasmon.store.fleet_cache import load_cache
from kasmon.store.fleet_index import FleetIndex
from kasmon.store.search_index import SearchLookup
from kasmon.store.search_sources import (
    SearchQuery,
    SearchSource,
    SourceLines,
    blocks,
    find_blob_event,
    hits,
    hits_on_screen,
    sources,
)
from kasmon.supervisor.machines.copied_files import copy_files

FIRST_STEP_BYTES: Final = 1 << 13
STEP_BYTES: Final = 1 << 16
"""How much of a file is searched before checking whether there are enough hits: less at first, then doubled
each time."""


class SessionHits(msgspec.Struct, frozen=True):
    session: Session
    hits: tuple[SearchHit, ...]
    """By time, oldest first."""
    more: bool = False
    problem: str = ""
    """Why some files could not be searched; empty if all were."""


def search(
    paths: Paths,
    sessions: Iterable[Session],
    pattern: SearchPattern,
    *,
    context: int = 0,
    most: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[SessionHits]:
    """Yield the hits of *pattern* in *sessions*, a session at a time in this order, omitting sessions without hits.

    A session's secrets are neither matched nor returned, even if its files contain them.

    Args:
        context: how many lines above and below each hit to return.
        most: return at most this many hits of each session, the newest.
        stopped: called now and then; the search ends when it returns True.
    """
    parameters = _SearchParameters(
        paths, SearchQuery(pattern, context, most), SearchLookup(paths.search_index, pattern.grams), stopped
    )
    for session in sessions:
        if stopped():
            return
        try:
            found = _in_session(parameters, session)
        except OSError as error:
            yield SessionHits(
                session, (), problem=f"{str(error.filename or paths.folder(session.id))!r}: {error.strerror}"
            )
            continue
        if found:
            yield SessionHits(
                session, tuple(found[-most:] if most is not None else found), parameters.query.is_enough(len(found))
            )


def list_sessions(paths: Paths) -> tuple[Session, ...]:
    """Return every session that is not forgotten, the most recently active first, without reading their logs.

    Raises `OSError` if the fleet's log exists and cannot be read.
    """
    fold = FleetIndex(paths)
    load_cache(paths.index, fold)
    fold.read_fleet()
    return sort_by_use(paths, [folded.session for folded in fold.sessions.values()])


def sort_by_use(paths: Paths, sessions: Iterable[Session]) -> tuple[Session, ...]:
    """Return *sessions*, the most recently active first."""
    return tuple(sorted(sessions, key=lambda session: -_used_at(paths, session)))


def _used_at(paths: Paths, session: Session) -> float:
    for path in (paths.record(session.id) / terminal_record.SCREEN, paths.log(session.id)):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0


class _SearchParameters(NamedTuple):
    paths: Paths
    query: SearchQuery
    lookup: SearchLookup
    stopped: Callable[[], bool]


def _in_session(parameters: _SearchParameters, session: Session) -> list[SearchHit]:
    """Return the hits in *session*, oldest first; of each of its files about as many of the newest as suffice."""
    paths, query = parameters.paths, parameters.query
    if session.via:
        copy_files(paths, session)
    log = paths.log(session.id)
    with contextlib.suppress(FileNotFoundError):
        check_regular(log, log.stat())  # a FIFO has no bytes to search, so reading it would not fail
    collected = hits_on_screen(paths, session.id, query)
    in_parts = 0
    for source in sources(paths, session.id):
        if source.kind == "record" and query.is_enough(in_parts):
            continue
        found = _in_source(parameters, source, in_terminal=session.mode is Mode.TMUX)
        in_parts += len(found) if source.kind == "record" else 0
        collected += _add_positions(paths, source, found) if source.kind == "blob" else found
    if not collected:
        return []
    collected.sort(key=lambda hit: (hit.at, hit.position))
    return _redact(query.newest(collected), query.pattern, Redactor(secrets_of(paths, session.id)))


def _in_source(parameters: _SearchParameters, source: SearchSource, *, in_terminal: bool) -> list[SearchHit]:
    """Search *source* from its end to its beginning, until there are enough hits."""
    query = parameters.query
    collected: list[SearchHit] = []
    for block in _from_the_end(source, parameters.lookup.ranges(source), query.most is not None):
        collected += hits(source, block, query, in_terminal=in_terminal)
        if parameters.stopped() or query.is_enough(len(collected)):
            break
    return collected


def _from_the_end(source: SearchSource, ranges: Sequence[tuple[int, int]], is_stepwise: bool) -> Iterator[SourceLines]:
    """Yield the blocks of *ranges*; from the end in growing steps if *is_stepwise*."""
    if not is_stepwise:
        for start, end in ranges:
            yield from blocks(source, start, end)
        return
    size = FIRST_STEP_BYTES
    for start, end in reversed(ranges):
        while start < end:
            step = _line_start(source, max(start, end - size)) if end - start > size else start
            yield from reversed([*blocks(source, step, end)])
            end, size = step, min(2 * size, STEP_BYTES)


def _line_start(source: SearchSource, at: int) -> int:
    with source.path.open("rb") as file:
        while at > 0:
            before = max(0, at - (1 << 16))
            file.seek(before)
            end = file.read(at - before).rfind(b"\n")
            if end >= 0:
                return before + end + 1
            at = before
    return 0


def _add_positions(paths: Paths, source: SearchSource, hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Return hits in a blob with the time and place of the event that it belongs to."""
    if not hits:
        return []
    place, at = find_blob_event(paths.log(source.session), source.name)
    return [msgspec.structs.replace(hit, position=place, at=at) for hit in hits] if at else []


def _redact(collected: Iterable[SearchHit], pattern: SearchPattern, redactor: Redactor) -> list[SearchHit]:
    """Return the hits that still match after the session's secrets are redacted."""
    shown: list[SearchHit] = []
    for hit in collected:
        line = redactor.line(hit.line)
        before, after = (tuple(map(redactor.line, lines)) for lines in (hit.before, hit.after))
        if line == hit.line and before == hit.before and after == hit.after:
            shown.append(hit)
        elif (span := pattern.find(line)) is not None:
            changed = {"line": line, "before": before, "after": after, "start": span[0], "end": span[1]}
            shown.append(msgspec.structs.replace(hit, **changed))
    return shown
